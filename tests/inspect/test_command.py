"""The command ``tegrascope inspect``: its statuses, its table, its JSON, its picture."""

import io
import json
import re
from pathlib import Path

import onnx
import pytest
from onnx import helper
from pydantic import BaseModel

from tegrascope.workbench.cli import main
from tegrascope.workbench.inspect.report import print_inspection
from tegrascope.workbench.inspect.rules import SCHEMA_VERSION, Inspection, choose_rules

from .conftest import FAMILIES
from .made import inspected, model, node, one
from .reports import GOLDENS, golden_of, report_of

X = {"x": (1, 16, 8, 8)}


@pytest.fixture
def run(tmp_path, capsys):
    """Run ``tegrascope inspect`` on a model; returns status, output and errors."""

    def call(made, *arguments):
        path = tmp_path / "made.onnx"
        onnx.save(made, path)
        status = main(["inspect", str(path), "--state-dir", str(tmp_path), *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def table(tmp_path):
    """Return what the command would print of a model."""

    def call(made, *, shows_all=False, line="10.3"):
        stream = io.StringIO()
        found = inspected(made, tmp_path, line=line)
        print_inspection(found, shows_all=shows_all, stream=stream)
        return stream.getvalue()

    return call


def test_a_ready_model_ends_with_0_and_its_record(run):
    shape = ("--json", "--shape", "x:2x8x4x4")
    status, out, err = run(one("Relu", ("n", 8, 4, 4)), *shape)
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["schema_version"] == SCHEMA_VERSION
    inspection = Inspection.model_validate(document)
    assert inspection.is_ready
    assert inspection.nodes[0].loadable == 0


def test_a_model_that_is_not_ready_ends_with_3_and_its_table(run, tmp_path):
    path = tmp_path / "m.dot"
    status, out, err = run(one("Erf"), "--tensorrt", "8.6", "--dot", str(path))
    assert (status, err) == (3, "")
    assert "made.onnx · fp16 · nothing on the DLA" in out
    assert "rules of TensorRT 8.6: asked for" in out
    assert "GPU island 0" in path.read_text(encoding="utf-8")


def test_an_int8_build_also_allows_fp16_unless_it_is_strict(run):
    made = one("Softmax", (1, 8, 4, 4), axis=1)
    status, out, _ = run(made, "--precision", "int8")
    assert (status, "int8 beside fp16 · wholly on the DLA" in out) == (0, True)
    status, out, _ = run(made, "--precision", "int8", "--strict-int8")
    assert (status, "made.onnx · int8 · no rule is broken, but some" in out) == (3, True)
    assert "slice.precision" not in out and "softmax.precision ?" in out


def exported(size, shape=("batch", 3, "height", "width")):
    """A dynamic export of a detector, with the size of its images in the file's metadata."""
    made = model([node("Relu", "images", "y")], {"images": shape})
    helper.set_model_props(made, {"task": "detect", "imgsz": size, "stride": "32"})
    return made


@pytest.mark.parametrize(
    ("size", "shape", "option"),
    [
        ("[320, 416]", ("batch", 3, "height", "width"), "images:1x3x320x416"),
        ("640", ("batch", 3, "height", "width"), "images:1x3x640x640"),
        ("[320, 416]", (4, 3, "height", "width"), "images:4x3x320x416"),
        ("[320, 416]", ("batch", 3, 320, "width"), "images:1x3x320x416"),
    ],
)
def test_the_size_in_the_metadata_of_a_dynamic_export_is_taken(size, shape, option, run):
    status, out, _ = run(exported(size, shape), "--tensorrt", "10.3")
    assert status == 0
    words = " ".join(out.split())
    assert words.startswith(f"--shape {option}: the size of images in the file's metadata; give")
    assert "is open" not in words and "wholly on the DLA" in words


@pytest.mark.parametrize(
    ("size", "shape", "option"),
    [
        ("[0, 320]", ("batch", 3, "height", "width"), "images:1x3x?x?"),
        ("[320, 320, 3]", ("batch", 3, "height", "width"), "images:1x3x?x?"),
        ("[999999, 320]", ("batch", 3, "height", "width"), "images:1x3x?x?"),
        ("[320, 320]", ("batch", 3, 640, "width"), "images:1x3x640x?"),  # they disagree
        ("[320, 320]", ("batch", "height", "width"), "images:1x?x?"),
        ("[320, 320]", ("batch", "any", "height", "width"), "images:1x?x?x?"),
    ],
)
def test_the_first_line_of_an_open_model_is_the_option_that_fixes_it(size, shape, option, run):
    status, out, _ = run(exported(size, shape), "--tensorrt", "10.3")
    assert status == 3
    words = " ".join(out.split())
    assert words.startswith(f"give --shape {option}, a number for each ?: the DLA has no open")


def test_a_given_shape_goes_before_the_size_in_the_metadata(run):
    status, out, _ = run(exported("[320, 320]"), "--shape", "images:2x3x64x96", "--json")
    found = Inspection.model_validate_json(out)
    assert (status, found.assumed_shapes, found.remedy) == (0, {}, None)
    status, out, _ = run(exported("[320, 320]"), "--json")
    found = Inspection.model_validate_json(out)
    assert (status, found.assumed_shapes) == (0, {"images": (1, 3, 320, 320)})


def test_names_cannot_turn_the_direction_of_the_text(run, tmp_path):
    """What follows U+202E is drawn from right to left, and a name could hide the rest of a line."""
    turned = "a\u202eb"
    made = model([node("Own", "x", turned, turned, domain=turned)], X, domains=[turned])
    path = tmp_path / "m.dot"
    status, out, err = run(made, "--all", "--dot", str(path))
    assert status == 3
    assert "\u202e" not in out + err + path.read_text(encoding="utf-8")
    assert "a\\u202eb" in out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--tensorrt", "10.13"), 2, "there is no TensorRT 10.13 with a DLA"),
        (("--shape", "image:1x3"), 1, "no input is named 'image'"),
        (("--verify", "--strict-int8"), 2, "--verify asks for a build that allows FP16 too"),
        (("--strict-int8",), 2, "a build of fp16 by TensorRT 10.3 cannot be strictly INT8"),
        (("--dot", "/nowhere/m.dot"), 1, "No such file or directory: name a writable file"),
    ],
)
def test_an_error_is_one_line(arguments, status, message, run):
    found, out, err = run(one("Relu"), *arguments)
    assert (found, out) == (status, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_invalid_shape_is_a_usage_error(run):
    with pytest.raises(SystemExit) as ended:
        run(one("Relu"), "--shape", "x:1x0")
    assert ended.value.code == 2


def test_a_missing_model_is_one_line(capsys, tmp_path):
    for path in (tmp_path / "none.onnx", tmp_path):
        assert main(["inspect", str(path), "--state-dir", str(tmp_path)]) == 1
        assert capsys.readouterr().err.count("\n") == 1


def test_like_nodes_share_a_row_with_the_rule_and_the_remedy(table):
    nodes = [node("Erf", "x", "a", "gelu1"), node("Erf", "a", "y", "gelu2")]
    words = " ".join(table(model(nodes, X), line="8.6").split())
    for part in ("nothing on the DLA", "2 Erf", "gelu1, gelu2", "unary.operation", "comes from"):
        assert part in words


def test_every_node_has_a_line_on_request(table):
    nodes = [node("Relu", "x", "a", "fits"), node("Erf", "a", "y", "does_not")]
    assert "fits" not in table(model(nodes, X)).split("predicted")[0]
    words = table(model(nodes, X), shows_all=True)
    assert re.search(r"0\s+fits\s+Relu\s+activation\s+dla\s+loadable 0", words)
    assert re.search(r"1\s+does_not\s+Erf\s+unary\s+gpu\s+island 0", words)


def test_costs_are_printed_for_the_model_and_for_each_node(table):
    words = " ".join(table(one("Erf"), shows_all=True).split())
    assert "16.4 kFLOP (a multiply-add is two), 65.5 kB in fp16 without fusion" in words
    assert re.search(r"target Erf unary gpu island 0 16\.4 kFLOP 65\.5 kB 0\.25", words)


def test_names_are_printed_as_they_are_and_control_characters_escaped(table):
    out = table(model([node("Erf", "x", "y", "[bold]x[/]")], X))
    assert "[bold]x[/]" in out
    out = table(model([node("Erf", "x", "y", "red\x1b[31m\x00")], X), shows_all=True)
    assert "\x1b" not in out and "\x00" not in out
    assert "red\\x1b[31m\\x00" in out


def test_the_installed_release_is_used_if_it_has_a_dla():
    rules, why = choose_rules("8.6.1", installed="10.3.0")
    assert (rules.line.name, why) == ("8.6", "asked for")
    rules, why = choose_rules(None, installed="8.5.2.2")
    assert (rules.line.name, why) == ("8.5", "TensorRT 8.5.2.2 is installed here")
    rules, why = choose_rules(None, installed="10.16.2")
    assert rules.line.name == "10.3"
    assert "10.16.2, which is installed here, has no DLA" in why
    assert "--tensorrt names another" in why


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_reads_as_reviewed(graphs, name):
    assert report_of(name, graphs[name]) == golden_of(name).read_text(encoding="utf-8")


def test_every_golden_has_a_family():
    wanted = {golden_of(name).name for name in FAMILIES}
    assert {path.name for path in GOLDENS.iterdir()} == wanted


def keys_of(schema):
    """Yield the name of every property in a JSON schema."""
    for record in (schema, *schema.get("$defs", {}).values()):
        yield from record.get("properties", {})


def test_every_key_is_documented():
    page = (Path(__file__).parents[2] / "docs/inspect.md").read_text(encoding="utf-8")
    kind: type[BaseModel] = Inspection
    names = set(keys_of(kind.model_json_schema()))
    assert {"findings", "waste_ratio", "depthwise", "message", "first"} <= names
    for name in names:
        assert f"`{name}`" in page, name
