"""The JSON outputs of the commands: their page docs/schemas.md, and a JSON Schema of each.

``make docs`` writes the page. ``make schemas`` writes the schemas into build/schemas, and a release
has them as one archive.
"""

import json
import sys
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Any, NamedTuple

from tegrascope.daemon.commands.check_config import ConfigCheck
from tegrascope.daemon.measure.report import RunReport
from tegrascope.parsers.records import Sample
from tegrascope.workbench.advise.compose import Advice
from tegrascope.workbench.commands.doctor import Examination
from tegrascope.workbench.commands.engines import CachedEngine, EngineBuilds, EngineList
from tegrascope.workbench.commands.runs import RunList
from tegrascope.workbench.commands.top import Screen
from tegrascope.workbench.commands.verify import Verification
from tegrascope.workbench.compare.report import Comparison
from tegrascope.workbench.inspect.rules import Inspection
from tegrascope.workbench.results.records import BenchResult

PAGE = Path(__file__).parents[1] / "docs/schemas.md"
_HEAD = """\
# JSON outputs and their schemas

Each release has `schemas.tar.gz`: a JSON Schema (draft 2020-12) of each JSON output. `make schemas`
writes those of a checkout into `build/schemas`. A key that is not required can be absent. New keys
can come in any release, so a reader ignores a key that it does not know.
[For programs and assistants](agents.md) says how to use the commands.

| command | prints | schema |
|---|---|---|
"""


class Output(NamedTuple):
    """A JSON output: its command line, what it prints, and its schema."""

    command: str
    prints: str
    schema: Callable[[], dict[str, Any]]


def _paired() -> dict[str, Any]:
    """Return the schema of a run in a recorded log: only its name, log and outcome are certain."""
    found = RunReport.model_json_schema()
    found["title"] = "PairedRun"
    found["description"] = "A run in a recorded log, with the other cells of its row."
    found["properties"] |= {name: {"type": "string"} for name in ("name", "log")}
    numbers = {"seconds": {"type": "number"}, "parts": {"type": "integer"}}
    joules = {"anyOf": [{"$ref": "#/$defs/Figure"}, {"type": "null"}]}
    in_flight = {"type": "object", "properties": numbers | {"joules": joules}}
    found["properties"]["in_flight"] = {
        "description": "Time and energy with a request of AIPerf in flight.",
        **in_flight,
    }
    found["properties"]["inferences"] = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    found["required"] = ["name", "log", "outcome"]
    return found


# By the name of the file.
OUTPUTS = {
    "advise": Output("advise --json", "one object", Advice.model_json_schema),
    "bench": Output(
        "bench --json", "one object, as in `result.json`", BenchResult.model_json_schema
    ),
    "check-config": Output("check-config --json", "one object", ConfigCheck.model_json_schema),
    "compare": Output("compare --json", "one object", Comparison.model_json_schema),
    "correlate": Output("correlate -f jsonl", "one object per run", _paired),
    "doctor": Output("doctor --json", "one object", Examination.model_json_schema),
    "engines-build": Output("engines build --json", "one object", EngineBuilds.model_json_schema),
    "engines-list": Output("engines list --json", "one object", EngineList.model_json_schema),
    "engines-show": Output("engines show --json", "one object", CachedEngine.model_json_schema),
    "inspect": Output("inspect --json", "one object", Inspection.model_json_schema),
    "parse": Output("parse -f jsonl", "one object per line", Sample.model_json_schema),
    "run": Output(
        "runs show --json", "one object, as `exec --json FILE` writes", RunReport.model_json_schema
    ),
    "runs-list": Output("runs list --json", "one object", RunList.model_json_schema),
    "top": Output("top --json", "one object", Screen.model_json_schema),
    "verify": Output("verify --json", "one object, in a file", Verification.model_json_schema),
}


def page() -> str:
    """Return the page that lists the outputs."""
    rows = [
        f"| `{output.command}` | {output.prints} | `{name}.json` |\n"
        for name, output in OUTPUTS.items()
    ]
    return _HEAD + "".join(rows)


def schema(name: str) -> dict[str, Any]:
    """Return the schema of an output, by its name in ``OUTPUTS``."""
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **OUTPUTS[name].schema()}
    opened: dict[str, Any] = _opened(whole)
    return opened


def write(folder: Path) -> None:
    """Write a file for each schema into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in OUTPUTS:
        text = json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


def _opened(part: Any) -> Any:
    """Return a schema that accepts new keys, as a reader has to, with docstrings of any Python."""
    if isinstance(part, list):
        return [_opened(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: _opened(one) for key, one in part.items()}
    if found.get("additionalProperties") is False:
        del found["additionalProperties"]
    if isinstance(found.get("description"), str):
        found["description"] = cleandoc(found["description"])
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(Path(sys.argv[1]))
    else:
        PAGE.write_text(page(), encoding="utf-8")
