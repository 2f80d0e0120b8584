"""What holds for every test."""

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
