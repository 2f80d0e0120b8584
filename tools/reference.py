"""Record how the product behaves, and compare a later version with the record.

``python tools/reference.py record DIR`` writes inputs and outputs, ``compare DIR`` repeats them.
It uses commands and HTTP, so that moved modules do not matter. The few inner names that it needs
are found by name, wherever they are defined (``inner``).
"""

import argparse
import gzip
import hashlib
import io
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import tegrascope

ROOT = Path(tegrascope.__file__).resolve().parent
SECOND = 1_000_000_000

# JSON keys and metrics that were renamed since: old name to new name. Both are accepted.
KEYS = {
    "said": "message",
    "mend": "remedy",
    "able": "ok",
    "stops": "blocking",
    "looked_at": "evaluated",
    "least_bad": "closest_infeasible",
    "shortfalls": "violations",
}
METRICS = {"tegrascope_dla_trace_troubles_total": "tegrascope_dla_trace_errors_total"}
# Inner names: old name to the names that it may have now, the newest first.
INNER = {
    "RunTrace": ("RunTrace",),
    "Timeline": ("Timeline",),
    "EnergyCounters": ("EnergyCounters",),
    "Environment": ("Environment",),
    "Span": ("Span",),
    "correlate": ("measure.correlate:correlate", "daemon.correlate:correlate"),
    "flatten": ("flatten",),
    "find_rail_rule": ("find_rail_rule",),
    "parse_nvml_line": ("parse_nvml_line",),
    "parse_run_event": ("parse_run_event",),
}
WORDS = "(words) "  # marks a difference of prose, which is shown and does not fail
# Label values that differ from run to run or from machine to machine.
_FREE_LABELS = {"version", "run_id", "python", "pid", "instance", "device_id", "hash"}

Output = Any
Part = Callable[[Path], dict[str, Output]]


# --- programs -----------------------------------------------------------------------------------


def command(
    *arguments: object, cwd: Path, stdin: str | None = None, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a command of the product."""
    return subprocess.run(
        [sys.executable, "-m", "tegrascope", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": _python_path()},
    )


def _python_path(*first: Path) -> str:
    # Without the editable installation, ``tegrascope`` is found by the link in .dev.
    return os.pathsep.join([*map(str, first), *filter(None, [os.environ.get("PYTHONPATH")])])


@contextmanager
def serving(argv: Sequence[object], cwd: Path, **environment: str) -> Iterator[str]:
    """Run a server for a while; yield its address."""
    process = subprocess.Popen(
        [sys.executable, *map(str, argv)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            found = re.search(r"http://[^/\s]+", line)
            if found:
                # The pipe is read on, so that the program never waits for it.
                with tempfile.TemporaryFile() as sink:
                    pump = subprocess.Popen(["cat"], stdin=process.stdout, stdout=sink)
                    yield found[0]
                    process.terminate()
                    pump.wait(30)
                return
        raise RuntimeError(f"{argv} did not start:\n{''.join(lines)}")
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def fetch(url: str, **headers: str) -> str:
    """Return a page."""
    request = urllib.request.Request(url, headers=headers)
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


# --- inputs, made once ----------------------------------------------------------------------------


def make_inputs(place: Path, corpus: Path | None) -> None:
    """Copy or make everything that the parts read, so that it stays as it is."""
    inputs = place / "inputs"
    shutil.copytree(ROOT / "tests/captures", inputs / "captures", dirs_exist_ok=True)
    (inputs / "fakes").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "tests/fakes/pynvml.py", inputs / "fakes")
    if corpus is not None:
        for log in sorted(corpus.rglob("*.log")):
            name = str(log.relative_to(corpus)).replace("/", "__")
            (inputs / "logs").mkdir(exist_ok=True)
            shutil.copy(log, inputs / "logs" / name)
        lines = (corpus / "lines.jsonl").read_text(encoding="utf-8").splitlines()
        texts = "".join(json.loads(line)["line"] + "\n" for line in lines)
        (inputs / "logs/lines.txt").write_text(texts, encoding="utf-8")
    _make_configurations(inputs / "configurations")
    _make_runs(inputs)
    _make_results(inputs)
    _make_models(inputs / "models")


def _make_configurations(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))):
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for number, block in enumerate(blocks):
            (place / f"{page.stem}-{number}.yaml").write_text(block, encoding="utf-8")
    for path in (*ROOT.glob("systemd/*.yaml"), *ROOT.glob("daemon/**/demo.yaml")):
        shutil.copy(path, place)
    wrong = {
        "key": "telemetry: {source: tegrastats, speed: 3}\n",
        "value": "workloads:\n- {name: a, model: m, device: cpu}\n- {name: b, device: moon}\n",
        "yaml": "telemetry:\n  source: [\n",
        "short": "workloads:\n- {name: a, model: m, device: gpu, duration: 2s, every: 5m}\n",
        "twice": "workloads:\n- {name: a, model: m}\n- {name: a, model: m}\n",
        "empty": "",
    }
    for name, text in wrong.items():
        (place / f"wrong-{name}.yaml").write_text(text, encoding="utf-8")


def _make_runs(inputs: Path) -> None:
    """Write a table of runs for each log: windows of it, with and without counts."""
    (inputs / "runs").mkdir(exist_ok=True)
    for log in sorted((inputs / "logs").glob("*.log")):
        seconds = float(tegrascope.frames.read_log(log)["elapsed_seconds"].max())
        if seconds < 20:
            continue
        rows = ["name,start,end,inferences,device,batch,note"]
        for number, (begin, end) in enumerate(((0.1, 0.4), (0.35, 0.6), (0.7, 0.95), (0.9, 1.4))):
            count = "" if number == 1 else 400 + 100 * number
            device = ("gpu", "dla0", "cpu", "external")[number]
            rows.append(
                f"w{number},{seconds * begin:.3f},{seconds * end:.3f},{count},{device},"
                f"{number + 1},n{number}"
            )
        rows += ["w0,1,12,300,gpu,1,again", "bad,soon,12,300,gpu,1,x", "neg,12,2,300,gpu,1,x"]
        (inputs / f"runs/{log.stem}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _make_results(inputs: Path) -> None:
    """Write results of benchmarks for advise: made ones, and one of the product."""
    from tegrascope.tests.advise.made import lane, model, result, together

    yolo = model("yolo", lane("gpu", 5.0, 0.1, 0.9), lane("dla0", 12.0, 0.06, 0.02))
    seg = model("seg", lane("gpu", 10.0, 0.24, 0.95), lane("dla0", 40.0, 0.1, 0.03))
    bare = model("bare", lane("gpu", 3.0), lane("dla0", 9.0), sha="cd")
    slow = together(("yolo", "gpu", 1.3), ("seg", "dla0", 1.2), excess=1.5)
    for name, found in {
        "both": result(yolo, seg),
        "contended": result(yolo, seg, contention=(slow,)),
        "bare": result(bare),
        "simulated": result(yolo, is_simulated=True),
        "elsewhere": result(seg, environment={"board": "Orin NX"}),
    }.items():
        (inputs / f"results/{name}").mkdir(parents=True, exist_ok=True)
        path = inputs / f"results/{name}/result.json"
        path.write_text(found.model_dump_json(exclude_none=True), encoding="utf-8")


def _make_models(place: Path) -> None:
    """Write the models of the inspection: the four families, and a pair for each rule."""
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache_dir:
        for name in ("mobilenetv2", "resnet50", "vit-tiny", "yololike"):
            argv = ["inspect", f"builtin:{name}", "--state-dir", cache_dir, "--json"]
            command(*argv, cwd=place)
        for path in Path(cache_dir).rglob("*.onnx"):
            shutil.copy(path, place / f"family-{path.name.split('-')[0]}.onnx")
    import onnx

    from tegrascope.tests.inspect.cases import CASES

    for rule, case in CASES.items():
        for kind in ("breaks", "keeps"):
            onnx.save(getattr(case, kind), str(place / f"rule-{rule}-{kind}.onnx"))
        notes = {"precision": case.precision, "line": case.line}
        (place / f"rule-{rule}.json").write_text(json.dumps(notes), encoding="utf-8")


# --- parts ------------------------------------------------------------------------------------


def part_parse(place: Path) -> dict[str, Output]:
    """Parse each log, all captures, standard input and a gzip file."""
    found: dict[str, Output] = {}
    logs = [*sorted(place.glob("inputs/logs/*")), *sorted(place.glob("inputs/captures/*.txt"))]
    for log in logs:
        for kind in ("jsonl", "csv"):
            if kind == "csv" and log.parent.name == "captures":
                continue
            done = command("parse", "-f", kind, log.name, cwd=log.parent)
            found[f"{log.name} {kind}"] = _shown(done, kind)
    captures = [log.name for log in logs if log.parent.name == "captures"]
    inputs = place / "inputs/captures"
    found["captures csv"] = _shown(command("parse", "-f", "csv", *captures, cwd=inputs), "csv")
    text = "".join((inputs / name).read_text(encoding="utf-8") for name in captures)
    done = command("parse", "--keep-lines", "-", cwd=place, stdin=text + "Killed\nRAM 1/\n")
    found["standard input"] = _shown(done, "jsonl")
    with tempfile.TemporaryDirectory() as directory:
        packed = Path(directory, "all.log.gz")
        packed.write_bytes(gzip.compress(text.encode()))
        found["gzip"] = _shown(command("parse", "-f", "csv", packed.name, cwd=packed.parent), "csv")
        argv = ["parse", "-f", "parquet", packed.name, "-o", "all.parquet"]
        command(*argv, cwd=packed.parent)
        found["parquet"] = _table(_pandas().read_parquet(packed.with_name("all.parquet")))
    for log in logs:
        found[f"{log.name} read_log"] = _table(tegrascope.frames.read_log(log), log.name)
    return found


def part_correlate(place: Path) -> dict[str, Output]:
    """Pair given runs with recorded logs."""
    found: dict[str, Output] = {}
    for runs in sorted(place.glob("inputs/runs/*.csv")):
        log = f"../logs/{runs.stem}.log"
        argv = ["correlate", "--telemetry", log, "--runs", runs.name]
        found[runs.stem] = _shown(command(*argv, "-f", "jsonl", cwd=runs.parent), "runs")
    with_zone = [*argv, "--timezone", "Europe/Berlin", "--interval", "0.5", "-f", "csv"]
    found["csv"] = _shown(command(*with_zone, cwd=runs.parent), "csv head")
    return found


def part_reports(_: Path) -> dict[str, Output]:
    """Pair recorded lines with run events under a fixed clock."""
    return {name: _report(**scenario) for name, scenario in SCENARIOS.items()}


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
            "PYTHONPATH": _python_path(place / "inputs/fakes"),
            "FAKE_NVML": json.dumps({"events": ([0] * 7 + [0x48] * 3) * 2000}),
        }
        with serving([*run, here / "nvml", "-c", here / "nvml.yaml"], here, **fake) as url:
            until(lambda: "tegra_throttle_events_total{" in fetch(f"{url}/metrics"))
            time.sleep(2)
            found["nvml"] = families(fetch(f"{url}/metrics"))
        with serving(_fleet(), ROOT) as url:
            pages = until(lambda: _targets(url) or None)
            found["fleet"] = [families(page) for page in pages]
        for log in sorted(place.glob("inputs/captures/*.txt")):
            if log.stem in _REPLAYED:
                found[f"replay {log.name}"] = _replay([*run, here / log.stem], here, log)
    return found


_REPLAYED = {
    "agx-orin-64gb__r36.4.4",
    "agx-thor__r39.2.0",
    "agx-xavier-32gb__r35",
    "nano-4gb__r32",
    "orin-nx-16gb__r36",
    "tx2__r32",
}


def _fleet() -> list[str]:
    if (ROOT / "tools/fleet").is_dir():
        return ["-m", "tools.fleet", "--size", "3", "--listen", "127.0.0.1:0"]
    return ["-m", "tegrascope", "simulate", "--fleet", "3", "--listen", "127.0.0.1:0"]


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

        page: str = until(has_ended)
    return _gauges(page)


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
        found[" ".join(map(str, argv[1:-1]))] = _shown(done, "json")
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
            chosen = ["--precision", case["precision"]] if case["precision"] else []
            jobs.append([path.name, *chosen, "--tensorrt", case["line"] or "10.3"])
    cli = next(ROOT.glob("daemon/**/cli.py")).relative_to(ROOT).with_suffix("")
    program = f"""
import contextlib, io, json, sys
from tegrascope.{".".join(cli.parts)} import main
for job in json.load(sys.stdin):
    held = io.StringIO()
    with contextlib.redirect_stdout(held):
        try:
            status = main(["inspect", "--json", *job])
        except SystemExit as error:
            status = error.code
    print(json.dumps([status, held.getvalue()]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=models,
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
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
            done = command("bench", *options, *short, *state, "-o", name, cwd=here, seconds=400)
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
            argv = ["simulate", "--board", board, "--interval", "20", "--lines", "8", "--seed", "7"]
            for option in ([], ["--unprivileged"]):
                lines = command(*argv, *option, cwd=here).stdout.splitlines()
                words = [re.sub(r"[\d.]+", "0", line) for line in lines]
                found[f"simulate {board} {option}"] = words
    return found


# --- run reports under a fixed clock ------------------------------------------------------------

_AGX = (
    "RAM {ram}/62841MB (lfb 3x4MB) CPU [{cpu}%@729,0%@729,off] EMC_FREQ {emc}%@2133 "
    "GR3D_FREQ {gpu}%@[{mhz},{mhz}] NVDLA0 {dla} NVDLA1 off cpu@{tj}C tj@{tj}C "
    "VDD_GPU_SOC {a}mW/{a}mW VDD_CPU_CV {b}mW/{b}mW VIN_SYS_5V0 {c}mW/{c}mW "
    "VDDQ_VDD2_1V8AO 604mW/604mW"
)
_NX = (
    "RAM {ram}/15655MB (lfb 2x4MB) CPU [{cpu}%@729,off] GR3D_FREQ {gpu}%@[{mhz}] NVDLA0 {dla} "
    "tj@{tj}C VDD_IN {a}mW/{a}mW VDD_CPU_GPU_CV {b}mW/{b}mW VDD_SOC {c}mW/{c}mW"
)
_STRANGE = "RAM {ram}/100MB (lfb 2x4MB) GR3D_FREQ {gpu}%@[{mhz}] tj@{tj}C OTHER_RAIL {a}mW/{a}mW"
_PLACED = {
    "requested_precision": "fp16",
    "fallback": "allow",
    "placement": {
        "verdict": "mixed",
        "loadables": 1,
        "dla_layers": ["{ForeignNode[a]}"],
        "gpu_layers": ["softmax"],
        "reformat_layers": ["reformat"],
    },
    "engine_key": "ab",
    "engine_bytes": 7,
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "sound": {},
    "nx": {"board": _NX, "device": "cpu", "backend": "onnxruntime", "batch": 4},
    "strange board": {"board": _STRANGE},
    "no idle phases": {"baseline": 0.0},
    "dla": {"device": "dla0", "busy": 0.6},
    "dla unused": {"device": "dla0", "busy": 0.0},
    "dla fallback": {"device": "dla0", "busy": 0.4, "built": _PLACED},
    "foreign dla": {"device": "dla0", "busy": 0.5, "foreign": True},
    "short": {"seconds": 4.0},
    "failed": {"seconds": 12.0, "ending": "failed"},
    "cut short": {"cuts": True, "ending": "cancelled"},
    "never steady": {"seconds": 0.0, "ending": "unavailable"},
    "overlapped": {"others": {"other": (112.0, 118.0), "apart": (10.0, 20.0)}},
    "throttled": {"throttles": True},
    "gap": {"gap": (112.0, 116.5)},
    "clock step": {"step": 3.0},
    "suspended": {"suspended": 2.0},
    "aliased": {"cycle": 0.1, "jitter": 0.0},
    "counted": {"backend": "command", "counted": 900, "uncertain": 0.05},
    "uncounted": {"backend": "command", "counted": None, "uncertain": 0.05},
    "unknown clock": {"clock_seconds": None},
    "simulated": {"environment": {"simulated": True}},
    "not steady": {"drift": 0.03},
    "nvml": {"board": "nvml", "environment": {"power_reading": "average"}},
    "no telemetry": {"board": None},
}


def _report(
    *,
    board: str | None = _AGX,
    device: str = "gpu",
    backend: str = "tensorrt",
    batch: int = 1,
    seconds: float = 20.0,
    baseline: float = 6.0,
    cycle: float = 0.0213,
    jitter: float = 0.004,
    drift: float = 0.0,
    busy: float | None = None,
    foreign: bool = False,
    built: Mapping[str, Any] | None = None,
    ending: str = "ok",
    cuts: bool = False,
    others: Mapping[str, tuple[float, float]] | None = None,
    throttles: bool = False,
    gap: tuple[float, float] = (0.0, 0.0),
    step: float = 0.0,
    suspended: float = 0.0,
    counted: int | str | None = "timed",
    uncertain: float = 0.0,
    clock_seconds: float | None = 0.0,
    environment: Mapping[str, Any] | None = None,
) -> Output:
    """Let samples and events of one run come in; return its report, joules and rule."""
    chance = random.Random(1)
    begin, end = 100.0 + baseline, 100.0 + baseline + seconds
    trace = inner("RunTrace")(
        run_id="run",
        workload="w",
        backend=backend,
        device=device,
        started_ns=98 * SECOND,
        started_wall_ns=1_750_000_000 * SECOND,
        model="m.onnx",
        batch=batch,
        lateness_seconds=0.25,
    )
    events = _events(begin, end, baseline, cycle, drift, built, ending, cuts, counted, uncertain)
    for event in events:
        assert trace.add(inner("parse_run_event")(json.dumps({"run_id": "run", **event})))
    trace.ended_ns = round((end + baseline + 1) * SECOND)
    trace.suspended_ns = round(suspended * SECOND)
    timeline, counters = inner("Timeline")(), inner("EnergyCounters")()
    rule, at, spent, throttled = None, 99.0, 0.0, 0
    while board is not None and at < end + baseline + 2:
        at += 0.1 + chance.random() * jitter
        works = begin <= at < end
        spent += 0.1 * (busy or 0.0) * (works or foreign)
        throttled += works and throttles
        draw = chance.random()
        if gap[0] <= at < gap[1]:
            continue
        sample = _sample(board, at, works, draw, device)
        values = dict(inner("flatten")(sample))
        if busy is not None:
            values |= {"dla.0.busy_seconds": spent, "dla.0.busy_ratio": busy * works}
        if throttles:
            values |= {"throttle.oc1.events": float(throttled)}
        if rule is None:
            rule = counters.rule = inner("find_rail_rule")(sample.rails)
        at_ns = round(at * SECOND)
        counters.feed(at_ns, values)
        wall_ns = at_ns + 1_749_999_900 * SECOND + round(step * SECOND) * (at > 110)
        timeline.append(at_ns, wall_ns, values)
    window = trace.telemetry_window()
    cut = timeline.cut(window.begin_ns, window.end_ns) if window and board else None
    span = inner("Span")
    report = inner("correlate")(
        trace,
        cut,
        rule=rule,
        others={
            name: span(begin_ns=round(a * SECOND), end_ns=round(b * SECOND))
            for name, (a, b) in (others or {}).items()
        },
        environment=inner("Environment")(board="b", **(environment or {})),
        clock_seconds=clock_seconds,
    )
    return {
        "report": report.model_dump(mode="json"),
        "joules": counters.rails,
        "module_joules": counters.module_joules,
        "rule": rule and rule.name,
    }


def _events(
    begin: float,
    end: float,
    baseline: float,
    cycle: float,
    drift: float,
    built: Mapping[str, Any] | None,
    ending: str,
    cuts: bool,
    counted: int | str | None,
    uncertain: float,
) -> Iterator[dict[str, Any]]:
    """Yield what a worker prints, without its run."""

    def phase(name: str, edge: str, at: float) -> dict[str, Any]:
        spread = {"uncertain_ns": round(uncertain * SECOND)} if uncertain else {}
        at_ns = round(at * SECOND)
        return {"event": "phase", "phase": name, "edge": edge, "at_ns": at_ns, **spread}

    yield phase("load", "begin", 98.2)
    yield phase("load", "end", 99.1)
    cold = {"import": 0.5, "load": 0.25, "first_inference": 0.125}
    made = {} if built is None else {"built": built}
    versions = {"tensorrt": "10.3"}
    yield {
        "event": "loaded",
        "model_sha256": "ab" * 32,
        "versions": versions,
        "cold_start_seconds": cold,
        **made,
    }
    if baseline:
        yield phase("baseline_before", "begin", begin - baseline)
        yield phase("baseline_before", "end", begin)
    if end > begin:
        yield phase("steady", "begin", begin)
        if counted == "timed":
            count = int((end - begin - 0.05) / cycle)
            starts = [round((begin + i * cycle) * SECOND) for i in range(count)]
            took = [round(SECOND * cycle * (0.9 + i % 7 / 100 + drift * i / count)) for i in
                    range(count)]  # fmt: skip
            stages = {"h2d": [n // 10 for n in took], "compute": [n // 2 for n in took]}
            for half in (slice(None, count // 2), slice(count // 2, None)):
                yield {
                    "event": "inferences",
                    "start_ns": starts[half],
                    "latency_ns": took[half],
                    "stages_ns": {stage: durations[half] for stage, durations in stages.items()},
                }
        else:
            yield {"event": "counted", "inferences": counted}
        if not cuts:
            yield phase("steady", "end", end)
            if baseline:
                yield phase("baseline_after", "begin", end)
                yield phase("baseline_after", "end", end + baseline)
    reason = {} if ending == "ok" else {"reason": "a reason"}
    yield {"event": "finished", "ending": ending, "process_peak_bytes": 7 << 20, **reason}


def _sample(board: str, at: float, works: bool, draw: float, device: str) -> Any:
    watts = 4000 + 9000 * works + round(900 * draw)
    if board == "nvml":
        reading = {
            "event": "sample",
            "at_ns": round(at * SECOND),
            "power_mw": watts,
            "average_mw": watts,
            "power_from": "instant",
            "gpu_percent": 90 * works,
            "sm_mhz": 1980,
            "gpu_celsius": 45,
            "clock_events": 0x48 if works and draw > 0.9 else 0,
        }
        return inner("parse_nvml_line")(json.dumps(reading))
    line = board.format(
        ram=6000 + 300 * works,
        cpu=5 + round(9 * draw),
        emc=12 * works,
        gpu=(90 if device == "gpu" else 3) * works,
        mhz=1300 if works else 305,
        dla="@1600" if works and device == "dla0" else "off",
        tj=45 + round(draw, 2),
        a=watts,
        b=400 + round(200 * draw),
        c=3000 + 500 * works,
    )
    return tegrascope.parse_line(line)


@cache
def inner(name: str) -> Any:
    """Return a function or class of the product, wherever it is defined today."""
    for known in INNER[name]:
        place, _, attribute = known.rpartition(":")
        pattern = re.compile(rf"^(?:class|def) {re.escape(attribute or known)}\b", re.MULTILINE)
        for room in ("parsers", "collectors", "daemon"):
            for path in sorted((ROOT / room).rglob("*.py")):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                if module.endswith(place.rpartition(".")[2] if place else ""):
                    if place and not module.endswith(place):
                        continue
                    if pattern.search(path.read_text(encoding="utf-8")):
                        return getattr(import_module(f"tegrascope.{module}"), attribute or known)
    raise LookupError(f"{name} is not in the product: add its new name to INNER in {__file__}")


# --- outputs --------------------------------------------------------------------------------------


def _shown(done: subprocess.CompletedProcess[str], kind: str) -> Output:
    """Return what a command printed, as it is compared."""
    shown: dict[str, Output] = {"status": done.returncode}
    if kind == "json":
        shown["json"] = json.loads(done.stdout) if done.stdout else None
    elif kind == "runs":
        shown["json"] = [json.loads(line) for line in done.stdout.splitlines()]
        for run in shown["json"]:
            run["environment"].pop("versions", None)
    elif kind == "csv head":
        shown["columns"] = done.stdout.partition("\n")[0].split(",")
    else:
        shown["lines"] = done.stdout.splitlines()
    numbers = re.findall(r"\b\d[\d,. ]*\b", done.stderr.strip().rpartition("\n")[2])
    if kind in ("csv", "jsonl"):
        shown["counts"] = numbers
    return shown


def _pandas() -> Any:
    return import_module("pandas")


def _table(frame: Any, log: str | None = None) -> Output:
    """Return types, length and digest of a table."""
    if log is not None:
        frame = frame.assign(log=log)
    text = io.StringIO()
    frame.to_csv(text, index=False)
    return {
        "types": {name: str(dtype) for name, dtype in frame.dtypes.items() if name != "log"},
        "rows": len(frame),
        "digest": hashlib.sha256(text.getvalue().encode()).hexdigest(),
    }


def families(page: str) -> Output:
    """Return type, help, labels and label values of every family of a metrics page."""
    found: dict[str, dict[str, Any]] = {}
    for line in page.splitlines():
        kind, _, rest = line.removeprefix("# ").partition(" ")
        if line.startswith(("# HELP", "# TYPE", "# UNIT")):
            name, _, text = rest.partition(" ")
            found.setdefault(name, {"labels": {}})[kind.lower()] = text
        elif line and not line.startswith("#"):
            series = re.match(r"(\w+)(?:\{(.*?)\})? ", line)
            assert series, line
            base = re.sub(r"_(bucket|sum|count|created|total)$", "", series[1])
            name = next(one for one in (series[1], base, f"{base}_total") if one in found)
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', series[2] or ""):
                values = found[name]["labels"].setdefault(label, [])
                shown = "*" if label in _FREE_LABELS else value
                if shown not in values:
                    values.append(shown)
                    values.sort()
    return found


def schema(value: Output) -> Output:
    """Return keys and types of a document; the items of a list are merged."""
    if isinstance(value, dict):
        return {key: schema(one) for key, one in value.items()}
    if isinstance(value, list):
        merged: Output = None
        for one in value:
            merged = _merged(merged, schema(one))
        return [merged]
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return None if value is None else "text"


def _merged(one: Output, other: Output) -> Output:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return {key: _merged(one.get(key), other.get(key)) for key in keys}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])] if one and other else one or other
    return other if one is None else one


def differences(was: Output, now: Output, path: str = "", *, within: float = 0.0) -> Iterator[str]:
    """Yield each difference, with its path; renamed keys and metrics are the same.

    Args:
        was: What was recorded.
        now: What is the case now.
        path: Of both in the whole.
        within: Relative difference of two numbers that counts as none.
    """
    if isinstance(was, str) and isinstance(now, str) and was != now and was[:1] == now[:1] == "{":
        with suppress(ValueError):
            yield from differences(json.loads(was), json.loads(now), path, within=within)
            return
    if isinstance(was, dict) and isinstance(now, dict):
        was, now = _renamed(was), _renamed(now)
        for key in [*was, *(key for key in now if key not in was)]:
            if key not in now:
                yield f"{path}/{key}: missing, was {_short(was[key])}"
            elif key not in was:
                yield f"{path}/{key}: new, {_short(now[key])}"
            else:
                yield from differences(was[key], now[key], f"{path}/{key}", within=within)
    elif isinstance(was, list) and isinstance(now, list):
        for number, (one, other) in enumerate(zip(was, now, strict=False)):
            yield from differences(one, other, f"{path}[{number}]", within=within)
        if len(was) != len(now):
            yield f"{path}: {len(was)} items before, {len(now)} now"
    elif was != now and not _are_close(was, now, within):
        sort = WORDS if _is_prose(was) and _is_prose(now) else ""
        yield f"{path}: {sort}was {_short(was)}, is {_short(now)}"


def _are_close(was: Output, now: Output, within: float) -> bool:
    if not isinstance(was, (int, float)) or not isinstance(now, (int, float)):
        return False
    return math.isclose(was, now, rel_tol=within) or (math.isnan(was) and math.isnan(now))


def _is_prose(value: Output) -> bool:
    return isinstance(value, str) and len(re.findall(r"[A-Za-z]{2,}", value)) > 2


def _renamed(document: Mapping[str, Output]) -> dict[str, Output]:
    found = {}
    for key, value in document.items():
        series = re.match(r"\w+", key)
        name = series[0] if series else key
        new = {**KEYS, **METRICS}.get(name)
        found[key if new is None else new + key[len(name) :]] = value
    return found


def _short(value: Output) -> str:
    text = json.dumps(value)
    return text if len(text) < 200 else f"{text[:200]} …"


PARTS: dict[str, Part] = {
    "reports": part_reports,
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
        make_inputs(place, arguments.corpus)
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
