"""What the worker's measuring costs: its loop against a bare one with the same inference.

Both run in one process, in short turns, so that other work on the machine slows both. The worker's
side is all that a run does: stamps, the device's times, and the events that a reader takes from a
pipe. The bare loop calls the inference and looks at the clock once in 64 times.

Two inferences: a stand-in that keeps the CPU busy for 50 us and has three stages, and ONNX Runtime
with a small model, in a session of its own in the bare loop.

    python tools/benchmarks/worker_loop.py
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

from tegrascope.collectors.backends.base import Inferring, make_input
from tegrascope.collectors.backends.onnxruntime import OnnxRuntime
from tegrascope.collectors.worker.child import Outbox
from tegrascope.collectors.worker.run_loop import Runner, quiet_collector
from tegrascope.parsers.inference.events import Inferences, Order, Phase, StageName
from tegrascope.parsers.records import Record

MOST_LOSS = 0.05
TURN_SECONDS = 0.25
BUSY_NS = 50_000


class BusyCpu(Inferring):
    """An inference of ``BUSY_NS`` on the CPU, with the stages of a GPU."""

    stages: tuple[StageName, ...] = ("h2d", "compute", "d2h")

    def infer(self) -> None:
        """Keep the CPU busy."""
        until_ns = time.monotonic_ns() + BUSY_NS
        while time.monotonic_ns() < until_ns:
            pass

    def stages_ns(self) -> tuple[int, int, int]:
        """Return made-up times."""
        return 1_000, BUSY_NS - 2_000, 1_000


class Worker:
    """Runs orders as the worker process does, and counts what it prints."""

    def __init__(self, make: Callable[[], Inferring], model: Path) -> None:
        self._model = model
        self._reader = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0
        )
        assert self._reader.stdin is not None
        self._outbox = Outbox(self._reader.stdin)  # type: ignore[arg-type]
        self._runner = Runner(lambda _: make(), self._tell, Event())
        self._count, self._between_ns, self._begin_ns, self._end_ns = 0, 0, 0, 0

    def _tell(self, event: Record) -> None:
        self._outbox.print(event)
        if isinstance(event, Inferences):
            self._count += len(event.start_ns)
            self._between_ns += event.between_ns or 0
        elif isinstance(event, Phase) and event.phase == "steady":
            if event.edge == "begin":
                self._begin_ns = event.at_ns
            else:
                self._end_ns = event.at_ns

    def rate(self) -> tuple[float, float]:
        """Return inferences per second of one run, and the share of its time between them."""
        self._count = self._between_ns = 0
        order = Order(
            run_id="loop",
            backend="loop",
            device="cpu",
            model=str(self._model),
            model_directory=str(self._model.parent),
            threads=1,
            warm_up_seconds=0.0,
            duration_seconds=TURN_SECONDS,
        )
        self._runner.run(order)
        took_ns = self._end_ns - self._begin_ns
        return self._count / took_ns * 1e9, self._between_ns / took_ns

    def close(self) -> None:
        """End the reader."""
        self._runner.close()
        assert self._reader.stdin is not None
        self._reader.stdin.close()
        self._reader.wait()


def bare_rate(infer: Callable[[], Any]) -> float:
    """Return inferences per second of a loop that measures nothing else."""
    with quiet_collector():
        count = 0
        begin_ns = now_ns = time.monotonic_ns()
        while now_ns - begin_ns < TURN_SECONDS * 1e9:
            for _ in range(64):
                infer()
            count += 64
            now_ns = time.monotonic_ns()
    return count / (now_ns - begin_ns) * 1e9


def write_model(path: Path) -> None:
    """Write a few small matrix products, which take some tens of microseconds."""
    import onnx
    from onnx import helper, numpy_helper

    nodes, weights, source = [], [], "given"
    for at in range(8):
        weight = make_input(f"w{at}", "float32", (256, 256))
        weights.append(numpy_helper.from_array(weight, f"w{at}"))
        nodes.append(helper.make_node("MatMul", [source, f"w{at}"], [f"m{at}"]))
        nodes.append(helper.make_node("Tanh", [f"m{at}"], [f"t{at}"]))
        source = f"t{at}"
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 256])
        for name in ("given", source)
    ]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], weights)
    opset = helper.make_opsetid("", 13)
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[opset]), path)


def plain_session(model: Path) -> Callable[[], Any]:
    """Return the call of an inference of ONNX Runtime, with the settings of the back-end."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for threads in ("intra_op", "inter_op"):
        options.add_session_config_entry(f"session.{threads}.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("given", make_input("given", "float32", (1, 256)))
    binding.bind_output(session.get_outputs()[0].name)
    return lambda: session.run_with_iobinding(binding)


def compare(name: str, worker: Worker, infer: Callable[[], Any], turns: int) -> bool:
    """Print the ratio of both rates; return whether the worker loses too much."""
    ours, bare, shares = [], [], []
    worker.rate()
    for _ in range(turns):
        rate, share = worker.rate()
        ours.append(rate)
        shares.append(share)
        bare.append(bare_rate(infer))
    # Other work on the machine slows some turns of each side, and quickens none.
    ratio = max(ours) / max(bare)
    paired = median(mine / plain for mine, plain in zip(ours, bare, strict=True))
    missed = ratio < 1 - MOST_LOSS
    print(
        f"{'MISSED' if missed else 'good  '} {name}: worker {max(ours):.0f} inferences/s, bare loop"
        f" {max(bare):.0f}, ratio {ratio:.4f} of the best turns (at least {1 - MOST_LOSS:.2f}),"
        f" {paired:.4f} the median of {turns} pairs; the record names {median(shares):.2%} for"
        " measuring"
    )
    worker.close()
    return missed


def main() -> int:
    """Compare both inferences; exit 1 where the worker loses too much."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=20, help="of each side")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "small.onnx"
        write_model(model)
        missed = [
            compare("50 us of CPU", Worker(BusyCpu, model), BusyCpu().infer, options.turns),
            compare(
                "ONNX Runtime", Worker(OnnxRuntime, model), plain_session(model), options.turns
            ),
        ]
    return 1 if any(missed) else 0


if __name__ == "__main__":
    sys.exit(main())
