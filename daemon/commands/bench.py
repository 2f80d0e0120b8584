"""``tegrascope bench``."""

import argparse
from pathlib import Path

from ...collectors.catalog import BACKENDS, PROGRAM_BACKEND, SOURCES
from .common import (
    Commands,
    add_command,
    add_fallback,
    add_state_dir,
    cpus,
    devices,
    positive,
    positive_seconds,
)


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "bench",
        "tegrascope bench --builtin resnet50 --on gpu,dla0\n"
        "  tegrascope bench detector.onnx --precision fp16 --fallback forbid -o detector\n"
        "  tegrascope bench yolo.onnx seg.onnx --contention --on gpu,dla0,dla1\n"
        "  tegrascope bench --builtin mobilenet --simulate",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="ONNX file, or builtin:NAME")
    parser.add_argument(
        "--builtin", action="append", default=[], metavar="NAME", help="the same as builtin:NAME"
    )
    parser.add_argument(
        "--on",
        type=devices,
        metavar="LIST",
        help="of gpu,dla0,dla1,cpu (default: what this machine has of gpu,dla0, else cpu)",
    )
    parser.add_argument(
        "--backend",
        choices=[name for name in BACKENDS if name != PROGRAM_BACKEND],
        help="default: tensorrt on gpu and DLA, onnxruntime on cpu",
    )
    parser.add_argument(
        "--precision", choices=("fp32", "fp16", "int8"), help="default: the back-end's"
    )
    parser.add_argument(
        "--optimization-level",
        type=int,
        choices=range(6),
        metavar="0-5",
        help="how hard TensorRT tries: 0 builds fast (default: TensorRT's own)",
    )
    parser.add_argument("--batch", type=positive, default=1, metavar="N")
    parser.add_argument(
        "--streams", type=positive, default=1, metavar="N", help="inferences in flight at once"
    )
    parser.add_argument(
        "--no-cuda-graph", action="store_true", help="launch each inference layer by layer"
    )
    parser.add_argument(
        "--no-transfers", action="store_true", help="leave inputs and outputs on the device"
    )
    add_fallback(parser)
    parser.add_argument(
        "--duration", type=positive_seconds, metavar="S", help="of a round (default: 15)"
    )
    parser.add_argument(
        "--baseline",
        type=positive_seconds,
        metavar="S",
        help="idle time before and after a round, for the net energy (default: 8)",
    )
    parser.add_argument("--warm-up", type=positive_seconds, default=1.0, metavar="S")
    parser.add_argument(
        "--rounds",
        type=positive,
        default=4,
        metavar="N",
        help="of each accelerator at least, made even; more until they agree (default: 4)",
    )
    parser.add_argument(
        "--telemetry",
        choices=(*SOURCES, "none"),
        help="default: tegrastats, else nvml, else none",
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="take telemetry: and board: from it"
    )
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="a simulated board, its accelerators played by the CPU: to try the command",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="for result.json and report.html (default: tegrascope-bench-DATE-TIME)",
    )
    parser.add_argument("--json", action="store_true", help="print result.json, not the table")
    parser.add_argument(
        "--contention",
        action="store_true",
        help="two or three models: how much they slow each other, in every placement",
    )
    parser.add_argument(
        "--nsys",
        action="store_true",
        help="one more pass of each under Nsight Systems, its report beside the results",
    )
    sharing = parser.add_argument_group("how the workers share the machine")
    sharing.add_argument("--nice", type=int, choices=range(20), default=0, metavar="0-19")
    sharing.add_argument(
        "--cpus", type=cpus, default=(), metavar="LIST", help="cores to run on, as 4,5"
    )
    sharing.add_argument(
        "--mps-percentage",
        type=int,
        choices=range(1, 101),
        metavar="1-100",
        help="share of the GPU's multiprocessors, under NVIDIA MPS",
    )
    add_state_dir(parser, "where models and engines are cached")

    def command(arguments: argparse.Namespace) -> int:
        if not arguments.models and not arguments.builtin:
            parser.error("no model is named: give an ONNX file, or --builtin resnet50")
        from ..bench.command import bench

        return bench(arguments)

    parser.set_defaults(command=command)
