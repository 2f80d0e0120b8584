"""docs/fields.md has an entry for all that a line can contain, and what names an entry finds it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tegrascope import parse_line
from tegrascope.collectors.board.boards import rail_rules
from tegrascope.parsers.errors import ParseError
from tegrascope.parsers.tegrastats import board, line, processors, tokens
from tests.pages import ROOT

PAGE = ROOT / "docs/fields.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMES = set(re.findall(r"`(\w+)", TEXT)) | set(re.findall(r"^#+ (\w+)$", TEXT, re.MULTILINE))
PRODUCT = ("parsers", "collectors", "daemon", "workbench")
ENTRIES = {
    board.TimeToken: "time",
    board.RamToken: "ram",
    board.SwapToken: "swap",
    board.IramToken: "iram",
    processors.CoresToken: "cpu",
    processors.EmcToken: "emc_freq",
    processors.GpuToken: "gr3d_freq",
    processors.SecondClusterToken: "gr3d2_freq",
    processors.EngineToken: "engines",
    processors.MtsToken: "mts",
    processors.EdpToken: "edp",
    board.ZoneToken: "temperatures",
    board.RailToken: "rails",
    tokens.UnknownToken: "words-that-are-not-understood",
}


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found


def recorded_names() -> Iterator[str]:
    """Yield each engine, DLA core, zone and rail of the recorded lines of boards."""
    for path in sorted((ROOT / "tests/captures").glob("*.txt")):
        if path.name.startswith(("various__", "tegra-x1-console__")):
            continue  # Damaged, written by hand, or of a device that is not a Jetson.
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                sample = parse_line(text)
            except ParseError:
                continue
            yield from sample.engines
            yield from sample.temperatures_celsius
            yield from sample.rails
            yield from (f"NVDLA{core.core}" for core in sample.dla)


def product_links() -> Iterator[tuple[str, str]]:
    """Yield page and anchor of each ``docs/….md#…`` in the product."""
    for room in PRODUCT:
        for path in (ROOT / room).rglob("*"):
            if path.suffix in (".py", ".js", ".html"):
                text = path.read_text(encoding="utf-8")
                yield from re.findall(r"(docs/[\w/-]+\.md)#([\w-]+)", text)


def test_every_kind_of_token_has_an_entry():
    assert set(ENTRIES) == set(line.KINDS)
    assert set(ENTRIES.values()) <= anchors(PAGE)


@pytest.mark.parametrize("kind", line.KINDS, ids=lambda kind: kind.__name__)
def test_every_label_of_a_token_is_named(kind):
    assert kind.LABELS <= NAMES


def test_every_engine_with_several_names_has_all_of_them():
    known = processors.EngineToken.CANONICAL
    assert {*known, *known.values(), *processors.MtsToken.ENGINES} <= NAMES


def test_every_name_of_a_recorded_line_is_explained():
    names = set(recorded_names())
    assert {"NVDLA1", "soc012", "VDD_GPU_SOC"} <= names
    assert names <= NAMES


def test_every_rail_of_a_rule_counts_on_the_page_as_in_the_rule():
    rows = set(re.findall(r"^\| ([^|]+) \| `(\w+)` \| [^|]+ \| ([^|]+) \|$", TEXT, re.MULTILINE))
    expected = set()
    for rule in rail_rules():
        expected |= {(rule.name, rail, "total") for rail in rule.total}
        expected |= {(rule.name, rail, reason) for rail, reason in rule.excluded.items()}
    assert rows == expected


def test_every_metric_of_the_page_exists():
    table = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    for metric in re.findall(r"`(tegra_\w+)", TEXT):
        assert f"| `{metric}` |" in table, metric


def test_every_link_to_a_heading_finds_it():
    """Those of the page, and those that doctor and the status page print."""
    links = {("docs/fields.md", anchor) for anchor in re.findall(r"\]\(#([\w-]+)\)", TEXT)}
    links |= {(f"docs/{page}", name) for page, name in re.findall(r"\]\((\w+\.md)#([\w-]+)", TEXT)}
    printed = set(product_links())
    assert ("docs/fields.md", "rails") in printed
    for page, anchor in links | printed:
        assert anchor in anchors(ROOT / page), f"{page}#{anchor}"


def test_status_page_names_only_entries_that_exist():
    text = (ROOT / "daemon/web/page/index.html").read_text(encoding="utf-8")
    (named,) = re.findall(r"docs/fields\.md in the repository\s+\(([^)]+)\)", text)
    assert {name.lstrip("#") for name in named.split(", ")} <= anchors(PAGE)
