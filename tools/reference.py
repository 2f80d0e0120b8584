"""Record how the product behaves, and compare a later version with the record.

``python tools/reference.py record DIR`` writes inputs and outputs, ``compare DIR`` repeats them.
Almost all of it goes through commands and HTTP, so that moved modules do not matter.
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import tegrascope
from tegrascope.tests.reference.comparison import (
    WORDS,
    Output,
    differences,
    families,
    schema,
    shown,
    table,
)
from tegrascope.tests.reference.scenarios import reports

ROOT = Path(tegrascope.__file__).resolve().parent
Part = Callable[[Path], dict[str, Output]]


def command(*arguments: object, cwd: Path, stdin: str | None = None) -> Any:
    """Run a command of the product; return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "tegrascope", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )


def first_lines(count: int, *arguments: object, cwd: Path) -> list[str]:
    """Return the first lines that a command prints which does not end by itself."""
    argv = [sys.executable, "-m", "tegrascope", *map(str, arguments)]
    with subprocess.Popen(argv, cwd=cwd, stdout=subprocess.PIPE, text=True) as process:
        lines = [line.rstrip("\n") for line in islice(process.stdout or (), count)]
        process.terminate()
    return lines


@contextmanager
def serving(argv: Sequence[object], cwd: Path, **environment: str) -> Iterator[str]:
    """Run a server for a while; yield its address."""
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, *map(str, argv)],
            cwd=cwd,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )

        def printed() -> str:
            assert process.poll() is None, Path(log.name).read_text()
            return Path(log.name).read_text()

        try:
            yield until(lambda: re.search(r"http://[^/\s]+", printed()))[0]
        finally:
            process.terminate()
            process.wait(30)


def fetch(path: str, **headers: str) -> str:
    """Return a page."""
    request = urllib.request.Request(path, headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


def until(question: Callable[[], Any], seconds: float = 120) -> Any:
    """Return the first true answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError):
            if answer := question():
                return answer
        time.sleep(0.2)
    raise RuntimeError(f"no answer within {seconds:.0f} s")


def part_parse(place: Path) -> dict[str, Output]:
    """Parse each log, all captures, standard input and a gzip file."""
    found: dict[str, Output] = {}
    logs = [*sorted(place.glob("inputs/logs/*")), *sorted(place.glob("inputs/captures/*.txt"))]
    for log in logs:
        for kind in ("jsonl", "csv"):
            if kind == "csv" and log.parent.name == "captures":
                continue
            done = command("parse", "-f", kind, log.name, cwd=log.parent)
            found[f"{log.name} {kind}"] = shown(done, kind)
    captures = [log.name for log in logs if log.parent.name == "captures"]
    inputs = place / "inputs/captures"
    found["captures csv"] = shown(command("parse", "-f", "csv", *captures, cwd=inputs), "csv")
    text = "".join((inputs / name).read_text(encoding="utf-8") for name in captures)
    done = command("parse", "--keep-lines", "-", cwd=place, stdin=text + "Killed\nRAM 1/\n")
    found["standard input"] = shown(done, "jsonl")
    with tempfile.TemporaryDirectory() as directory:
        packed = Path(directory, "all.log.gz")
        packed.write_bytes(gzip.compress(text.encode()))
        found["gzip"] = shown(command("parse", "-f", "csv", packed.name, cwd=packed.parent), "csv")
        argv = ["parse", "-f", "parquet", packed.name, "-o", "all.parquet"]
        command(*argv, cwd=packed.parent)
        written = packed.with_name("all.parquet")
        found["parquet"] = table(import_module("pandas").read_parquet(written))
    for log in logs:
        found[f"{log.name} read_log"] = table(tegrascope.frames.read_log(log), log.name)
    return found


def part_correlate(place: Path) -> dict[str, Output]:
    """Pair given runs with recorded logs."""
    found: dict[str, Output] = {}
    for runs in sorted(place.glob("inputs/runs/*.csv")):
        log = f"../logs/{runs.stem}.log"
        argv = ["correlate", "--telemetry", log, "--runs", runs.name]
        found[runs.stem] = shown(command(*argv, "-f", "jsonl", cwd=runs.parent), "runs")
    with_zone = [*argv, "--timezone", "Europe/Berlin", "--interval", "0.5", "-f", "csv"]
    found["csv"] = shown(command(*with_zone, cwd=runs.parent), "csv head")
    return found


def part_metrics(place: Path) -> dict[str, Output]:
    """Look at the metrics of the demo, of an NVIDIA GPU, of a fleet, and of replayed logs."""
    found: dict[str, Output] = {}
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        run = ("-m", "tegrascope", "run", "--listen", "127.0.0.1:0", "--state-dir")
        with serving([*run, here / "demo", "--demo"], here) as url:
            until(lambda: json.loads(fetch(f"{url}/api/v1/runs"))["runs"])
            found["demo"] = families(fetch(f"{url}/metrics"))
            openmetrics = fetch(f"{url}/metrics", Accept="application/openmetrics-text")
            found["demo openmetrics"] = sorted(re.findall(r"^# TYPE (.*)$", openmetrics, re.M))
            for path in ("runs", "samples?since=5s", "status", "series", "summaries"):
                with suppress(urllib.error.HTTPError):
                    found[f"demo {path}"] = schema(json.loads(fetch(f"{url}/api/v1/{path}")))
        (here / "nvml.yaml").write_text("telemetry: {source: nvml, interval: 103ms}\n")
        fake = {
            "PYTHONPATH": str(place / "inputs/fakes"),
            "FAKE_NVML": json.dumps({"events": ([0] * 7 + [0x48] * 3) * 2000}),
        }
        with serving([*run, here / "nvml", "-c", here / "nvml.yaml"], here, **fake) as url:
            until(lambda: "tegra_throttle_events_total{" in fetch(f"{url}/metrics"))
            time.sleep(2)
            found["nvml"] = families(fetch(f"{url}/metrics"))
        fleet = ["-m", "tools.fleet", "--size", "3", "--listen", "127.0.0.1:0"]
        with serving(fleet, ROOT) as url:
            pages = until(lambda: _targets(url) or None)
            found["fleet"] = [families(page) for page in pages]
        for log in sorted(place.glob("inputs/captures/*.txt")):
            if log.stem in _REPLAYED:
                found[f"replay {log.name}"] = _replay([*run, here / log.stem], here, log)
    return found


_REPLAYED = ("agx-orin-64gb__r36.4.4", "agx-thor__r39.2.0", "nano-4gb__r32", "tx2__r32")


def _targets(url: str) -> list[str]:
    """Return the pages of all three devices, once there are that many."""
    listed = json.loads(fetch(f"{url}/sd"))
    paths = sorted(one["labels"]["__metrics_path__"] for one in listed)
    return [fetch(url + path) for path in paths] if len(paths) == 3 else []


def _replay(run: Sequence[object], here: Path, log: Path) -> Output:
    """Return the gauges of the board after the last line of a log."""
    config = here / f"{log.stem}.yaml"
    config.write_text(f"telemetry: {{source: replay, replay: {{path: '{log}', speed: max}}}}\n")
    with serving([*run, "-c", config], here) as url:
        pages = [""]

        def has_ended() -> str:
            pages.append(fetch(f"{url}/metrics"))
            samples = re.search(r"^tegrascope_samples_total.* (\S+)$", pages[-1], re.MULTILINE)
            same = _gauges(pages[-1]) == _gauges(pages[-2])
            return pages[-1] if samples and float(samples[1]) and same else ""

        return _gauges(until(has_ended))


def _gauges(page: str) -> dict[str, float]:
    gauges = set(re.findall(r"^# TYPE (tegra_\w+) gauge", page, re.MULTILINE))
    points = re.findall(r"^((\w+)(?:\{.*\})?) (\S+)", page, re.MULTILINE)
    return {series: float(value) for series, name, value in points if name in gauges}


def part_advise(place: Path) -> dict[str, Output]:
    """Advise on fixed results."""
    found = {}
    for results, rates, *options in (
        ("both", "yolo=30,seg=10"),
        ("both", "yolo=30,seg=10", "--minimise", "gpu"),
        ("both", "yolo=150,seg=60"),
        ("both", "yolo=30,seg=10", "--deadlines", "yolo=8ms,seg=0.2s", "--margin", "20"),
        ("contended", "yolo=30,seg=10"),
        ("contended", "yolo=30,seg=10", "--minimise", "gpu"),
        ("bare", "bare=20", "--minimise", "gpu"),
        ("bare", "bare=20"),
        ("simulated", "yolo=30"),
        ("both elsewhere", "yolo=30,seg=10"),
        ("both", "other=30"),
    ):
        argv = ["advise", *results.split(), "--rates", rates, *options, "--json"]
        done = command(*argv, cwd=place / "inputs/results")
        found[" ".join(map(str, argv[1:-1]))] = shown(done, "json")
    return found


def part_inspect(place: Path) -> dict[str, Output]:
    """Inspect each model, in one process: starting one for each takes minutes."""
    models = place / "inputs/models"
    jobs = []
    for path in sorted(models.glob("*.onnx")):
        if path.name.startswith("family-"):
            side = 640 if "yolo" in path.name else 224
            shape = ["--shape", f"image:1x3x{side}x{side}"]
            for release, precision in (("8.6", "int8"), ("10.3", "fp16")):
                jobs.append([path.name, *shape, "--tensorrt", release, "--precision", precision])
        elif path.stem.endswith("-breaks"):
            case = json.loads((models / f"{path.stem.removesuffix('-breaks')}.json").read_text())
            built_for = ["--precision", case["precision"]] if case["precision"] else []
            jobs.append([path.name, *built_for, "--tensorrt", case["line"] or "10.3"])
    program = """
import contextlib, io, json, sys
from tegrascope.workbench.cli import main
for job in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as held:
        try:
            status = main(["inspect", "--json", *job])
        except SystemExit as error:
            status = error.code
    print(json.dumps([status, held.getvalue()]))
"""
    argv = [sys.executable, "-c", program]
    done = subprocess.run(
        argv, cwd=models, input=json.dumps(jobs), capture_output=True, text=True, check=True
    )
    found = {}
    for job, line in zip(jobs, done.stdout.splitlines(), strict=True):
        status, text = json.loads(line)
        found[" ".join(job)] = {"status": status, "json": json.loads(text) if text else None}
    return found


def part_config(place: Path) -> dict[str, Output]:
    """Check every documented configuration; of an error only its line is compared."""
    found = {}
    for path in sorted(place.glob("inputs/configurations/*.yaml")):
        done = command("check-config", path.name, cwd=path.parent)
        lines = sorted(set(re.findall(rf"{re.escape(path.name)}:(\d+)", done.stderr + done.stdout)))
        notes = done.stdout.count("note: ")
        found[path.name] = {"status": done.returncode, "lines": lines, "notes": notes}
    return found


def part_live(_: Path) -> dict[str, Output]:
    """Run what depends on the time of day; compare keys, types and flags."""
    found: dict[str, Output] = {}
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        short = ["--simulate", "--duration", "1", "--baseline", "0.5", "--rounds", "2"]
        state = ["--state-dir", "state", "--warm-up", "0.1"]
        for name, options in {
            "one": ["builtin:mobilenet", "--on", "gpu,dla0"],
            "two": ["builtin:mobilenet", "builtin:resnet50", "--contention", "--on", "gpu"],
        }.items():
            done = command("bench", *options, *short, *state, "-o", name, cwd=here)
            result = json.loads((here / name / "result.json").read_text(encoding="utf-8"))
            found[f"bench {name}"] = {
                "status": done.returncode,
                "schema": schema(result),
                "is_simulated": result["is_simulated"],
                "files": sorted(path.name for path in (here / name).iterdir()),
            }
        argv = ["exec", "--workload", "w", "--inferences", "300", "--telemetry", "simulator"]
        program = ["--json", "run.json", "--baseline", "1", "--", "sleep", "3"]
        done = command(*argv, *program, cwd=here)
        run = json.loads((here / "run.json").read_text(encoding="utf-8"))
        found["exec"] = {"status": done.returncode, "schema": schema(run)}
        found["exec"]["simulated"] = "simulated" in run["quality"]
        doctor = command("doctor", "--json", "--state-dir", "state", cwd=here)
        found["doctor"] = schema(json.loads(doctor.stdout))
        for board in ("agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb"):
            argv = ["simulate", "--board", board, "--interval", "20", "--seed", "7"]
            for option in ([], ["--unprivileged"]):
                lines = first_lines(8, *argv, *option, cwd=here)
                words = [re.sub(r"[\d.]+", "0", line) for line in lines]
                found[f"simulate {board} {option}"] = words
    return found


PARTS: dict[str, Part] = {
    "reports": lambda _: reports(),
    "config": part_config,
    "advise": part_advise,
    "correlate": part_correlate,
    "parse": part_parse,
    "inspect": part_inspect,
    "metrics": part_metrics,
    "live": part_live,
}


def main() -> int:
    """Record or compare; return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--corpus", type=Path, help="recorded logs; with record")
    parser.add_argument("--only", action="append", choices=PARTS, help="may be given again")
    parser.add_argument("--most", type=int, default=10, help="differences shown of a part")
    parser.add_argument("--words", action="store_true", help="show reworded sentences, too")
    arguments = parser.parse_args()
    place: Path = arguments.directory.resolve()
    place.mkdir(parents=True, exist_ok=True)
    if arguments.action == "record" and not (place / "inputs").exists():
        inputs = import_module("tegrascope.tests.reference.inputs")
        inputs.make_inputs(place / "inputs", arguments.corpus)
    differs = False
    for name in arguments.only or PARTS:
        begin = time.monotonic()
        now = json.loads(json.dumps(PARTS[name](place)))
        path = place / f"{name}.json.gz"
        words = f"{len(now)} recorded"
        if arguments.action == "record":
            path.write_bytes(gzip.compress(json.dumps(now).encode(), mtime=0))
        else:
            found = list(differences(json.loads(gzip.decompress(path.read_bytes())), now))
            real = [one for one in found if WORDS not in one]
            differs = differs or bool(real)
            words = f"{len(real)} differences" if real else f"{len(now)} the same"
            words += f", {len(found) - len(real)} sentences reworded"
            for one in (found if arguments.words else real)[: arguments.most]:
                print(f"  {name}{one}")
        print(f"{name}: {words} ({time.monotonic() - begin:.0f} s)", flush=True)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
