"""The page of the doctor lists the checks that there are."""

import re
from pathlib import Path

from tegrascope.workbench.commands.doctor import GROUPS

ROOT = Path(__file__).parents[2]


def test_page_has_every_check_in_its_group():
    sources = (ROOT / "workbench/doctor").glob("*.py")
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = set(re.findall(r'(?:Check|RootSocket)\(\s*"(\w+)"', code))
    text = (ROOT / "docs/doctor.md").read_text(encoding="utf-8")
    table = text.partition("## Checks")[2].partition("\n\n**")[0]
    rows = re.findall(r"^\| (\w*) ?\| `(\w+)` \|", table, re.MULTILINE)
    assert {check for _, check in rows} == named
    assert [group for group, _ in rows if group] == [name for name, _, _ in GROUPS]
