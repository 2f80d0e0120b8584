"""Write what is generated from tables, by ``make docs``.

They are docs/metrics.md, docs/compatibility.md and openapi.json.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tegrascope.daemon.export.compatibility import TOOLS
from tegrascope.daemon.export.metrics import METRICS
from tegrascope.daemon.web.status_page import STATIC
from tegrascope.parsers.signals import Family

from .openapi import openapi

_DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    _DOCS / "metrics.md": METRICS,
    _DOCS / "compatibility.md": tuple(row for rows in TOOLS.values() for row in rows),
}
_HEAD = "| name | type | meaning |\n|---|---|---|\n"


def render(page: str, metrics: Iterable[Family] = METRICS) -> str:
    """Return the page with its table of metrics made anew.

    Args:
        page: Text of the page; its table ends at the first empty line.
        metrics: Those of the table.
    """
    before, _, rest = page.partition(_HEAD)
    after = rest.partition("\n\n")[2]
    rows = "".join(f"| `{row.name}` | {row.kind} | {row.help} |\n" for row in metrics)
    return f"{before}{_HEAD}{rows}\n{after}"


if __name__ == "__main__":
    (STATIC / "openapi.json").write_text(f"{json.dumps(openapi())}\n", encoding="utf-8")
    for page, metrics in PAGES.items():
        page.write_text(render(page.read_text(encoding="utf-8"), metrics), encoding="utf-8")
