"""The drawing of an inspection: a text that Graphviz reads, with all nodes and their parts."""

import json
import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tegrascope.parsers.onnx.graph import Graph, Node
from tegrascope.workbench.inspect.drawing import MOST_NODES, drawing
from tegrascope.workbench.inspect.rules import Inspection, JudgedNode, RuleFinding

LAW = settings(derandomize=True, deadline=None, database=None, max_examples=40)


def inspected(nodes):
    return Inspection(
        model="m.onnx",
        tensorrt="8.6",
        tensorrt_reason="asked for",
        precision="fp16",
        verdict="mixed",
        is_ready=False,
        loadable_limit=16,
        nodes=tuple(nodes),
    )


def chain(placements, name="n{}"):
    """Return a model that is a chain of nodes, and what was found; a change begins a part."""
    nodes, judged = [], []
    parts = {"dla": -1, "gpu": -1}
    before = None
    for at, placement in enumerate(placements):
        called = name.format(at)
        nodes.append(
            Node(index=at, name=called, op="Conv", inputs=(f"t{at}",), outputs=(f"t{at + 1}",))
        )
        if placement in parts and placement != before:
            parts[placement] += 1
        judged.append(
            JudgedNode(
                index=at,
                name=called,
                op="Conv",
                placement=placement,
                loadable=parts["dla"] if placement == "dla" else None,
                island=parts["gpu"] if placement == "gpu" else None,
            )
        )
        before = placement
    graph = Graph(inputs=("t0",), outputs=(f"t{len(nodes)}",), nodes=tuple(nodes))
    return graph, inspected(judged)


def read(text):
    """Return what Graphviz read: its boxes by number with their labels, and its edges."""
    if shutil.which("dot") is None:
        pytest.skip("apt install graphviz")
    done = subprocess.run(["dot", "-Tjson0"], input=text.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    labels = {box["_gvid"]: box["label"] for box in found["objects"]}
    return labels, [(edge["tail"], edge["head"]) for edge in found.get("edges", [])]


def test_each_node_is_a_box_with_its_part():
    graph, found = chain(["dla", "gpu", "dla"])
    labels, edges = read(drawing(graph, found))
    assert list(labels.values()) == [
        r"input\nt0",
        r"Conv\nn0\nDLA loadable 0",
        r"Conv\nn1\nGPU island 0",
        r"Conv\nn2\nDLA loadable 1",
        r"output\nt3",
    ]
    assert edges == [(0, 1), (1, 2), (2, 3), (3, 4)]


@LAW
@given(st.text(max_size=12))
@example('a"b\\')
@example("\\N \\l { } <b> \u202e \x00 \ud800")
def test_whatever_a_name_contains_the_graph_is_read(name):
    graph, found = chain(["dla"], name=name.replace("{", "{{").replace("}", "}}") + "{}")
    text = drawing(graph, found)
    assert "\u202e" not in text
    text.encode()
    labels, _ = read(text)
    assert len(labels) == 3


def test_a_large_model_has_a_box_for_each_stretch():
    graph, found = chain((["dla"] * MOST_NODES + ["gpu"]) * 3)
    labels, edges = read(drawing(graph, found))
    assert list(labels.values())[1:4] == [
        rf"{MOST_NODES} nodes: Conv ×{MOST_NODES}\nDLA loadable 0",
        r"1 nodes: Conv ×1\nGPU island 0",
        rf"{MOST_NODES} nodes: Conv ×{MOST_NODES}\nDLA loadable 1",
    ]
    assert edges == [(at, at + 1) for at in range(7)]


def test_a_tooltip_has_the_broken_rule_and_its_remedy():
    graph, found = chain(["gpu"])
    finding = RuleFinding(
        rule="softmax", requirement="at most 1024", found="2048", hint="split it", page="softmax"
    )
    node = found.nodes[0].model_copy(update={"findings": (finding,)})
    text = drawing(graph, inspected([node]))
    assert r"breaks: at most 1024 (softmax); found 2048\nsplit it" in text


def test_an_omitted_input_or_output_is_no_line():
    nodes = (
        Node(index=0, name="a", op="LSTM", inputs=("x",), outputs=("", "y")),
        Node(index=1, name="b", op="Resize", inputs=("x", "", "s"), outputs=("z",)),
    )
    graph = Graph(inputs=("x",), outputs=("z",), nodes=nodes)
    judged = [JudgedNode(index=n.index, name=n.name, op=n.op, placement="gpu") for n in nodes]
    text = drawing(graph, inspected(judged))
    assert [line.split(" [")[0].strip() for line in text.splitlines() if "->" in line] == [
        "b0 -> b1",
        "b0 -> b2",
        "b2 -> b3",
    ]


def test_a_model_that_changes_its_part_at_each_node_has_a_limit_too():
    graph, found = chain(["dla", "gpu"] * 2000, name="n" * 3000 + "{}")
    text = drawing(graph, found)
    assert text.count("[label=") == MOST_NODES + 1
    assert "3852 more boxes" in text
    assert max(map(len, text.splitlines())) < 2000
