"""Where the recorded lines are: in the tree, and the larger corpus that may stand beside it."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CORPUS = TESTS.parents[1] / "shared" / "corpus" / "tegrastats"


@pytest.fixture(scope="session")
def captured_lines() -> list[str]:
    """Every line that a board printed; not the damaged ones, nor the invented."""
    captures = sorted((TESTS / "captures").glob("*.txt"))
    assert captures
    return [
        line
        for capture in captures
        if not capture.name.startswith("various__")
        for line in capture.read_text(encoding="utf-8").splitlines()
    ]


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of the corpus; tests that want it are skipped where it is absent."""
    if not CORPUS.is_dir():
        pytest.skip("no ../shared/corpus/tegrastats beside this checkout")
    return CORPUS
