"""Write docs/schemas, a JSON schema of each JSON output of a command, by ``make docs``."""

import json
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
from tegrascope.workbench.compare.report import Comparison
from tegrascope.workbench.inspect.rules import Inspection
from tegrascope.workbench.prove.report import Proof
from tegrascope.workbench.results.records import BenchResult

FOLDER = Path(__file__).parents[1] / "docs/schemas"
_HEAD = """\
# Schemas of the JSON outputs

`make docs` writes this folder from the models of the program. Each file is a JSON Schema (draft
2020-12). A key that is not required can be absent. New keys can come in any release, so a reader
ignores a key that it does not know. [For programs and assistants](../agents.md) says how to use
the commands.

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
    "prove": Output("prove --json", "one object", Proof.model_json_schema),
    "run": Output(
        "runs show --json", "one object, as `exec --json FILE` writes", RunReport.model_json_schema
    ),
    "runs-list": Output("runs list --json", "one object", RunList.model_json_schema),
    "top": Output("top --json", "one object", Screen.model_json_schema),
}


def render() -> dict[str, str]:
    """Return the text of each file by its name."""
    files = {}
    index = _HEAD
    for name, output in OUTPUTS.items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **output.schema()}
        files[f"{name}.json"] = json.dumps(_opened(schema), indent=1, ensure_ascii=False) + "\n"
        index += f"| `{output.command}` | {output.prints} | [{name}.json]({name}.json) |\n"
    return {"README.md": index, **files}


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
    FOLDER.mkdir(exist_ok=True)
    for name, text in render().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
