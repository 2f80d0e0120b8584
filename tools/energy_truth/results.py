"""The stored answers of all tools, from which the page is made."""

import json
from pathlib import Path

from .meters import METERS
from .scoring import Answer

FILE = Path(__file__).with_name("results.json")
Results = dict[str, dict[str, Answer]]
"""Answers by tool and by world."""


def read_results() -> Results:
    """Return the stored answers; none before the first score."""
    if not FILE.exists():
        return {}
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        tool: {world: Answer(**answer) for world, answer in answers.items()}
        for tool, answers in content.items()
    }


def write_results(results: Results) -> None:
    """Store the answers, in the order of the tools and one world per line."""
    order = [meter.name for meter in METERS if meter.name in results]
    parts = []
    for tool in order:
        rows = [
            f"  {json.dumps(world)}: {json.dumps(answer.to_json(), ensure_ascii=False)}"
            for world, answer in sorted(results[tool].items())
        ]
        parts.append(f" {json.dumps(tool)}: {{\n" + ",\n".join(rows) + "\n }")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
