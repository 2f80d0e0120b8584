"""The blocks of code on the pages, and what is written behind the language of each."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "llms.txt"])


class Block(NamedTuple):
    """A block of code, also of one inside a list.

    Attributes:
        language: ``sh``: commands; ``console``: commands behind ``$`` and what they print; …
        mark: The rest of the line, as ``board`` for commands that need one.
        line: Number of its first line on the page.
    """

    language: str
    mark: str
    line: int
    text: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of a page in some languages."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r"^( *)```(\w+) *(.*)\n((?:.*\n)*?)\1```$", text, re.MULTILINE):
        if match[2] in languages:
            line = text.count("\n", 0, match.start()) + 2
            found.append(Block(match[2], match[3], line, textwrap.dedent(match[4])))
    return found


def own_commands(block: Block) -> list[list[str]]:
    """Return the words after ``tegrascope`` of each command of a block."""
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        # Words of other programs, and what a shell does with the output.
        words = re.match(r"\s*(?:\$ )?(?:sudo (?:-u \S+ )?)?(?:\S*/)?tegrascope\s+([^|>&;]*)", line)
        if words:
            found.append(shlex.split(words[1], comments=True))
    return found


def sessions(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console, and the lines that it prints."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *printed = part.strip("\n").splitlines()
        yield command, printed
