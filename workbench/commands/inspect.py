"""``tegrascope inspect``: arguments and run."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...daemon.commands import Options, input_shape
from ...parsers.errors import UsageError

if TYPE_CHECKING:
    from ...parsers.onnx.graph import Graph
    from ..inspect.rules import EvidenceCheck, Inspection

EXAMPLE = (
    "tegrascope inspect detector.onnx --shape images:1x3x640x640\n"
    "  tegrascope inspect builtin:resnet50 --tensorrt 8.6 --precision int8 --json"
)


def add(option: Options) -> None:
    """Add the options."""
    option("model MODEL", "ONNX file, or builtin:NAME")
    option(
        "--tensorrt VERSION",
        "release whose rules apply: 8.5, 8.6, 10.3, 11.4 (default: as installed, else 10.3)",
    )
    option(
        "--precision",
        "precision to build for; FP32 counts as converted (default: the model's own types)",
        choices=("fp16", "int8"),
    )
    option(
        "--strict-int8",
        "judge a build that allows INT8 alone; bench and engines build also allow FP16",
    )
    option(
        "--shape NAME:1x3x224x224",
        "fix the open dimensions of an input; may be repeated",
        action="append",
        type=input_shape,
        default=[],
    )
    option("--all", "print one line per node")
    option("--verify", "ask the TensorRT of this board for each layer, and show where it differs")
    option(
        "--against ENGINE",
        "show where a built engine differs: a run, a key of engines list, a result.json, or a"
        " build log",
    )
    option("--dot FILE", "also write the model for Graphviz, coloured by placement")
    option(
        "--cut",
        "write the part that fits the DLA and the rest as two models, which together compute the"
        " same",
    )
    option("-o, --output DIR", "where --cut writes body.onnx and head.onnx")
    option("--json", "print one JSON object; see docs/inspect.md")
    option.state_dir("where built-in models are cached")


def run(arguments: argparse.Namespace) -> int:
    """Print where each node of a model would run; return 3 unless all of it fits the DLA.

    With ``--cut``, write its two parts instead, and return 0.
    """
    from ...daemon.terminal import CHECK_SAYS_NO, GOOD

    _check_arguments(arguments)
    path, graph, shapes, judge = _prepare(arguments)
    if arguments.cut:
        _cut(arguments, path, graph, judge)
        return GOOD
    inspection = judge(graph)
    checks = tuple(_checks(arguments, path, graph, shapes, inspection))
    inspection = inspection.model_copy(update={"checks": checks})
    _write(arguments, graph, inspection)
    is_refuted = any(check.is_refuted for check in checks)
    return GOOD if inspection.is_ready and not is_refuted else CHECK_SAYS_NO


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Raise an error for options that do not go together, or an output that cannot be written."""
    from ...daemon.outputs import check_output

    if arguments.verify and arguments.strict_int8:
        raise UsageError("--verify asks for a build that allows FP16 too", "leave one of them out")
    if arguments.cut != (arguments.output is not None):
        raise UsageError("--cut and -o need each other", "give both: --cut -o DIR")
    for name in ("verify", "against", "dot", "all"):
        if arguments.cut and getattr(arguments, name):
            raise UsageError(f"--cut writes no report, so --{name} says nothing", "leave one out")
    check_output(arguments.dot, "--dot")


def _prepare(
    arguments: argparse.Namespace,
) -> "tuple[Path, Graph, dict[str, tuple[int, ...]], Callable[[Graph], Inspection]]":
    """Return the model's file and graph, the shapes of inputs, and what judges a graph."""
    from ...collectors.models.files import find_model
    from ..inspect.judge import inspect_graph, read_with_metadata
    from ..inspect.rules import choose_rules

    shapes = {name: given.shape for name, given in arguments.shape}
    rules, reason = choose_rules(arguments.tensorrt)
    path = find_model(arguments.model, arguments.state_dir / "models")
    graph, assumed_shapes = read_with_metadata(path, shapes)
    judge = partial(
        inspect_graph,
        rules=rules,
        model=arguments.model,
        reason=reason,
        precision=arguments.precision,
        is_strict=arguments.strict_int8,
        assumed_shapes=assumed_shapes,
    )
    return path, graph, shapes | assumed_shapes, judge


def _cut(
    arguments: argparse.Namespace,
    path: Path,
    graph: "Graph",
    judge: "Callable[[Graph], Inspection]",
) -> None:
    """Write the two parts of a model, and print what was changed."""
    from ...daemon.outputs import standard_output
    from ..inspect.cut import cut_model, print_cut

    cut = cut_model(path, graph, judge, arguments.output)
    if arguments.json:
        print(cut.model_dump_json(exclude_none=True), file=standard_output())
    else:
        print_cut(arguments.model, cut)


def _checks(
    arguments: argparse.Namespace,
    path: Path,
    graph: "Graph",
    shapes: "Mapping[str, tuple[int, ...]]",
    inspection: "Inspection",
) -> "Iterator[EvidenceCheck]":
    """Yield comparisons of the prediction with the evidence that was asked for."""
    from ...collectors.models.files import sha256_of
    from ..inspect.judge import check_builder, check_engine, find_evidence

    if arguments.verify:
        from ...collectors.backends.tensorrt_probe import ask_layers

        answers = ask_layers(path, inspection.precision, shapes)
        yield check_builder(graph, inspection, answers)
    if arguments.against is not None:
        evidence = find_evidence(arguments.against, arguments.state_dir)
        source = evidence.source
        if evidence.model_sha256 not in (None, sha256_of(path)):
            source = f"{source}, built from another file"
        yield check_engine(graph, inspection, evidence.placement, source)


def _write(arguments: argparse.Namespace, graph: "Graph", inspection: "Inspection") -> None:
    """Write the drawing if it was asked for, and print the inspection."""
    from ...daemon.outputs import open_output, standard_output

    if arguments.dot is not None:
        from ..inspect.drawing import drawing

        with open_output(arguments.dot, "--dot") as output:
            output.write(drawing(graph, inspection))
    if arguments.json:
        print(inspection.model_dump_json(exclude_none=True), file=standard_output())
    else:
        from ..inspect.report import print_inspection

        print_inspection(inspection, shows_all=arguments.all)
