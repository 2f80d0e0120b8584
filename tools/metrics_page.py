"""Write what is generated from tables: docs/metrics.md and openapi.json, by ``make docs``."""

import json
from pathlib import Path

from tegrascope.daemon.export.metrics import METRICS
from tegrascope.daemon.web.status_page import STATIC

from .openapi import openapi

PAGE = Path(__file__).parents[1] / "docs/metrics.md"
_HEAD = "| name | type | meaning |\n|---|---|---|\n"


def render(page: str) -> str:
    """Return the page with its table of metrics made anew.

    Args:
        page: Text of the page; its table ends at the first empty line.
    """
    before, _, rest = page.partition(_HEAD)
    after = rest.partition("\n\n")[2]
    rows = "".join(f"| `{row.name}` | {row.kind} | {row.help} |\n" for row in METRICS)
    return f"{before}{_HEAD}{rows}\n{after}"


if __name__ == "__main__":
    (STATIC / "openapi.json").write_text(f"{json.dumps(openapi())}\n", encoding="utf-8")
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
