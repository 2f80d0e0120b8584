"""The picture of an inspection: boxes in rows, valid XML, colours with words."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tegrascope.daemon.inspect.costs import costs_of
from tegrascope.daemon.inspect.picture import Spacing, lay_out, picture
from tegrascope.daemon.inspect.rules import Inspection, JudgedNode, Part, RuleFinding
from tegrascope.parsers.onnx.graph import Graph, Node, Tensor

SVG = "{http://www.w3.org/2000/svg}"
LAW = settings(derandomize=True, deadline=None, database=None)
SMALL = Spacing(box=10.0, gap=2.0, lane=1.0, row=5.0)


@st.composite
def acyclic(draw):
    """Return a count of boxes, and edges that lead to later ones, each with its own tensor."""
    count = draw(st.integers(1, 14))
    every = list(combinations(range(count), 2))
    chosen = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    return count, [(*edge, at) for at, edge in enumerate(chosen)]


@LAW
@given(acyclic(), st.integers(1, 10))
def test_edges_lead_down_and_boxes_do_not_touch(graph, boxes):
    count, edges = graph
    spacing = replace(SMALL, boxes=boxes)
    layout = lay_out(count, edges, spacing)
    for source, target, _ in edges:
        assert layout.centres[source][1] < layout.centres[target][1]
    for one, other in combinations(layout.centres, 2):
        if one[1] == other[1]:
            assert abs(one[0] - other[0]) >= SMALL.box + SMALL.gap - 0.2  # of two roundings
    for x, y in layout.centres:
        assert SMALL.box / 2 - 0.1 <= x <= layout.width - SMALL.box / 2 + 0.1
        assert 0 <= y <= layout.height
    assert max(Counter(y for _, y in layout.centres).values()) <= boxes


@LAW
@given(acyclic())
def test_routes_pass_every_row_once_and_no_box(graph):
    count, edges = graph
    layout = lay_out(count, edges, SMALL)
    for (source, target, _), route in zip(edges, layout.routes, strict=True):
        assert (route[0], route[-1]) == (layout.centres[source], layout.centres[target])
        rows = [y / SMALL.row for _, y in route]
        assert rows == [rows[0] + step for step in range(len(rows))]
        for x, y in route[1:-1]:
            distances = [abs(x - centre) for centre, row in layout.centres if row == y]
            assert all(distance > SMALL.box / 2 for distance in distances)


def test_one_tensor_with_many_readers_takes_one_lane():
    count = 102
    chain = [(at, at + 1, at) for at in range(1, count - 1)]
    mask = [(0, at, "mask") for at in range(2, count)]
    layout = lay_out(count, chain + mask, SMALL)
    assert layout.width < 4 * SMALL.box
    points = {point for route in layout.routes[len(chain) :] for point in route[1:-1]}
    assert len(points) <= count


def test_a_chain_is_straight_and_a_ladder_has_no_crossing():
    chain = lay_out(5, [(at, at + 1, at) for at in range(4)], SMALL)
    assert {x for x, _ in chain.centres} == {SMALL.box / 2}
    # Two chains next to each other, listed in an order that crosses at every step.
    edges = [(0, 3, 0), (1, 2, 1), (2, 5, 2), (3, 4, 3)]
    ladder = lay_out(6, edges, SMALL)
    sides = [{ladder.centres[at][0] for at in chain} for chain in ((0, 3, 4), (1, 2, 5))]
    assert [len(side) for side in sides] == [1, 1]
    assert sides[0] != sides[1]


def branches(count, length):
    """Return a graph of many parallel chains of nodes, from one tensor to one Concat."""
    nodes, ends = [], []
    for branch in range(count):
        last = "x"
        for step in range(length):
            made = f"t{branch}.{step}"
            nodes.append(
                Node(index=len(nodes), name=f"n{made}", op="Relu", inputs=(last,), outputs=(made,))
            )
            last = made
        ends.append(last)
    join = Node(index=len(nodes), name="join", op="Concat", inputs=tuple(ends), outputs=("y",))
    return Graph(inputs=("x",), outputs=("y",), nodes=(*nodes, join))


@pytest.mark.parametrize(("count", "length"), [(300, 1), (90, 12), (20, 60)])
def test_parallel_branches_do_not_make_the_picture_wide(count, length):
    graph = branches(count, length)
    _, found = inspected(nodes=(), loadables=(), islands=())
    root = drawn(graph, found)
    assert float(root.get("width")) < 4_000
    names = [name for _, name in boxes_of(root)]
    assert len(names) == count * length + 3


NASTY = 'a<b>&"c"\x00\x1b]]>\ud800/Größe'


def inspected(**changes):
    """Return a graph of five nodes, one of each placement, and what was found of it."""
    placements = ("dla", "gpu", "folded", "constant", "unknown")
    nodes = tuple(
        Node(
            index=at,
            name=f"{placement}{NASTY}",
            op=f"Op{at}",
            inputs=(f"t{at}",),
            outputs=(f"t{at + 1}",),
        )
        for at, placement in enumerate(placements)
    )
    tensors = {"t0": Tensor(name="t0", dtype="float16", shape=("batch", 3, None))}
    graph = Graph(inputs=("t0",), outputs=("t5",), nodes=nodes, tensors=tensors)
    broken = RuleFinding(
        rule="softmax.axis",
        requirement="the axis is that of the channels",
        found="axis -1",
        hint="transpose <before>",
        page="Working with DLA",
    )
    judged = tuple(
        JudgedNode(
            index=node.index,
            name=node.name,
            op=node.op,
            placement=placement,
            findings=(broken,) if placement == "gpu" else (),
            reason="into the layer before it" if placement == "folded" else None,
            loadable=0 if placement == "dla" else None,
            island=0 if placement == "gpu" else None,
        )
        for node, placement in zip(nodes, placements, strict=True)
    )
    part = Part(number=0, first="", last="", nodes=(0,))
    fields = {
        "model": NASTY,
        "tensorrt": "8.6",
        "tensorrt_reason": "asked for",
        "precision": "fp16",
        "verdict": "mixed",
        "is_ready": False,
        "loadable_limit": 16,
        "nodes": judged,
        "loadables": (part,),
        "islands": (part.model_copy(update={"nodes": (1,)}),),
    }
    return graph, Inspection.model_validate({**fields, **changes})


def drawn(*arguments):
    """Return the root of a picture."""
    return ElementTree.fromstring(picture(*arguments))


def boxes_of(root):
    """Return each box as its class and its title, in order."""
    groups = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}rect") is not None]
    return [
        (group.find(f"{SVG}rect").get("class"), group.findtext(f"{SVG}title")) for group in groups
    ]


def test_names_cannot_break_the_file():
    root = drawn(*inspected())
    marked = "dla" + NASTY.replace("\x00", "\ufffd").replace("\x1b", "\ufffd").replace(
        "\ud800", "\ufffd"
    )
    assert marked in boxes_of(root)[1][1]
    assert root.get("role") == "img"
    assert {element.tag for element in root.iter()} == {
        f"{SVG}{name}" for name in ("svg", "title", "style", "rect", "text", "tspan", "g", "path")
    }
    assert not [key for element in root.iter() for key in element.attrib if key.startswith("on")]


def test_the_headline_fits_into_a_narrow_picture():
    words = "on the DLA and the GPU; 1 loadable, 1 GPU island; fp16, rules of TensorRT 8.6"
    for name in ("m.onnx", "a-model-with-a-name-as-long-as-an-experiment-has-" * 2):
        root = drawn(*inspected(model=name))
        assert words in [element.text for element in root.iter(f"{SVG}text")]
        # At 12 and 15 pixels no letter of a sans-serif face is on average wider than this.
        assert float(root.get("width")) >= 24 + max(6.6 * len(words), 8.8 * len(name))


def test_a_colour_shows_the_placement_and_a_title_the_rule():
    boxes = boxes_of(drawn(*inspected()))
    colours = [colour for colour, _ in boxes]
    assert colours == ["edge", "dla0", "gpu", "folded", "constant", "unknown", "edge"]
    titles = [title for _, title in boxes]
    assert "DLA, loadable 0" in titles[1]
    assert "GPU, island 0\nbreaks: the axis is that of the channels (softmax.axis)" in titles[2]
    assert "found axis -1\nremedy: transpose <before>" in titles[2]
    assert "into the layer before it" in titles[3]
    assert titles[4].endswith("\nconstant")


def test_every_colour_has_a_style_by_day_and_by_night():
    root = drawn(*inspected())
    style = root.findtext(f"{SVG}style")
    day, night = style.split("prefers-color-scheme: dark")
    for colour in {rectangle.get("class") for rectangle in root.iter(f"{SVG}rect")}:
        assert f".{colour} {{ fill: #" in day
        assert f".{colour} {{ fill: #" in night


def test_the_legend_counts_what_there_is():
    words = {text.text for text in drawn(*inspected()).iter(f"{SVG}text")}
    assert {"DLA 0 · 1 node", "GPU · 1 node", "constant · 1 node", "unknown · 1 node"} <= words
    graph, found = inspected()
    parts = tuple(Part(number=at, first="", last="", nodes=(at, at)) for at in range(11))
    words = {text.text for text in drawn(*inspected(loadables=parts)).iter(f"{SVG}text")}
    assert {"DLA 7 · 2 nodes", "and 3 more loadables"} <= words
    alone = found.model_copy(update={"nodes": found.nodes[:1]})
    words = " ".join(text.text or "" for text in drawn(graph, alone).iter(f"{SVG}text"))
    assert "unknown ·" not in words


def test_a_tensor_shows_its_shape_if_known():
    lines = [path.findtext(f"{SVG}title") for path in drawn(*inspected()).iter(f"{SVG}path")]
    assert lines[0] == "t0\nfloat16, batch×3×?"
    assert lines[1] == "t1\nunknown type, unknown shape"


@pytest.mark.parametrize("name", ["resnet50", "yololike", "vit-tiny"])
def test_a_whole_model_is_drawn(graphs, name):
    graph = graphs[name]
    judged = tuple(
        JudgedNode(index=one.index, name=one.name, op=one.op, placement="dla", loadable=one.index)
        for one in graph.nodes
    )
    costs = costs_of(graph, judged, (), (), "fp16")
    _, found = inspected(nodes=judged, loadables=(), islands=(), costs=costs)
    root = drawn(graph, found)
    boxes = boxes_of(root)
    assert len(boxes) == len(graph.nodes) + 2
    assert {colour for colour, _ in boxes} == {"edge"} | {f"dla{at}" for at in range(6)}
    read = sum(
        len({one for one in node.inputs if one in graph.producers or one in graph.inputs})
        for node in graph.nodes
    )
    assert len(list(root.iter(f"{SVG}path"))) == read + len(graph.outputs)
    first = next(title for _, title in boxes if title.startswith("Conv"))
    assert "FLOP, " in first
    assert "FLOP/B" in first
