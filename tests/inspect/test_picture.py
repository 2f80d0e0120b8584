"""The picture of an inspection: boxes in a column, lanes, valid XML, colours with words."""

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tegrascope.parsers.onnx.graph import Graph, Node, Tensor
from tegrascope.workbench.inspect.costs import costs_of
from tegrascope.workbench.inspect.picture import Edge, lanes_of, picture
from tegrascope.workbench.inspect.rules import Inspection, JudgedNode, Part, RuleFinding

SVG = "{http://www.w3.org/2000/svg}"
LAW = settings(derandomize=True, deadline=None, database=None)


@st.composite
def acyclic(draw):
    """Return edges that lead to later boxes, each with a tensor of its source."""
    count = draw(st.integers(1, 14))
    every = list(combinations(range(count), 2))
    chosen = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    return [Edge(*edge, f"t{edge[0]}.{draw(st.integers(0, 1))}") for edge in chosen]


@LAW
@given(acyclic())
def test_tensors_that_pass_a_row_together_have_lanes_of_their_own(edges):
    lanes = lanes_of(edges)
    long = [edge for edge in edges if edge.target > edge.source + 1]
    assert lanes.keys() == {edge.tensor for edge in long}
    for one, other in combinations(long, 2):
        if one.tensor != other.tensor and lanes[one.tensor] == lanes[other.tensor]:
            assert one.target < other.source or other.target < one.source


def test_one_tensor_with_many_readers_takes_one_lane():
    chain = [Edge(at, at + 1, str(at)) for at in range(1, 101)]
    mask = [Edge(0, at, "mask") for at in range(2, 102)]
    assert lanes_of(chain + mask) == {"mask": 0}


def test_a_chain_has_no_lane_and_a_skipped_box_has_one():
    chain = [Edge(at, at + 1, str(at)) for at in range(4)]
    assert lanes_of(chain) == {}
    assert lanes_of([*chain, Edge(1, 3, "1"), Edge(0, 4, "0")]) == {"0": 0, "1": 1}


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
    root = drawn(graph, found, ENDLESS)
    assert float(root.get("width")) < 2_000
    names = [name for _, name in boxes_of(root)]
    assert len(names) == count * length + 3
    assert all(x >= 0 for x in reached_by(root))


# A limit that no model of these tests reaches, so that nothing is folded.
ENDLESS = 1e9


def blocks(count, *, differ=False):
    """Return a model of equal blocks, each one loadable and one island, and what was found.

    With ``differ``, no two blocks have the same operators.
    """
    nodes, judged = [], []
    for block in range(count):
        for step, (op, placement) in enumerate(
            [("Conv", "dla"), ("Relu", "dla"), ("Conv", "folded"), ("Softmax", "gpu")]
        ):
            at = len(nodes)
            name = f"block{block}.{step}"
            op = f"{op}{block}" if differ else op
            nodes.append(
                Node(index=at, name=name, op=op, inputs=(f"t{at}",), outputs=(f"t{at + 1}",))
            )
            judged.append(
                JudgedNode(
                    index=at,
                    name=name,
                    op=op,
                    placement=placement,
                    loadable=block if placement == "dla" else None,
                    island=block if placement == "gpu" else None,
                )
            )
    graph = Graph(inputs=("t0",), outputs=(f"t{len(nodes)}",), nodes=tuple(nodes))
    _, found = inspected(nodes=tuple(judged), loadables=(), islands=())
    return graph, found


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("count", [2, 26, 30, 47, 400, 2_000])
def test_no_picture_is_taller_than_the_limit(count, differ):
    graph, found = blocks(count, differ=differ)
    root = drawn(graph, found)
    assert float(root.get("height")) <= 4_000
    assert float(root.get("width")) < 2_000
    rows = [float(group.get("transform").split()[1][:-1]) for group in boxes_in(root)]
    assert rows == [36.0 * at for at in range(len(rows))]


@pytest.mark.parametrize("name", ["resnet50", "yololike", "vit-tiny"])
@pytest.mark.parametrize("tallest", [500.0, 1_000.0, 4_000.0])
def test_any_model_is_folded_to_the_height_that_is_asked_for(graphs, name, tallest):
    graph = graphs[name]
    judged = tuple(
        JudgedNode(index=node.index, name=node.name, op=node.op, placement="dla", loadable=0)
        for node in graph.nodes
    )
    _, found = inspected(nodes=judged, loadables=(), islands=())
    assert float(drawn(graph, found, tallest).get("height")) <= tallest


def test_a_model_of_many_inputs_is_folded_too():
    inputs = tuple(f"x{at}" for at in range(900))
    join = Node(index=0, name="join", op="Concat", inputs=inputs, outputs=("y",))
    _, found = inspected(nodes=(), loadables=(), islands=())
    root = drawn(Graph(inputs=inputs, outputs=("y",), nodes=(join,)), found)
    assert float(root.get("height")) <= 4_000
    assert "×900" in texts_of(root)


def test_equal_parts_stand_once_with_their_number():
    root = drawn(*blocks(47))
    titles = [group.findtext(f"{SVG}title") for group in boxes_in(root)]
    assert len(titles) == 6
    assert titles[1].startswith("47 equal ones, of which this is the first\nConv block0.0")
    assert titles[4].startswith("47 equal ones, of which this is the first\nSoftmax block0.3")
    assert {"DLA ×47", "GPU ×47"} <= texts_of(root)
    (bracket,) = (path for path in root.iter(f"{SVG}path") if path.find(f"{SVG}title") is None)
    assert bracket.get("d") == f"M383 {36 - 13}h6V{4 * 36 + 13}h-6"


def test_parts_that_differ_are_one_box_each():
    """A folded node belongs to the part around it."""
    root = drawn(*blocks(40, differ=True))
    titles = [group.findtext(f"{SVG}title") for group in boxes_in(root)]
    assert len(titles) == 2 + 2 * 40
    assert titles[1] == "loadable 0, 3 nodes\nConv0 block0.0\nRelu0 block0.1\nConv0 block0.2"
    assert {"loadable 39", "GPU island 39"} <= texts_of(root)


def test_what_does_not_fit_is_left_out_in_the_middle_and_counted():
    root = drawn(*blocks(400, differ=True))
    titles = [group.findtext(f"{SVG}title") for group in boxes_in(root)]
    (gap,) = (title for title in titles if title.startswith("…"))
    hidden = 2 * 400 + 2 - (len(titles) - 1)
    assert gap.startswith(f"… {hidden} more boxes, ")
    assert titles[0] == "t0"
    assert titles[-1] == "t1600"


def test_a_strip_shows_the_whole_of_a_folded_model():
    (strip,) = strips_in(drawn(*blocks(47)))
    slices = strip.findall(f"{SVG}rect")
    assert len(slices) == 3 * 47
    assert slices[0].findtext(f"{SVG}title") == "loadable 0, about node 1 to 2"
    widths = sum(float(one.get("width")) for one in slices)
    last = slices[-1]
    assert widths == pytest.approx(float(last.get("x")) + float(last.get("width")), rel=1e-3)
    assert len(strips_in(drawn(*blocks(2_000)))[0].findall(f"{SVG}rect")) <= 300
    assert not strips_in(drawn(*blocks(2)))


def boxes_in(root):
    """Return the groups of the boxes, in order."""
    return [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]


def strips_in(root):
    groups = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}rect") is not None]
    return [group for group in groups if group.find(f"{SVG}title") is None]


def texts_of(root):
    return {element.text for element in root.iter(f"{SVG}text")}


def reached_by(root):
    """Return the distance of each line from the left edge, where it is nearest."""
    (drawing,) = (one for one in root.findall(f"{SVG}g") if one.find(f"{SVG}path") is not None)
    left = float(re.match(r"translate\((\S+)", drawing.get("transform"))[1])
    for path in drawing.findall(f"{SVG}path"):
        yield left + min(float(x) for x in re.findall(r"[MHQ](-?[\d.]+)", path.get("d")))


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


def test_a_loadable_is_never_called_like_a_core():
    """``DLA 0`` is a core everywhere else."""
    graph, found = blocks(12)
    words = ElementTree.tostring(drawn(graph, found), encoding="unicode")
    assert re.search(r"DLA \d", words) is None
    assert "loadable 11" in words


def test_every_colour_has_a_style_by_day_and_by_night():
    root = drawn(*inspected())
    style = root.findtext(f"{SVG}style")
    day, night = style.split("prefers-color-scheme: dark")
    for colour in {rectangle.get("class") for rectangle in root.iter(f"{SVG}rect")}:
        assert f".{colour} {{ fill: #" in day
        assert f".{colour} {{ fill: #" in night


def test_the_legend_counts_what_there_is():
    words = {text.text for text in drawn(*inspected()).iter(f"{SVG}text")}
    assert {"loadable 0 · 1 node", "GPU · 1 node", "constant · 1 node", "unknown · 1 node"} <= words
    graph, found = inspected()
    parts = tuple(Part(number=at, first="", last="", nodes=(at, at)) for at in range(11))
    words = {text.text for text in drawn(*inspected(loadables=parts)).iter(f"{SVG}text")}
    assert {"loadable 7 · 2 nodes", "and 3 more loadables"} <= words
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
    root = drawn(graph, found, ENDLESS)
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
