"""Run reports of recorded events and lines under a fixed clock are what they were.

After a change that is meant to change them: ``python -m tests.test_reference``.
"""

import json
from pathlib import Path

from tools.reference import differences, part_reports

RECORDED = Path(__file__).with_name("reference.json")


def test_run_reports_are_as_recorded():
    was = json.loads(RECORDED.read_text(encoding="utf-8"))
    now = json.loads(json.dumps(part_reports(Path())))
    assert list(differences(was, now, within=1e-9)) == []


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(part_reports(Path()), indent=0) + "\n", encoding="utf-8")
