"""What holds for every test."""

import os
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of generated models, shared by all processes of one test run."""
    base = tmp_path_factory.getbasetemp()
    # Each pytest-xdist process has a directory of its own below that of the run.
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "models"
