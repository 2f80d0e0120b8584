"""``bench --layers``: a pass of its own, its table for a terminal and for the page."""

import io
from pathlib import Path

import pytest

from tegrascope.parsers.inference.layers import EngineLayer, LayerProfile, read_layers
from tegrascope.parsers.inference.placement import Placement, placement_of
from tegrascope.workbench.cli import main
from tegrascope.workbench.results.document import print_document
from tegrascope.workbench.results.layers import layer_blocks, layer_table, side_by_side, time_rows
from tegrascope.workbench.results.records import AcceleratorResult, LayerRow

from .bench_fakes import FakeExecutors, Silence, make_bench, settings

RECORDED = Path(__file__).parents[3] / "shared/corpus/tensorrt/inspector_trt86_resnet50_b1.json"
SUBGRAPH = "{ForeignNode[conv1...conv2]}"


def row(name: str, us: float, *nodes: str, place: str = "gpu", share: float = 0.1) -> LayerRow:
    return LayerRow.model_validate(
        {"name": name, "nodes": nodes, "place": place, "seconds": us / 1e6, "share": share}
    )


def accelerator(device: str, *rows: LayerRow) -> AcceleratorResult:
    return AcceleratorResult.model_validate(
        {
            "device": device,
            "backend": "tensorrt",
            "status": "ok",
            "layers": rows,
            "profiled_seconds": sum(one.seconds for one in rows),
            "profiled_inferences": 50,
        }
    )


GPU = accelerator(
    "gpu",
    row("in copy", 2, place="reformat"),
    row("conv1 + relu1", 30, "conv1", "relu1"),
    row("conv2", 20, "conv2"),
    row("softmax", 5, "softmax"),
    row("reshape", 1, "softmax", place="reformat"),
)
DLA = accelerator(
    "dla0",
    row(SUBGRAPH, 900, "conv1", "relu1", "conv2", place="dla"),
    row("softmax", 7, "softmax"),
)


@pytest.fixture
def bench(tmp_path):
    """Measure simulated accelerators; return the result and what was said."""

    def run(*lines: str, add_work=None, **changes: object):
        model = tmp_path / "net.onnx"
        model.write_text("\n".join(lines))
        asked = settings(str(model), layers=True, **changes)
        display = Silence()
        made, workers = make_bench(tmp_path, asked, FakeExecutors(tmp_path), display)
        if add_work is not None:
            made.add_work = add_work
        try:
            return made.run(str(model)), display.progress.console.file.getvalue()
        finally:
            workers.close()

    return run


def test_each_accelerator_has_its_layers(bench):
    """The sum of the rows is the profiler's own total, and no figure counts the pass."""

    def add_work(_model, rows):
        return tuple(layer.model_copy(update={"flops": 7}) for layer in rows)

    result, _ = bench("gpu ms=3", "dla0 ms=17", add_work=add_work)
    for one in result.accelerators:
        assert [layer.name for layer in one.layers] == ["conv + relu", "out copy"]
        assert [layer.share for layer in one.layers] == [0.75, 0.25]
        assert one.layers[0].nodes == ("conv", "relu")
        assert one.layers[0].flops == 7
        assert sum(layer.seconds for layer in one.layers) == pytest.approx(
            one.profiled_seconds, rel=0.01
        )
        assert one.profiled_inferences == 50
        assert one.rounds == 2
    assert len(result.rounds) == 4


def test_an_accelerator_that_failed_is_not_profiled(bench):
    result, said = bench("gpu ms=3", "dla0 ending=unavailable")
    assert [len(one.layers) for one in result.accelerators] == [2, 0]
    assert "dla0: once more, to time" not in said


def test_a_back_end_without_layers_is_named(bench):
    result, said = bench("gpu ms=3", "dla0 ms=17", backend="onnxruntime")
    assert [one.layers for one in result.accelerators] == [(), ()]
    assert not list(layer_blocks(result.accelerators, is_page=True))
    assert "onnxruntime cannot time a layer, so gpu has no table of layers" in said


def test_layers_are_refused_where_the_back_end_has_none(tmp_path, capsys):
    (tmp_path / "m.onnx").touch()
    arguments = ("--layers", "--backend", "trtexec", "--state-dir", str(tmp_path))
    assert main(["bench", str(tmp_path / "m.onnx"), *arguments]) == 2
    assert "trtexec cannot time a layer" in capsys.readouterr().err


def test_names_of_the_profiler_join_those_of_the_inspector():
    """Every row of a recorded engine of 59 layers gets its kind, nodes, tactic and place."""
    if not RECORDED.is_file():
        pytest.skip("no ../shared/corpus/tensorrt beside this checkout")
    text = RECORDED.read_text(encoding="utf-8")
    layers = read_layers(text)
    times = {layer.name: 1000 + at for at, layer in enumerate(layers)}
    profile = LayerProfile(
        inferences=50, total_ns=sum(times.values()), layers_ns=times, layers=layers
    )
    rows = time_rows(profile, placement_of([], text, "gpu"))
    assert len(rows) == 59
    assert all(one.kind and one.place for one in rows)
    assert sum(one.seconds for one in rows) == pytest.approx(profile.total_ns / 1e9, rel=0.01)
    assert sum(one.share for one in rows) == pytest.approx(1.0)


def test_constants_have_no_row():
    constant = EngineLayer(name="w", kind="Constant", output_type="fp32")
    times = {"conv": 5, "w": 0, "copy of w": 1}
    profile = LayerProfile(inferences=1, total_ns=6, layers_ns=times, layers=(constant,))
    rows = time_rows(profile, Placement(verdict="gpu_only", gpu_layers=("conv",)))
    assert [one.name for one in rows] == ["conv", "copy of w"]


def test_a_row_without_a_layer_of_the_engine_stays():
    profile = LayerProfile(
        inferences=1, total_ns=5, layers_ns={SUBGRAPH: 4, "out from nvm": 1}, layers=()
    )
    dla, other = time_rows(profile, Placement(verdict="pure_dla", dla_layers=(SUBGRAPH,)))
    assert (dla.place, dla.share, other.place, other.kind) == ("dla", 0.8, None, "")


def test_a_terminal_shows_the_longest_layers_first():
    many = accelerator("gpu", *(row(f"layer{n}", n, share=0.05) for n in range(1, 21)))
    stream = io.StringIO()
    print_document(list(layer_blocks([many], is_page=False)), stream)
    printed = stream.getvalue()
    shown = [line.split()[0] for line in printed.splitlines() if line.startswith("  layer")][1:]
    assert shown == [f"layer{n}" for n in range(20, 5, -1)]
    assert "20 layers take 210 µs in sum; the profiler reported 210 µs" in printed
    assert "and 5 more, 25.0 % of the time" in printed


def test_a_page_shows_all_layers_and_both_accelerators():
    blocks = list(layer_blocks([GPU, DLA], is_page=True))
    titles = [block.text for block in blocks if hasattr(block, "level")]
    assert titles == ["Layers side by side", "Layers on gpu", "Layers on dla0"]
    words = " ".join(block.text for block in blocks if hasattr(block, "kind"))
    assert "The time of a DLA's subgraph contains the copies around it." in words


def test_accelerators_stand_side_by_side_by_node():
    """A subgraph stands once with its whole time; reformats without a node are summed."""
    table = side_by_side([GPU, DLA])
    assert [list(cells) for cells in table.rows] == [
        ["conv1, relu1", "gpu", "30.0 µs", "dla", "900 µs"],
        ["conv2", "gpu", "20.0 µs", "″", "″"],
        ["softmax", "gpu, reformat", "6.00 µs", "gpu", "7.00 µs"],
        ["without a node", "1 layer", "2.00 µs", "–", "–"],
    ]


def test_a_layer_of_one_accelerator_alone_has_a_dash_on_the_other():
    table = side_by_side([accelerator("gpu", row("conv1", 1, "conv1")), DLA])
    cells = {line[0]: line[1:3] for line in table.rows}
    assert list(cells["softmax"]) == ["–", "–"]


def test_columns_without_a_value_are_left_out():
    table = layer_table([EngineLayer(name="conv", precision="fp16")], is_page=True)
    assert list(table.columns) == ["layer", "computes in"]
    assert table.left == 2
