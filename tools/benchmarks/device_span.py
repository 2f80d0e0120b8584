"""The device span that a run reports, held against a bare loop round the same engine.

Both run in one process, on one GPU, in turns, without copies: what is enqueued between the two CUDA
events is ``execute_async_v3``, or the launch of a CUDA graph of it, and nothing else. The bare loop
uses nothing of tegrascope: it takes the plan that was built, on a stream of its own. What the host
adds to an inference is its latency by the host clock less the device span; that is told with the
copies of inputs and outputs too, as a run has them.

Needs an NVIDIA GPU, TensorRT and cuda-python:

    python tools/benchmarks/device_span.py --model builtin:resnet50 --engines /tmp/engines
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tegrascope.collectors.catalog import find_backend
from tegrascope.collectors.models.files import find_model
from tegrascope.parsers.inference.events import Order

MOST_SPAN_ERROR = 0.02
MOST_HOST_SECONDS = 10e-6


class BareLoop:
    """A TensorRT plan, run as plainly as can be."""

    def __init__(self, plan: Path, *, as_graph: bool) -> None:
        import tensorrt
        from cuda.bindings import runtime as cuda

        self._cuda = cuda
        self._logger = tensorrt.Logger(tensorrt.Logger.ERROR)
        self._runtime = tensorrt.Runtime(self._logger)
        self._engine = self._runtime.deserialize_cuda_engine(plan.read_bytes())
        self._context = self._engine.create_execution_context()
        self._stream = self._call(cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))
        for at in range(self._engine.num_io_tensors):
            name = self._engine.get_tensor_name(at)
            shape = tuple(self._engine.get_tensor_shape(name))
            size = tensorrt.volume(shape) * self._engine.get_tensor_dtype(name).itemsize
            self._context.set_tensor_address(name, int(self._call(cuda.cudaMalloc(size))))
            if self._engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT:
                self._context.set_input_shape(name, shape)
        self._events = [self._call(cuda.cudaEventCreate()) for _ in range(2)]
        enqueue = partial(self._context.execute_async_v3, int(self._stream))
        self._launch: Callable[[], Any] = enqueue
        self._launch()
        self._call(cuda.cudaStreamSynchronize(self._stream))
        if as_graph:
            mode = cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
            self._call(cuda.cudaStreamBeginCapture(self._stream, mode))
            self._launch()
            graph = self._call(cuda.cudaStreamEndCapture(self._stream))
            ready = self._call(cuda.cudaGraphInstantiateWithFlags(graph, 0))
            self._launch = partial(cuda.cudaGraphLaunch, ready, self._stream)

    @staticmethod
    def _call(answer: tuple[Any, ...]) -> Any:
        error, *values = answer
        if int(error) != 0:
            sys.exit(f"CUDA says {error}")
        return values[0] if values else None

    def spans_seconds(self, count: int) -> tuple[list[float], list[float]]:
        """Return device span, and host latency less that, of so many inferences."""
        cuda, stream, (begin, end) = self._cuda, self._stream, self._events
        record, launch, synchronise = cuda.cudaEventRecord, self._launch, cuda.cudaStreamSynchronize
        now, spans, added = time.monotonic_ns, [], []
        for _ in range(count):
            begin_ns = now()
            record(begin, stream)
            launch()
            record(end, stream)
            synchronise(stream)
            latency_ns = now() - begin_ns
            spans.append(self._call(cuda.cudaEventElapsedTime(begin, end)) / 1e3)
            added.append(latency_ns / 1e9 - spans[-1])
        return spans, added


def prepare(options: argparse.Namespace, *, as_graph: bool, transfers: bool) -> Any:
    """Return tegrascope's engine, built or found, warm."""
    order = Order(
        run_id="bench",
        backend="tensorrt",
        device="gpu",
        model=options.model,
        model_directory=str(options.engines),
        engine_directory=str(options.engines),
        batch=options.batch,
        optimization_level=options.level,
        cuda_graph=as_graph,
        transfers=transfers,
        count=1,
    )
    engine = find_backend("tensorrt")()
    engine.load(find_model(options.model, options.engines), order)
    engine.build()
    ours(engine, 200)
    built = engine.built
    assert built is not None
    if built.has_cuda_graph is not as_graph:
        sys.exit(f"no CUDA graph: {built.why_no_graph}")
    return engine


def ours(engine: Any, count: int) -> tuple[list[float], list[float]]:
    """Return compute span, and host latency less all device stages, of so many inferences."""
    spans, added = [], []
    compute = engine.stages.index("compute")
    infer = engine.infer_timed
    for at in range(count):
        begin_ns = time.monotonic_ns()
        infer()
        latency_ns = time.monotonic_ns() - begin_ns
        stages_ns = engine.stages_ns()
        spans.append(stages_ns[compute] / 1e9)
        added.append((latency_ns - sum(stages_ns)) / 1e9)
        if at == 0:
            infer = engine.infer_timed  # the first one makes the graph
    return spans, added


def main() -> int:
    """Compare with and without a CUDA graph; exit 1 where a limit is passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin:resnet50")
    parser.add_argument("--engines", type=Path, required=True, help="folder for built engines")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000, help="inferences a round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--level", type=int, help="of the builder's optimisation")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    options = parser.parse_args()
    missed, told = 0, []
    for as_graph in (False, True):
        engine = prepare(options, as_graph=as_graph, transfers=False)
        copying = prepare(options, as_graph=as_graph, transfers=True)
        bare = BareLoop(options.engines / f"{engine.built.engine_key}.plan", as_graph=as_graph)
        bare.spans_seconds(200)
        mine, theirs, added, added_bare, added_copying = [], [], [], [], []
        for _ in range(options.rounds):
            spans, more = ours(engine, options.count)
            mine += spans
            added += more
            spans, more = bare.spans_seconds(options.count)
            theirs += spans
            added_bare += more
            added_copying += ours(copying, options.count)[1]
        ratio, host, host_copying = (
            median(mine) / median(theirs),
            median(added),
            median(added_copying),
        )
        good = abs(ratio - 1) <= MOST_SPAN_ERROR and host <= MOST_HOST_SECONDS
        missed += not good
        print(
            f"{'good  ' if good else 'MISSED'} {'CUDA graph' if as_graph else 'enqueue   '}: "
            f"device span {median(mine) * 1e6:.1f} µs, bare loop {median(theirs) * 1e6:.1f} µs, "
            f"ratio {ratio:.4f} (within {MOST_SPAN_ERROR:.0%}); the host adds {host * 1e6:.1f} µs "
            f"(at most {MOST_HOST_SECONDS * 1e6:.0f}), with copies {host_copying * 1e6:.1f} µs; "
            f"to the bare loop {median(added_bare) * 1e6:.1f} µs"
        )
        told.append(
            {
                "graph": as_graph,
                "span_seconds": median(mine),
                "bare_span_seconds": median(theirs),
                "host_seconds": host,
                "host_seconds_with_copies": host_copying,
                "bare_host_seconds": median(added_bare),
            }
        )
        engine.close()
        copying.close()
    if options.json:
        options.json.write_text(json.dumps(told))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
