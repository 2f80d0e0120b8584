"""Write the worlds, run tools on them, and write the page: ``python -m tools.energy_truth``."""

import argparse
import csv
import json
import sys
from pathlib import Path

from . import page
from .files import MANIFEST, ManifestError, manifest_text, read_manifest, write_world
from .meters import BY_NAME, METERS
from .results import read_results, write_results
from .running import MissingError, Workshop, run_worlds
from .scoring import Answer
from .worlds import make_world, specs

_FOLDER = Path("build/energy_truth")


def main(argv: list[str] | None = None) -> int:
    """Do what is asked; the exit status is 1 if a world is not the one that was frozen."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.energy_truth",
        description="100 worlds with exact energy, and a scorer for everything that measures it.",
        epilog="example: python -m tools.energy_truth score --tool tegrascope",
    )
    parser.add_argument("--folder", type=Path, default=_FOLDER, help=f"for files ({_FOLDER})")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write", help="write the files of all worlds, and check their sums")
    commands.add_parser("freeze", help="write the manifest: other worlds from now on")
    commands.add_parser("page", help="write docs/energy-truth.md from the stored results")
    score = commands.add_parser("score", help="run tools on worlds, and write results and page")
    score.add_argument("--tool", action="append", choices=tuple(BY_NAME), help="only these")
    score.add_argument("--kind", action="append", choices=("log", "sysfs", "nvml"))
    score.add_argument("--world", action="append", help="only worlds whose name begins so")
    score.add_argument("--together", type=int, default=2, help="worlds at the same time (2)")
    score.add_argument("--dry-run", action="store_true", help="print, and store nothing")
    other = commands.add_parser("answers", help="score a tool of your own on the recorded logs")
    other.add_argument("file", type=Path, help="CSV with the columns world, joules, low, high")
    asked = parser.parse_args(argv)
    try:
        return _run(asked)
    except (ManifestError, MissingError) as error:
        print(error, file=sys.stderr)
        return 1


def _run(asked: argparse.Namespace) -> int:
    match asked.command:
        case "write":
            sums = read_manifest()
            for spec in specs():
                write_world(make_world(spec), asked.folder / "worlds", sums)
            print(
                f"{len(specs())} worlds in {asked.folder / 'worlds'}, as {MANIFEST.name} has them"
            )
        case "freeze":
            MANIFEST.write_text(manifest_text(), encoding="ascii")
        case "page":
            page.write(read_results())
        case "answers":
            print(page.summary({"your tool": _given(asked.file)}))
        case "score":
            _score(asked)
    return 0


def _given(file: Path) -> dict[str, Answer]:
    truths = {spec.name: spec for spec in specs() if spec.kind == "log"}
    found = {}
    with file.open(encoding="utf-8") as table:
        for row in csv.DictReader(table):
            truth = make_world(truths[row["world"]]).truth_joules
            joules, low, high = (_number(row.get(name)) for name in ("joules", "low", "high"))
            found[row["world"]] = Answer(truth, joules, low, high)
    return found


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _score(asked: argparse.Namespace) -> None:
    meters = [BY_NAME[name] for name in asked.tool] if asked.tool else list(METERS)
    chosen = [
        spec
        for spec in specs()
        if (not asked.kind or spec.kind in asked.kind)
        and (not asked.world or spec.name.startswith(tuple(asked.world)))
    ]
    workshop = Workshop(asked.folder)
    workshop.prepare(meters, {spec.kind for spec in chosen})
    found = run_worlds(workshop, chosen, meters, read_manifest(), asked.together)
    print(page.summary(found))
    if asked.dry_run:
        print(json.dumps({t: {w: a.to_json() for w, a in o.items()} for t, o in found.items()}))
        return
    results = read_results()
    for tool, answers in found.items():
        results.setdefault(tool, {}).update(answers)
    write_results(results)
    page.write(results)


if __name__ == "__main__":
    sys.exit(main())
