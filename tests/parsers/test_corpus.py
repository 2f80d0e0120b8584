"""The collected lines and logs, where they stand beside the checkout."""

import json
import re
from collections import Counter

import pytest

from tegrascope.parsers.errors import ParseError
from tegrascope.parsers.tegrastats import parse_line

USABLE = {"log", "doc", "test-fixture"}
# An ancestor of the format, from before tegrastats was a program of its own.
ANCESTOR = "ts-0194"


def told(lines):
    """Count how lines read: ``records``, each reason of refusal, and words left over."""
    count = Counter()
    for line in lines:
        count["lines"] += 1
        try:
            sample = parse_line(line)
        except ParseError as error:
            count[error.reason] += 1
        else:
            count["records"] += 1
            count["unparsed"] += len(sample.unparsed)
    return count


@pytest.fixture(scope="module")
def entries(corpus):
    """The single lines, with what is known of each."""
    with (corpus / "lines.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_usable_lines_read_whole(entries):
    """Each line that a board printed is read to its last word."""
    for entry in entries:
        if entry["kind"] in USABLE and entry["id"] != ANCESTOR:
            assert parse_line(entry["line"]).unparsed == (), entry["id"]


def test_noise_is_noise(entries):
    """What stood between the records is no record; everything else is one."""
    for entry in entries:
        if entry["kind"] == "noise":
            with pytest.raises(ParseError, match="noise"):
                parse_line(entry["line"])
        else:
            assert parse_line(entry["line"]), entry["id"]


def test_logs_read_whole(corpus):
    """Of each log every record is read, to its last word, and nothing else is taken for one."""
    promised = dict(
        re.findall(
            r"^\| (\S+\.log) \|.*?\| \d+ / (\d+) \|", (corpus / "logs/SOURCES.md").read_text(), re.M
        )
    )
    logs = sorted((corpus / "logs").rglob("*.log"))
    assert len(logs) == 24
    for log in logs:
        text = log.read_text(encoding="utf-8", errors="replace")
        lines = re.split(r"\r?\n", text.removesuffix("\n"))
        count = told(lines)
        holding = sum(bool(re.search(r"\bRAM \d+/\d+MB", line)) for line in lines)
        assert count["records"] == holding == int(promised.get(log.name, holding)), log.name
        assert count["lines"] == holding + count["noise"] + count["empty"]
        assert count["unparsed"] == 0
