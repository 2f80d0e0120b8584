"""Run reports of recorded lines and events under a fixed clock are what they were.

After a change that is meant to change them: ``python -m tests.reference.test_reference``.
"""

import json
from pathlib import Path

from .comparison import differences
from .scenarios import reports

RECORDED = Path(__file__).with_name("reports.json")


def test_run_reports_are_as_recorded():
    was = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert list(differences(was, reports(), within=1e-9)) == []


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(reports(), indent=0) + "\n", encoding="utf-8")
