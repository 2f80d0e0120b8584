"""TensorRT's own parser accepts the models that the rules are tested on.

``pip install tensorrt-rtx-cu13`` brings a parser and a builder that need no GPU.
"""

import math

import onnx
import pytest

from tegrascope.collectors.backends.tensorrt_build import logger_of
from tegrascope.collectors.backends.tensorrt_probe import ask_layers, look_at_layers
from tegrascope.workbench.inspect.judge import check_builder, inspect_graph
from tegrascope.workbench.inspect.rules import rules_of
from tests.inspect.cases import CASES
from tests.inspect.conftest import FAMILIES

trt = pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

# Models that it has to refuse, and why: the rule is about just that.
REFUSED = {
    ("general.known-operator", "breaks"): "Plugin not found",
    ("pooling.dilation", "breaks"): "does not support dilations",
}


def holds(weight):
    """Return whether a weight has its values with it."""
    return any(field.name.endswith("_data") for field, _ in weight.ListFields())


def whole(made):
    """Return a model with what the parser requires: types of outputs, and weights of zeros."""
    found = onnx.shape_inference.infer_shapes(made)
    for weight in found.graph.initializer:
        kind = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type)
        size = math.prod(weight.dims) * kind.itemsize
        if size and not holds(weight):
            weight.raw_data = bytes(size)
    return found


@pytest.fixture(scope="module")
def parse():
    """Parse a model; returns the complaint of the parser, or nothing."""
    logger, _ = logger_of(trt)
    builder = trt.Builder(logger)

    def call(made):
        network = builder.create_network(0)  # which has to live as long as its parser
        parser = trt.OnnxParser(network, logger)
        if parser.parse(whole(made).SerializeToString()):
            return ""
        return parser.get_error(parser.num_errors - 1).desc()

    return call


def test_each_model_of_a_rule_is_read(parse):
    complaints = {
        (rule, side): parse(getattr(case, side))
        for rule, case in CASES.items()
        for side in ("breaks", "keeps")
    }
    refused = {which: complaint for which, complaint in complaints.items() if complaint}
    assert set(refused) == set(REFUSED)
    for which, complaint in refused.items():
        assert REFUSED[which] in complaint


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_is_read_and_its_nodes_are_found_again(families, graphs, name):
    graph = graphs[name]
    shape = (1, 3, FAMILIES[name], FAMILIES[name])
    answers = look_at_layers(families[name], None, {"image": shape}, "tensorrt_rtx")
    assert (answers.problem, answers.dla_cores) == (None, 0)
    inspection = inspect_graph(graph, rules_of("10.3"), model=name, reason="")
    # As a board with a DLA would answer that takes all of it.
    yes = tuple(layer.model_copy(update={"on_dla": True}) for layer in answers.layers)
    check = check_builder(
        graph, inspection, answers.model_copy(update={"dla_cores": 1, "layers": yes})
    )
    places = [node.placement for node in inspection.nodes]
    assert check.problem is None
    assert check.compared == places.count("dla") + places.count("gpu")
    assert check.answered == places.count("unknown")
    assert check.agreed == places.count("dla")


def test_answers_without_a_dla_are_ignored(families, graphs):
    graph = graphs["mobilenetv2"]
    inspection = inspect_graph(graph, rules_of("10.3"), model="", reason="")
    shapes = {"image": (1, 3, 224, 224)}
    answers = ask_layers(families["mobilenetv2"], "fp16", shapes, "tensorrt_rtx")
    assert {layer.on_dla for layer in answers.layers} == {None}
    check = check_builder(graph, inspection, answers)
    assert "finds no DLA here" in check.problem
    assert (check.compared, check.differences) == (0, ())
