"""What holds for every test."""

from collections.abc import Iterator

import hypothesis
import pytest

# How long an example takes is the machine's affair.
hypothesis.settings.register_profile("tegrascope", deadline=None)
hypothesis.settings.load_profile("tegrascope")


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests, in whatever window: a table is as wide as its own rules say."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("LINES", raising=False)


@pytest.fixture(autouse=True)
def every_column_has_a_row(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Fail where a column of telemetry has no row in ``parsers/signals.py``."""
    yield
    if not request.node.get_closest_marker("unknown_columns"):
        logged = (record.getMessage() for record in caplog.get_records("call"))
        assert [text for text in logged if "no signal has the column" in text] == []
