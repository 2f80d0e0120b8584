"""Write docs/on-a-board.md from the beliefs in workbench/prove/beliefs.toml."""

from pathlib import Path

from tegrascope.workbench.prove.report import beliefs_page

PAGE = Path(__file__).parents[1] / "docs/on-a-board.md"

if __name__ == "__main__":
    PAGE.write_text(beliefs_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
