"""What the pages say is what the program does."""

import re
from pathlib import Path

import pytest

from tegrascope.daemon.settings.config import Config, Workload
from tegrascope.daemon.settings.file import parse_config
from tools import metrics_page

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def yaml_blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "docs/configuration.md", "docs/alerts.md"])
def test_yaml_examples_are_good(page):
    """Every configuration that a page shows can be copied and run."""
    blocks = yaml_blocks(page)
    assert blocks
    for block in blocks:
        assert parse_config(block, Path(page)).workloads


def test_every_setting_is_documented():
    """The reference page has every key, so that nobody has to read the source."""
    (block,) = yaml_blocks("docs/configuration.md")
    shown = set(re.findall(r"^[ -]*(\w+):", block, re.MULTILINE))
    shown |= set(re.findall(r"`(\w+):", block))
    for section in (Config, Workload, *(type(value) for _, value in Config())):
        for name in getattr(section, "model_fields", {}):
            assert name in shown, name


def test_metrics_page_is_what_make_docs_writes():
    text = metrics_page.PAGE.read_text(encoding="utf-8")
    assert text == metrics_page.render(text), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """No page points at a file that is not there."""
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_changelog_and_version_agree():
    """The page of changes has an open section for what is not released."""
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
