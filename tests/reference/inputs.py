"""The inputs of a reference: logs, tables of runs, configurations, results and models."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from tegrascope import frames

from ..advise.made import lane, model, result, together

ROOT = Path(__file__).parents[2]


def make_inputs(inputs: Path, corpus: Path | None) -> None:
    """Copy or make everything that the parts read, so that it stays as it is."""
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
        seconds = float(frames.read_log(log)["elapsed_seconds"].max())
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
            run = [sys.executable, "-m", "tegrascope", *argv]
            subprocess.run(run, cwd=place, check=False, capture_output=True)
        for path in Path(cache_dir).rglob("*.onnx"):
            shutil.copy(path, place / f"family-{path.name.split('-')[0]}.onnx")

    from tegrascope.tests.inspect.cases import CASES

    for rule, case in CASES.items():
        for kind in ("breaks", "keeps"):
            onnx.save(getattr(case, kind), str(place / f"rule-{rule}-{kind}.onnx"))
        notes = {"precision": case.precision, "line": case.line}
        (place / f"rule-{rule}.json").write_text(json.dumps(notes), encoding="utf-8")
