"""The device span that a run reports, held against a bare loop round the same engine.

Both run in one process, on one GPU, in turns. The bare loop uses nothing of tegrascope: it takes
the plan that was built, and times ``execute_async_v3`` (or the launch of a CUDA graph of it)
between two CUDA events on a stream of its own. What tegrascope adds on the host is its latency by
the host clock less the device span of the same inference.

Needs an NVIDIA GPU, TensorRT and cuda-python:

    python benchmarks/device_span.py --model builtin:resnet50 --engines /tmp/engines
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tegrascope.collectors.catalog import make_engine
from tegrascope.collectors.models import find_model
from tegrascope.parsers.run_events import Order

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
        self._launch: Callable[[], Any] = lambda: self._context.execute_async_v3(int(self._stream))
        self._launch()
        self._call(cuda.cudaStreamSynchronize(self._stream))
        if as_graph:
            mode = cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
            self._call(cuda.cudaStreamBeginCapture(self._stream, mode))
            self._launch()
            graph = self._call(cuda.cudaStreamEndCapture(self._stream))
            ready = self._call(cuda.cudaGraphInstantiateWithFlags(graph, 0))
            self._launch = lambda: cuda.cudaGraphLaunch(ready, self._stream)

    @staticmethod
    def _call(answer: tuple[Any, ...]) -> Any:
        error, *values = answer
        if int(error) != 0:
            sys.exit(f"CUDA says {error}")
        return values[0] if values else None

    def spans_seconds(self, count: int) -> list[float]:
        """Return the device span of so many inferences."""
        cuda, stream, (begin, end) = self._cuda, self._stream, self._events
        spans = []
        for _ in range(count):
            cuda.cudaEventRecord(begin, stream)
            self._launch()
            cuda.cudaEventRecord(end, stream)
            cuda.cudaStreamSynchronize(stream)
            spans.append(self._call(cuda.cudaEventElapsedTime(begin, end)) / 1e3)
        return spans


def ours(engine: Any, count: int) -> tuple[list[float], list[float]]:
    """Return compute span, and host latency less all device stages, of so many inferences."""
    spans, added = [], []
    compute = engine.stages.index("compute")
    for _ in range(count):
        begin_ns = time.monotonic_ns()
        engine.infer()
        latency_ns = time.monotonic_ns() - begin_ns
        stages_ns = engine.stages_ns()
        spans.append(stages_ns[compute] / 1e9)
        added.append((latency_ns - sum(stages_ns)) / 1e9)
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
    model = find_model(options.model, options.engines)
    missed, told = 0, []
    for as_graph in (False, True):
        order = Order(
            run_id="bench",
            backend="tensorrt",
            device="gpu",
            model=str(model),
            model_directory=str(options.engines),
            engine_directory=str(options.engines),
            batch=options.batch,
            optimization_level=options.level,
            cuda_graph=as_graph,
            count=1,
        )
        engine = make_engine("tensorrt")
        engine.load(model, order)
        engine.build()
        built = engine.built()
        assert built is not None
        bare = BareLoop(options.engines / f"{built.engine_key}.plan", as_graph=as_graph)
        ours(engine, 200), bare.spans_seconds(200)
        # The graph is made of the first inference, so it is there only now.
        built = engine.built()
        if built.has_cuda_graph is not as_graph:
            sys.exit(f"no CUDA graph: {built.why_no_graph}")
        mine, theirs, added = [], [], []
        for _ in range(options.rounds):
            spans, more = ours(engine, options.count)
            mine += spans
            added += more
            theirs += bare.spans_seconds(options.count)
        ratio, host = median(mine) / median(theirs), median(added)
        good = abs(ratio - 1) <= MOST_SPAN_ERROR and host <= MOST_HOST_SECONDS
        missed += not good
        print(
            f"{'good  ' if good else 'MISSED'} {'CUDA graph' if as_graph else 'enqueue   '}: "
            f"device span {median(mine) * 1e6:.1f} µs, bare loop {median(theirs) * 1e6:.1f} µs, "
            f"ratio {ratio:.4f} (within {MOST_SPAN_ERROR:.0%}); "
            f"host adds {host * 1e6:.1f} µs (at most {MOST_HOST_SECONDS * 1e6:.0f})"
        )
        told.append({"graph": as_graph, "ratio": ratio, "host_seconds": host})
        engine.close()
    if options.json:
        options.json.write_text(json.dumps(told))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
