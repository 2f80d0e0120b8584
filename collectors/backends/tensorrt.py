"""TensorRT on GPU and DLA, by the API that its versions from 8.5 to 11 share."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...parsers.errors import BackendUnavailable, UserError
from ...parsers.inference.events import Order, StageName
from ...parsers.inference.placement import (
    Built,
    Fallback,
    group_dla_rows,
    layer_types,
    placement_of,
)
from .base import Inferring, device_stages, require_pure
from .cuda_runtime import Cuda, is_watched, load_cuda
from .engine_cache import (
    BuiltEngine,
    EngineCache,
    engine_key,
    machine_parts,
    model_digest,
    model_name,
)
from .tensorrt_build import Builder, BuildSpec, logger_of, no_dla, reason_in
from .tensorrt_probe import MODULE, Capabilities, capabilities, import_tensorrt
from .tensorrt_run import Slot, context_bytes, inspect, profiler_of

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_CORES = {"gpu": None, "dla0": 0, "dla1": 1}


class TensorRt(Inferring):
    """An ONNX model as an engine of TensorRT, in a context for each of the order's streams.

    Attributes:
        infer: Runs one inference; it is complete when this returns. The first is enqueued by
            TensorRT; after it, this is the first context's own call, with nothing in between.
    """

    devices = tuple(_CORES)
    packages = ("tensorrt",)
    uses_tensorrt = True
    builds = True

    def __init__(
        self,
        module: str = MODULE,
        machine: Path = Path("/"),
        ask: Callable[[str], Capabilities] = capabilities,
    ) -> None:
        """Import the libraries; touches no device."""
        self._trt: Any = import_tensorrt(module)
        self._cuda: Cuda = load_cuda()
        try:
            import numpy
        except ImportError as error:
            what = f"numpy cannot be imported ({error})"
            raise BackendUnavailable(what, "pip install numpy") from error
        self._module = module
        self._ask = ask
        self._machine = machine
        self._logger, self._lines = logger_of(self._trt)
        self._versions = {"numpy": numpy.__version__}
        self._parts_ns: dict[str, int] = {}
        self._order: Order | None = None
        self._core: int | None = None
        self._runtime: Any = None
        self._engine: Any = None
        self._slots: list[Slot] = []
        self._built = Built()
        self._free_bytes = 0
        self._peak_bytes: int | None = None
        self._can = Capabilities()
        self._model = Path()
        self._spec = BuildSpec(self._model, "gpu")
        self.stages: tuple[StageName, ...] = ()
        self.infer: Callable[[], None] = _no_infer

    def load(self, model: Path, order: Order) -> None:
        """Find out what this machine can do, and initialise the device."""
        self.check_device(order)
        with self._part("probe"):
            self._can = self._ask(self._module)
        self._core = _CORES[order.device]
        if self._core is not None and self._core >= (self._can.dla_cores or 0):
            raise self._no_dla(self._core)
        with self._part("cuda_init"):
            self._cuda.initialise()
        self._free_bytes = self._cuda.free_bytes()
        self._order, self._model = order, model
        self._spec = BuildSpec(
            model=model,
            device="gpu" if self._core is None else "dla",
            batch=order.batch,
            precision=order.precision,
            fallback=order.fallback,
            optimization_level=order.optimization_level,
        )
        self.stages = device_stages(order.transfers)

    def build(self) -> None:
        """Find the engine in the cache or build it, and prepare as many contexts as streams."""
        order = self._ordered
        if order.engine_directory is None:
            self._take(self._compile(None), None)
        else:
            self._find_or_build(EngineCache(Path(order.engine_directory)))
        if self._asked_fallback == "require-pure":
            require_pure(self._model.name, self._built.placement)
        with self._part("context"):
            contexts = [self._make_context() for _ in range(order.streams)]
        with self._part("buffers"):
            for context in contexts:
                slot = Slot(self._cuda, context, transfers=order.transfers)
                self._slots.append(slot)
                slot.bind(self._trt, self._engine, order.batch)
        self._look_at_memory()
        self._note(
            context_bytes=context_bytes(self._engine),
            has_cuda_graph=False,
            streams=order.streams,
            has_transfers=order.transfers,
        )
        self.infer = self._first_infer

    def submit(self, slot: int) -> None:
        """Start an inference in a slot."""
        self._slots[slot].submit()

    def wait(self, slot: int) -> None:
        """Return when the inference in a slot is complete."""
        self._slots[slot].wait()

    def slot_stages_ns(self, slot: int) -> Sequence[int]:
        """Return the device's time of each stage of a slot's last inference."""
        return self._slots[slot].stages_ns()

    def stages_ns(self) -> Sequence[int]:
        """Return the device's time of each stage of the last inference, by CUDA events."""
        return self._slots[0].stages_ns()

    def outputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the outputs of the last inference."""
        return self._slots[0].outputs()

    def profile(self, count: int) -> Mapping[str, int]:
        """Return mean nanoseconds by layer, of so many inferences in a context of their own."""
        times: dict[str, list[float]] = {}
        context = self._make_context()
        context.profiler = profiler = profiler_of(self._trt, times)
        run = self._slots[0].run_with(context)
        run()
        times.clear()
        for _ in range(count):
            run()
        del context, run, profiler
        rows = [(name, round(sum(spans) / count * 1e6)) for name, spans in times.items()]
        return group_dla_rows(rows, self._built.placement.dla_layers)

    def cold_start_ns(self) -> Mapping[str, int]:
        """Return the parts of the cold start so far."""
        return dict(self._parts_ns)

    def built(self) -> Built | None:
        """Return the facts of the engine."""
        return self._built

    def device_peak_bytes(self) -> int | None:
        """Return the largest fall of the device's free memory since CUDA was initialised."""
        if self._slots:
            self._look_at_memory()
        return self._peak_bytes

    def versions(self) -> dict[str, str]:
        """Return the versions of TensorRT, cuda-python, CUDA, the driver's CUDA and numpy."""
        return {**self._can.versions, **self._versions}

    def close(self) -> None:
        """Release contexts before the engine, and the engine before the runtime."""
        self.infer = _no_infer
        slots, self._slots = self._slots, []
        for slot in slots:
            slot.close()
        self._engine = None
        self._runtime = None

    @property
    def _ordered(self) -> Order:
        if self._order is None:
            raise RuntimeError("nothing is loaded")
        return self._order

    @property
    def _asked_fallback(self) -> Fallback | None:
        return None if self._core is None else self._ordered.fallback

    def _note(self, **facts: object) -> None:
        self._built = self._built.model_copy(update=facts)

    def _no_dla(self, core: int) -> BackendUnavailable:
        return no_dla(core, self._can.dla_cores or 0, self._can.device or "")

    def _find_or_build(self, cache: EngineCache) -> None:
        """Take the engine from the cache; build it if it is missing or does not load."""
        begin_ns = time.monotonic_ns()
        parts = self._key_parts()
        key = engine_key(parts)
        with cache.lock(key):
            found = cache.read(key)
            if found is not None:
                content, sidecar = found
                self._parts_ns["cache_load"] = time.monotonic_ns() - begin_ns
                if self._deserialise(content):
                    self._built = sidecar.built
                    self._note(
                        is_cached=True,
                        requested_precision=self._spec.precision,
                        fallback=self._asked_fallback,
                    )
                    return
                # It is built again once: a failure then is not due to the cache.
                cache.set_aside(key)
                self._parts_ns.pop("cache_load")
                self._parts_ns.pop("deserialise")
            made = self._take(self._compile(cache.directory / self._timing_name()), key)
            name = model_name(self._ordered.model, self._model)
            cache.write(key, made, model=name, parts=parts)

    def _compile(self, timing_cache: Path | None) -> BuiltEngine:
        builder = Builder(self._trt, self._can.symbols, self._logger, self._lines)
        return builder.build(self._spec, timing_cache)

    def _take(self, made: BuiltEngine, key: str | None) -> BuiltEngine:
        """Load the engine that was just built; return it with all that is known of it."""
        if not self._deserialise(made.plan):
            raise UserError(
                f"TensorRT does not load the engine that it just built ({self._reason()})",
                "send the worker's standard error with a report",
            )
        inspector = inspect(self._trt, self._engine)
        self._built = made.built
        self._note(
            requested_precision=self._spec.precision,
            layer_types=layer_types(inspector),
            fallback=self._asked_fallback,
            placement=placement_of(made.log, inspector, self._ordered.device),
            engine_key=key,
            engine_bytes=len(made.plan),
        )
        return BuiltEngine(made.plan, self._built, made.log, inspector)

    def _deserialise(self, content: bytes) -> bool:
        """Load an engine on the order's device; False where TensorRT does not."""
        with self._part("deserialise"):
            self._lines.clear()
            self._runtime = self._trt.Runtime(self._logger)
            if self._core is not None:
                self._runtime.DLA_core = self._core
                if self._runtime.DLA_core != self._core:
                    raise self._no_dla(self._core)
            self._engine = self._runtime.deserialize_cuda_engine(content)
        return self._engine is not None

    def _make_context(self) -> Any:
        context = self._engine.create_execution_context()
        if context is None:
            raise UserError(
                f"TensorRT makes no context for the engine ({self._reason()})",
                "free memory of the device, or set streams: 1 or a smaller batch",
            )
        if "IExecutionContext.nvtx_verbosity" in self._can.symbols:
            # Built with detail for the inspector; while it runs, detail only costs time.
            levels = self._trt.ProfilingVerbosity
            context.nvtx_verbosity = levels.LAYER_NAMES_ONLY if is_watched() else levels.NONE
        return context

    def _first_infer(self) -> None:
        """Run the first inference as TensorRT enqueues it; then make the graph, if there is one."""
        first = self._slots[0]
        first.infer()
        for slot in self._slots[1:]:
            slot.infer()
        if self._ordered.cuda_graph:
            with self._part("graph"):
                self._use_graphs()
        self._look_at_memory()
        self.infer = first.infer

    def _use_graphs(self) -> None:
        reason = None
        if self._core is not None:
            reason = "a CUDA graph cannot hold work for a DLA"
        else:
            for slot in self._slots:
                slot.use_graph()
                reason = reason or slot.why_no_graph
        self._note(has_cuda_graph=reason is None, why_no_graph=reason)

    def _key_parts(self) -> dict[str, str]:
        versions = self._can.versions
        return {
            "model": model_digest(self._model),
            **self._spec.parts(),
            "module": self._module,
            "tensorrt": versions.get("tensorrt", ""),
            "cuda": versions.get("cuda-runtime", ""),
            "sm": self._can.compute_capability or "",
            "gpu": self._can.device or "",
            **machine_parts(is_dla=self._core is not None, root=self._machine),
        }

    def _timing_name(self) -> str:
        version = self._can.versions.get("tensorrt", "unknown")
        return f"timing-{self._module}-{version}-sm{self._can.compute_capability}.cache"

    def _reason(self) -> str:
        return reason_in(self._lines.all())

    def _look_at_memory(self) -> None:
        taken = max(0, self._free_bytes - self._cuda.free_bytes())
        self._peak_bytes = max(self._peak_bytes or 0, taken)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """Time a part of the cold start."""
        begin_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self._parts_ns[name] = time.monotonic_ns() - begin_ns


def _no_infer() -> None:
    raise RuntimeError("the engine is closed")
