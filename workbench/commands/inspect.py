"""``tegrascope inspect``: arguments and run."""

import argparse
from functools import partial

from ...daemon.commands import Options, input_shape
from ...parsers.errors import UsageError

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
    from ...collectors.models.files import find_model, read_graph_apart, sha256_of
    from ...daemon.outputs import check_output, open_output, standard_output
    from ...daemon.terminal import CHECK_SAYS_NO, GOOD
    from ..inspect.judge import (
        check_builder,
        check_engine,
        find_evidence,
        inspect_graph,
        shapes_in_metadata,
    )
    from ..inspect.rules import choose_rules

    if arguments.verify and arguments.strict_int8:
        raise UsageError("--verify asks for a build that allows FP16 too", "leave one of them out")
    if arguments.cut != (arguments.output is not None):
        raise UsageError("--cut and -o need each other", "give both: --cut -o DIR")
    if arguments.cut:
        for name in ("verify", "against", "dot", "all"):
            if getattr(arguments, name):
                raise UsageError(
                    f"--cut writes no report, so --{name} says nothing", "leave one out"
                )
    check_output(arguments.dot, "--dot")
    shapes = {name: given.shape for name, given in arguments.shape}
    rules, reason = choose_rules(arguments.tensorrt)
    path = find_model(arguments.model, arguments.state_dir / "models")
    graph = read_graph_apart(path, shapes)
    assumed_shapes = shapes_in_metadata(graph)
    if assumed_shapes:
        shapes |= assumed_shapes
        graph = read_graph_apart(path, shapes)
    judge = partial(
        inspect_graph,
        rules=rules,
        model=arguments.model,
        reason=reason,
        precision=arguments.precision,
        is_strict=arguments.strict_int8,
        assumed_shapes=assumed_shapes,
    )
    if arguments.cut:
        from ..inspect.cut import cut_model, print_cut

        cut = cut_model(path, graph, judge, arguments.output)
        if arguments.json:
            print(cut.model_dump_json(exclude_none=True), file=standard_output())
        else:
            print_cut(arguments.model, cut)
        return GOOD
    inspection = judge(graph)
    checks = []
    if arguments.verify:
        from ...collectors.backends.tensorrt_probe import ask_layers

        checks.append(
            check_builder(graph, inspection, ask_layers(path, inspection.precision, shapes))
        )
    if arguments.against is not None:
        evidence = find_evidence(arguments.against, arguments.state_dir)
        source = evidence.source
        if evidence.model_sha256 not in (None, sha256_of(path)):
            source = f"{source}, built from another file"
        checks.append(check_engine(graph, inspection, evidence.placement, source))
    if checks:
        inspection = inspection.model_copy(update={"checks": tuple(checks)})
    if arguments.dot is not None:
        from ..inspect.drawing import drawing

        with open_output(arguments.dot, "--dot") as output:
            output.write(drawing(graph, inspection))
    if arguments.json:
        print(inspection.model_dump_json(exclude_none=True), file=standard_output())
    else:
        from ..inspect.report import print_inspection

        print_inspection(inspection, shows_all=arguments.all)
    is_refuted = any(check.is_refuted for check in inspection.checks)
    return GOOD if inspection.is_ready and not is_refuted else CHECK_SAYS_NO
