"""The four families read as they did when someone last looked: ``make golden``."""

import pytest

from tests.inspect.conftest import FAMILIES
from tests.inspect.reports import GOLDENS, golden_of, report_of


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_reads_as_reviewed(graphs, name):
    """Every node's place, every rule that it breaks, and every cost."""
    assert report_of(name, graphs[name]) == golden_of(name).read_text(encoding="utf-8")


def test_no_report_is_left_over():
    """A golden file that nothing is held against would promise nothing."""
    wanted = {golden_of(name).name for name in FAMILIES}
    assert {path.name for path in GOLDENS.iterdir()} == wanted
