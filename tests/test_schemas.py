"""Each JSON output of a command has a schema, and a real output fits it."""

import io
import json
import re
from contextlib import redirect_stdout

import pytest

from tegrascope.collectors.backends.engine_cache import BuiltEngine, EngineCache
from tegrascope.daemon.measure.report import Energy, RailEnergy, RunReport
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.inference.placement import Built, Placement
from tegrascope.workbench.cli import main, make_parser
from tegrascope.workbench.commands import COMMANDS
from tests.advise.made import lane, model, result, written
from tests.daemons import start
from tests.fakes.models import write_chain
from tests.fakes.shims import write_shims
from tools import schemas

jsonschema = pytest.importorskip("jsonschema", reason="pip install jsonschema")

__all__ = ["start"]

# A daemon, programs that print lines or pages, and files of systemd.
WITHOUT_JSON = {"run", "exec", "simulate", "report", "service", "completion", "prove"}
INSPECTOR = '{"Layers": [{"Name": "conv1", "LayerType": "CaskConvolution"}], "Bindings": []}'
LINE = "RAM 936/3964MB (lfb 366x4MB) GR3D_FREQ 99%@921 VDD_IN 5139mW/4890mW tj@40C"
RUNS = "name,start,end,inferences,place\na,1,20,400,door\n"


def printed(*arguments: object) -> dict:
    """Run a command; return the one document that is all of its standard output."""
    output = io.StringIO()
    with redirect_stdout(output):
        main(list(map(str, arguments)))
    return json.loads(output.getvalue())


def closed(part):
    """Return a schema that refuses keys which it does not name."""
    if isinstance(part, list):
        return [closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: closed(one) for key, one in part.items()}
    is_object = isinstance(part.get("properties"), dict) and part.get("type") == "object"
    return found | ({"additionalProperties": False} if is_object else {})


def check(name: str, document: dict, *, may_have_more: bool = False) -> None:
    """Validate a document, which has no key that the schema does not name."""
    whole = schemas.schema(name)
    jsonschema.Draft202012Validator(whole if may_have_more else closed(whole)).validate(document)


@pytest.fixture
def state(tmp_path):
    """A state directory with two runs and an engine."""
    store = Store(tmp_path / "state/tegrascope.db")
    about = {"workload": "w", "backend": "tensorrt", "started_ns": 1, "ended_ns": 2}
    energy = Energy(
        total_rails=("VDD_IN",), rails={"VDD_IN": RailEnergy(gross_joules=10, mean_watts=5)}
    )
    for number, outcome in enumerate(("ok", "failed"), 1):
        store.finish(
            RunReport(
                run_id=f"0193a{number}",
                device="dla0",
                outcome=outcome,
                started_wall_ns=number,
                energy=energy,
                **about,
            )
        )
    store.close()
    built = Built(layer_types={"fp16": 5}, placement=Placement(verdict="pure_dla"))
    EngineCache(tmp_path / "state/engines").write(
        "a" * 64,
        BuiltEngine(b"plan", built, inspector=INSPECTOR),
        model="m.onnx",
        parts={"device": "dla0"},
    )
    return tmp_path / "state"


def test_page_is_what_make_docs_writes():
    assert schemas.PAGE.read_text(encoding="utf-8") == schemas.page(), "run: make docs"


def test_a_file_is_written_for_each_output(tmp_path):
    schemas.write(tmp_path / "new/folder")
    for name in schemas.OUTPUTS:
        text = (tmp_path / f"new/folder/{name}.json").read_text(encoding="utf-8")
        assert json.loads(text) == json.loads(json.dumps(schemas.schema(name)))


@pytest.mark.parametrize("name", schemas.OUTPUTS)
def test_schema_is_one_and_refuses_values_of_another_kind(name):
    jsonschema.Draft202012Validator.check_schema(schemas.schema(name))
    whole = schemas.schema(name)
    about = whole["$defs"][whole["$ref"].rpartition("/")[2]] if "$ref" in whole else whole
    for part in about["properties"].values():
        one = jsonschema.Draft202012Validator({"$defs": whole.get("$defs", {}), **part})
        assert not one.is_valid(["a", {"value": "of another kind"}])


@pytest.mark.parametrize(
    "document",
    [{"ok": True, "surely": 1}, {"good": []}, {"ok": "yes"}],
    ids=["more", "less", "kind"],
)
def test_a_document_of_another_form_is_refused(document):
    check("check-config", {"ok": True})
    with pytest.raises(jsonschema.ValidationError):
        check("check-config", document)


def test_every_command_has_a_schema_or_prints_no_json():
    """A new command gets a row in tools/schemas.py, or a reason here."""
    rows = {output.command.split()[0] for output in schemas.OUTPUTS.values()}
    assert rows | WITHOUT_JSON == set(COMMANDS)
    assert not rows & WITHOUT_JSON


@pytest.mark.parametrize("command", sorted({one.command for one in schemas.OUTPUTS.values()}))
def test_command_of_a_schema_has_its_option(command, capsys):
    words = command.split()
    with pytest.raises(SystemExit):
        make_parser(words).parse_args([*(word for word in words if word[0] != "-"), "--help"])
    option = next(word for word in words if word.startswith("-"))
    assert re.search(rf"(^|\s){option}\b", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("runs-list", "runs list --json"),
        ("run", "runs show 0193a1 --json"),
        ("engines-list", "engines list --json"),
        ("engines-show", "engines show a --json"),
    ],
)
def test_stored_records_fit_their_schema(name, words, state):
    document = printed(*words.split(), "--state-dir", state)
    check(name, document)


def test_empty_state_fits_its_schema(tmp_path):
    document = printed("engines", "list", "--json", "--state-dir", tmp_path)
    assert document["engines"] == []
    check("engines-list", document)


def test_built_engine_fits_its_schema(tmp_path, monkeypatch):
    """TensorRT is played and has one DLA core; a device that fails is absent."""
    (tmp_path / "shims").mkdir()
    monkeypatch.setenv("PYTHONPATH", write_shims(tmp_path / "shims", dla_cores=1))
    path = write_chain(tmp_path / "m.onnx", "Conv", "Softmax")
    document = printed(
        "engines", "build", path, "--on", "dla0,dla1", "--json", "--state-dir", tmp_path
    )
    assert list(document["engines"]) == ["dla0"]
    check("engines-build", document)


@pytest.mark.parametrize(
    ("text", "ok"), [("telemetry: {source: simulator}\n", True), ("a: 1", False)]
)
def test_checked_configuration_fits_its_schema(text, ok, tmp_path, capsys):
    path = tmp_path / "t.yaml"
    path.write_text(text)
    document = printed("check-config", path, "--json")
    assert (document["ok"], bool(document["problems"])) == (ok, not ok)
    assert capsys.readouterr().err == ""
    check("check-config", document)


def test_examination_fits_its_schema(tmp_path):
    check("doctor", printed("doctor", "--json", "--state-dir", tmp_path))


def test_records_of_lines_fit_their_schema(tmp_path):
    path = tmp_path / "robot.log"
    path.write_text(f"{LINE}\n")
    check("parse", printed("parse", path))


def test_paired_runs_fit_their_schema(tmp_path):
    pytest.importorskip("pandas", reason="pip install '.[frames]'")
    (tmp_path / "robot.log").write_text(f"{LINE}\n" * 30)
    (tmp_path / "runs.csv").write_text(RUNS)
    words = ("--telemetry", tmp_path / "robot.log", "--runs", tmp_path / "runs.csv")
    document = printed("correlate", *words, "-f", "jsonl")
    assert (document["place"], document["outcome"]) == ("door", "ok")
    check("correlate", document, may_have_more=True)


def test_advice_fits_its_schema(tmp_path):
    found = result(model("yolo", lane("gpu", 5.0, 0.1, 0.9), lane("dla0", 12.0, 0.06, 0.02)))
    path = written(tmp_path, "r", found)
    check("advise", printed("advise", path, "--rates", "yolo=30", "--json"))


def test_inspection_fits_its_schema(model_cache):
    pytest.importorskip("onnx", reason="pip install '.[onnx]'")
    from tests.fakes.generated_models import ensure

    check("inspect", printed("inspect", ensure("mobilenetv2", model_cache), "--json"))


def test_bench_on_the_simulated_board_and_its_comparison_fit_their_schemas(tmp_path):
    brief = "--duration 0.1 --baseline 0.05 --warm-up 0.05 --rounds 1 --simulate --json"
    place = ("-o", tmp_path / "out", "--state-dir", tmp_path)
    document = printed("bench", "resnet50", *brief.split(), *place)
    assert document["is_simulated"]
    assert document == json.loads((tmp_path / "out/result.json").read_text())
    check("bench", document)
    check("compare", printed("compare", tmp_path / "out", tmp_path / "out", "--json"))


def test_screen_of_a_daemon_fits_its_schema(start):
    daemon = start("telemetry: {source: simulator, interval: 100ms}\n")
    daemon.wait_for(lambda: "tegra_info" in daemon.get("metrics"))
    document = printed("top", "--json", "--url", daemon.url)
    assert document["is_simulated"]
    assert document["units"][0]["name"] == "GPU"
    check("top", document)
