"""The command: its statuses, its table, its JSON."""

import json
import re
from pathlib import Path

import onnx
import pytest

from tegrascope.collectors.models.onnx_graph import read_graph
from tegrascope.daemon.cli import main
from tegrascope.daemon.inspect.records import SCHEMA_VERSION, Inspection
from tegrascope.daemon.inspect.rules import choose_rules

from .made import model, node, one

X = {"x": (1, 16, 8, 8)}


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Run ``tegrascope inspect`` on a model; returns status, output and errors.

    The model is read in this process: the child that does it otherwise takes its time to start.
    """
    monkeypatch.setattr("tegrascope.daemon.commands.inspect.read_graph_apart", read_graph)

    def call(made, *arguments):
        path = tmp_path / "made.onnx"
        onnx.save(made, path)
        status = main(["inspect", str(path), "--state-dir", str(tmp_path), *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def test_ready_is_0_and_not_ready_is_3(run):
    """A check says yes or no by its status."""
    assert run(one("Relu"), "--device", "dla")[0] == 0
    assert run(one("Erf"))[0] == 3


def test_the_table_says_what_helps(run):
    """Each broken rule is a row with its hint; like nodes share one."""
    nodes = [node("Erf", "x", "a", "gelu1"), node("Erf", "a", "y", "gelu2")]
    status, out, _ = run(model(nodes, X), "--tensorrt", "8.6")
    assert status == 3
    words = " ".join(out.split())
    for said in ("nothing on the DLA", "2 Erf", "gelu1, gelu2", "unary.operation", "it comes from"):
        assert said in words
    assert "rules of TensorRT 8.6: asked for" in words


def test_every_node_is_shown_when_asked_for(run):
    """``--all`` has a line a node, on the DLA or not."""
    nodes = [node("Relu", "x", "a", "fits"), node("Erf", "a", "y", "does_not")]
    assert "fits" not in run(model(nodes, X))[1].split("predicted")[0]
    words = run(model(nodes, X), "--all")[1]
    assert re.search(r"0\s+fits\s+Relu\s+activation\s+dla\s+loadable 0", words)
    assert re.search(r"1\s+does_not\s+Erf\s+unary\s+gpu\s+island 0", words)


def test_json_is_the_record(run):
    """For programs: the record of the documentation, with its version."""
    status, out, _ = run(one("Relu", ("n", 8, 4, 4)), "--json", "--shape", "x:2x8x4x4")
    assert status == 0
    document = json.loads(out)
    assert document["schema_version"] == SCHEMA_VERSION
    inspection = Inspection.model_validate(document)
    assert inspection.is_ready
    assert inspection.nodes[0].loadable == 0


def test_names_that_are_markup_are_printed_as_they_are(run):
    """A node may be called anything."""
    status, out, _ = run(model([node("Erf", "x", "y", "[bold]x[/]")], X))
    assert status == 3
    assert "[bold]x[/]" in out


def test_names_give_a_terminal_no_orders(run):
    """A model from anywhere may hold escape sequences; they are spelled out, in the table too."""
    nodes = [node("Erf", "x", "y", "red\x1b[31m\x00")]
    status, out, _ = run(model(nodes, X), "--all")
    assert status == 3
    assert "\x1b" not in out and "\x00" not in out
    assert "red\\x1b[31m\\x00" in out


@pytest.mark.parametrize(
    ("arguments", "ended", "said"),
    [
        (("--tensorrt", "10.13"), 2, "there is no TensorRT 10.13 with a DLA"),
        (("--shape", "image:1x3"), 1, "no input is named 'image'"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, ended, said, run):
    """A wrong order is told in one line, with what to do."""
    status, out, err = run(one("Relu"), *arguments)
    assert (status, out) == (ended, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_shape_that_is_none_is_usage(run):
    """What cannot be read as a shape is told with its form."""
    with pytest.raises(SystemExit) as ended:
        run(one("Relu"), "--shape", "x:1x0")
    assert ended.value.code == 2


def test_a_model_that_is_not_there_is_one_line(capsys, tmp_path):
    """A path that leads nowhere, and a directory, are told."""
    for path in (tmp_path / "none.onnx", tmp_path):
        assert main(["inspect", str(path), "--state-dir", str(tmp_path)]) == 1
        assert capsys.readouterr().err.count("\n") == 1


def test_the_release_is_the_machines_own_where_it_has_a_dla():
    """What is asked for, else what is installed, else what most boards have; always with why."""
    rules, why = choose_rules("8.6.1", installed="10.3.0")
    assert (rules.line.name, why) == ("8.6", "asked for")
    rules, why = choose_rules(None, installed="8.5.2.2")
    assert (rules.line.name, why) == ("8.5", "TensorRT 8.5.2.2 is installed here")
    rules, why = choose_rules(None, installed="10.16.2")
    assert rules.line.name == "10.3"
    assert "10.16.2, which is installed here, has no DLA" in why
    assert "--tensorrt names another" in why


def fields_of(kind, seen):
    for name, field in kind.model_fields.items():
        yield name
        for inner in re.findall(r"records\.(\w+)", str(field.annotation)):
            if inner not in seen:
                seen.add(inner)
                module = __import__(kind.__module__, fromlist=[inner])
                if hasattr(getattr(module, inner, None), "model_fields"):
                    yield from fields_of(getattr(module, inner), seen)


def test_every_key_is_documented():
    """The page names each key of the JSON, so that nobody has to read the source."""
    page = (Path(__file__).parents[2] / "docs/inspect.md").read_text(encoding="utf-8")
    names = set(fields_of(Inspection, set()))
    assert {"findings", "waste_ratio", "depthwise", "message", "first"} <= names
    for name in names:
        assert f"`{name}`" in page, name
