"""Write docs/on-a-board.md from the beliefs; first take over rows that were added to the page."""

import re
from pathlib import Path

from tegrascope.daemon.prove.belief import beliefs
from tegrascope.daemon.prove.report import beliefs_page

ROOT = Path(__file__).parents[1]
PAGE, DATA = ROOT / "docs/on-a-board.md", ROOT / "daemon/prove/beliefs.toml"


def stanzas(page: str) -> str:
    """Return the rows of a page that are not beliefs yet, as stanzas of the data."""
    known, made = {one.belief for one in beliefs().values()}, ""
    for row in re.findall(r"^\| (.*) \|$", page, re.MULTILINE)[1:]:
        cells = [cell.replace(r"\|", "|") for cell in re.split(r"(?<!\\) \| ", row)]
        if cells[0] not in known:
            name = "_".join(re.findall(r"[a-z0-9]+", cells[0].lower())[:6])
            fields = zip(("belief", "reason", "command"), cells, strict=True)
            made += f"\n[{name}]\n" + "".join(f"{key} = '''{text}'''\n" for key, text in fields)
    return made


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    with DATA.open("a", encoding="utf-8") as data:
        data.write(stanzas(text))
    beliefs.cache_clear()
    PAGE.write_text(beliefs_page(text), encoding="utf-8")
