"""The pages of the rules say what the data says, and their examples are judged as they claim."""

import re
from pathlib import Path

import onnx
import pytest

from tegrascope.daemon.inspect.rules import Rule, all_rules, lines, rules_of

from .made import inspected

DOCS = Path(__file__).parents[2] / "docs/dla"
PAIR = re.compile(
    r"^Before, breaks `(?P<rule>[^`]+)`:\n\n```onnx\n(?P<before>.*?)^```\n\n"
    r"After, on the DLA:\n\n```onnx\n(?P<after>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
HEADER = '<ir_version: 9, opset_import: ["" : 17]>\n'
EXAMPLES = [
    pytest.param(found["rule"], found["before"], found["after"], id=f"{page.stem}-{found['rule']}")
    for page in sorted(DOCS.glob("*.md"))
    for found in PAIR.finditer(page.read_text(encoding="utf-8"))
]


def row(rule: Rule) -> str:
    """Return the line that a page has of a rule."""
    span = "all"
    if rule.since:
        span = f"from {rule.since}"
    if rule.until:
        span = f"before {rule.until}" if span == "all" else f"{rule.since} to before {rule.until}"
    says = rule.requirement + (f" ({', '.join(rule.precisions)})" if rule.precisions else "")
    sure = rule.certainty if rule.outcome == "gpu" else f"{rule.certainty}, open"
    page = rules_of("10.3").pages[rule.page]
    return f"| `{rule.id}` | {says} | {span} | {page} | {sure} |"


def test_pages_have_the_rules_of_the_data():
    """Each rule stands on one page, in the words of the data."""
    told = [
        line
        for page in DOCS.glob("*.md")
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| `[\w-]+\.[\w-]+` \|", line)
    ]
    assert sorted(told) == sorted(row(rule) for rule in all_rules())


def test_the_index_has_every_page():
    """Each family is led to."""
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+\.md)\)", index)) == {
        page.name for page in DOCS.glob("*.md") if page.name != "README.md"
    }


def test_every_family_has_an_example():
    """A page without a before and an after would help nobody."""
    for page in DOCS.glob("*.md"):
        if page.name != "README.md":
            assert PAIR.search(page.read_text(encoding="utf-8")), page.name


@pytest.mark.parametrize(("rule", "before", "after"), EXAMPLES)
def test_examples(rule, before, after, tmp_path):
    """What is under "before" breaks the rule it names, what is under "after" is ready."""
    line = next(
        one.name
        for one in reversed(lines()[:-1])
        if rule in {known.id for known in rules_of(one.name).rules}
    )
    found = inspected(onnx.parser.parse_model(HEADER + before), tmp_path, line=line)
    assert rule in {finding.rule for node in found.nodes for finding in node.findings}
    assert not found.is_ready
    found = inspected(onnx.parser.parse_model(HEADER + after), tmp_path, line=line)
    assert {finding.rule for node in found.nodes for finding in node.findings} == set()
    assert found.is_ready
