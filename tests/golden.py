"""Rewrites the reviewed records: ``make golden``, and a person reads the diff.

A capture ``tests/captures/<board>__<l4t>.txt`` holds lines as a board printed them, and the file
beside it that ends in ``.jsonl`` the record of each, one a line, defaults left out. What an engine
says of its layers is in ``tests/placements``, told there. What ``inspect`` finds of four families
of models is in ``tests/inspect/goldens``; ``python -m tests.golden inspect`` writes that alone.
"""

import json
import sys
import tempfile
from pathlib import Path

import msgspec

from tegrascope import parse_line
from tegrascope.parsers.inference.placement import layer_types, placement_of

CAPTURES = Path(__file__).parent / "captures"
PLACEMENTS = Path(__file__).parent / "placements"


def main() -> None:
    """Write all that is reviewed as it is read today."""
    if sys.argv[1:] != ["inspect"]:
        write_captures()
    write_inspections()


def write_captures() -> None:
    """Write the record of every captured line, and of every build."""
    for capture in sorted(CAPTURES.glob("*.txt")):
        lines = capture.read_text(encoding="utf-8").splitlines()
        records = [record_of(line) for line in lines]
        golden = capture.with_suffix(".jsonl")
        golden.write_text("".join(f"{record}\n" for record in records), encoding="utf-8")
        print(f"{golden.name}: {len(records)} records")
    for golden in sorted(PLACEMENTS.glob("*.expected.json")):
        device = json.loads(golden.read_text(encoding="utf-8"))["device"]
        text = json.dumps(read_placement(golden, device), indent=1)
        golden.write_text(f"{text}\n", encoding="utf-8")
        print(f"{golden.name}: written")


def record_of(line: str) -> str:
    """Return the record of a line as JSON, without defaults."""
    return msgspec.json.encode(without_defaults(parse_line(line))).decode()


def without_defaults(value: object) -> object:
    """Return a value; its records become mappings of the fields that differ from their default."""
    if isinstance(value, msgspec.Struct):
        shown = {}
        for field in msgspec.structs.fields(value):
            factory, own = field.default_factory, getattr(value, field.name)
            if own != (field.default if factory is msgspec.NODEFAULT else factory()):
                shown[field.name] = without_defaults(own)
        return shown
    if isinstance(value, tuple):
        return tuple(map(without_defaults, value))
    if isinstance(value, dict):
        return {key: without_defaults(one) for key, one in value.items()}
    return value


def write_inspections() -> None:
    """Write what is found of the four families; their models are generated for it."""
    from tegrascope.collectors.models.onnx_graph import read_graph
    from tests.fakes.generated_models import ensure
    from tests.inspect.conftest import FAMILIES
    from tests.inspect.reports import GOLDENS, golden_of, report_of

    GOLDENS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for name, side in FAMILIES.items():
            path = ensure(name, Path(place))
            graph = read_graph(path, {"image": (1, 3, side, side)})
            golden = golden_of(name)
            golden.write_text(report_of(name, graph), encoding="utf-8")
            print(f"{golden.name}: written")


def read_placement(golden: Path, device: str) -> dict[str, object]:
    """Read the build log and the inspector's text beside a reviewed placement."""
    stem = golden.name.removesuffix(".expected.json")
    log, inspector = (golden.with_name(stem + end) for end in (".log", ".inspector.json"))
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    text = inspector.read_text(encoding="utf-8") if inspector.exists() else None
    return {
        "device": device,
        "placement": placement_of(lines, text, device).model_dump(mode="json"),
        "layer_types": layer_types(text),
    }


if __name__ == "__main__":
    main()
