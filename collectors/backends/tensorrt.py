"""TensorRT on GPU and DLA, by the API that its versions from 8.5 to 11 share."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...parsers.errors import BackendUnavailable, UserError
from ...parsers.inference.events import Order, StageName
from ...parsers.inference.placement import Built, group_dla_rows, layer_types, placement_of
from . import engine_cache
from .base import Inferring, device_stages, require_pure
from .cuda_runtime import Cuda, is_watched, load_cuda
from .engine_cache import BuiltEngine, EngineCache
from .tensorrt_build import Builder, logger_of, no_dla, reason_in
from .tensorrt_probe import MODULE, Capabilities, capabilities, import_tensorrt
from .tensorrt_run import Slot, closed

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class TensorRt(Inferring):
    """An ONNX model as an engine of TensorRT, in a slot for each of the order's streams.

    The first inference is enqueued by TensorRT. After it, ``infer`` is the first slot's own call,
    with nothing in between, as ``stages_ns`` is, which reads CUDA events.
    """

    devices = ("gpu", "dla0", "dla1")
    packages = ("tensorrt",)
    uses_tensorrt = True
    repeats_stages = True
    builds = True

    _order: Order
    _model: Path
    infer: Callable[[], None]
    stages_ns: Callable[[], Sequence[int]]

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
        self._runtime: Any = None
        self._engine: Any = None
        self._built = Built()
        self._free_bytes = 0
        self._peak_bytes: int | None = None
        self._can = Capabilities()
        self.slots: list[Slot] = []
        self.infer = closed

    def load(self, model: Path, order: Order) -> None:
        """Find out what this machine can do, and initialise the device."""
        self.check_device(order)
        with self._part("probe"):
            self._can = self._ask(self._module)
        if order.dla_core is not None and order.dla_core >= (self._can.dla_cores or 0):
            raise self._no_dla(order.dla_core)
        with self._part("cuda_init"):
            self._cuda.initialise()
        self._free_bytes = self._cuda.free_bytes()
        self._order, self._model = order, model
        self.stages = device_stages(order.transfers)

    def build(self) -> None:
        """Find the engine in the cache or build it, and prepare as many slots as streams."""
        order = self._order
        if order.engine_directory is None:
            self._take(Builder(self._trt, self._model, order).build(), None)
        else:
            self._find_or_build(EngineCache(Path(order.engine_directory)))
        if self._built.fallback == "require-pure":
            require_pure(self._model.name, self._built.placement)
        with self._part("context"):
            contexts = [self._make_context() for _ in range(order.streams)]
        with self._part("buffers"):
            for context in contexts:
                self.slots.append(Slot(self._cuda, self._trt, self._engine, context, order))
        self._look_at_memory()
        # The newer name, and then the older.
        size = getattr(self._engine, "device_memory_size_v2", None)
        size = getattr(self._engine, "device_memory_size", None) if size is None else size
        self._note(
            context_bytes=size,
            has_cuda_graph=False,
            streams=order.streams,
            has_transfers=order.transfers,
        )
        self.infer, self.stages_ns = self._first_infer, self.slots[0].stages_ns

    def repeat(self, stage: StageName, count: int) -> Callable[[], None]:
        """Return a call that runs one stage so often, in the stream of the first slot."""
        return self.slots[0].repeat(stage, count)

    def outputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the outputs of the last inference."""
        return self.slots[0].outputs()

    def profile(self, count: int) -> Mapping[str, int]:
        """Return mean nanoseconds by layer, of so many inferences in a context of their own."""
        rows = self.slots[0].profile(self._trt, self._make_context, count)
        return group_dla_rows(rows, self._built.placement.dla_layers)

    def cold_start_ns(self) -> Mapping[str, int]:
        """Return the parts of the cold start so far."""
        return dict(self._parts_ns)

    def built(self) -> Built | None:
        """Return the facts of the engine."""
        return self._built

    def device_peak_bytes(self) -> int | None:
        """Return the largest fall of the device's free memory since CUDA was initialised."""
        if self.slots:
            self._look_at_memory()
        return self._peak_bytes

    def versions(self) -> dict[str, str]:
        """Return the versions of TensorRT, cuda-python, CUDA, the driver's CUDA and numpy."""
        return {**self._can.versions, **self._versions}

    def close(self) -> None:
        """Release contexts before the engine, and the engine before the runtime."""
        self.infer = closed
        slots, self.slots = self.slots, []
        for slot in slots:
            slot.close()
        self._engine = None
        self._runtime = None

    def _note(self, **facts: object) -> None:
        self._built = self._built.model_copy(update=facts)

    def _no_dla(self, core: int) -> BackendUnavailable:
        return no_dla(core, self._can.dla_cores or 0, self._can.device or "")

    def _find_or_build(self, cache: EngineCache) -> None:
        """Take the engine from the cache; build it if it is missing or does not load."""
        begin_ns = time.monotonic_ns()
        parts = self._key_parts()
        key = engine_cache.engine_key(parts)
        with cache.lock(key):
            found = cache.read(key)
            if found is not None:
                content, sidecar = found
                self._parts_ns["cache_load"] = time.monotonic_ns() - begin_ns
                if self._deserialise(content):
                    self._built = sidecar.built
                    self._note(is_cached=True, **self._request())
                    return
                # It is built again once: a failure then is not due to the cache.
                cache.set_aside(key)
                self._parts_ns.pop("cache_load")
                self._parts_ns.pop("deserialise")
            version = self._can.versions.get("tensorrt", "unknown")
            timing = f"timing-{self._module}-{version}-sm{self._can.compute_capability}.cache"
            builder = Builder(self._trt, self._model, self._order)
            made = self._take(builder.build(cache.directory / timing), key)
            name = engine_cache.model_name(self._order.model, self._model)
            cache.write(key, made, model=name, parts=parts)

    def _request(self) -> dict[str, object]:
        is_dla = self._order.dla_core is not None
        return {
            "requested_precision": self._order.precision,
            "fallback": self._order.fallback if is_dla else None,
        }

    def _take(self, made: BuiltEngine, key: str | None) -> BuiltEngine:
        """Load the engine that was just built; return it with all that is known of it."""
        if not self._deserialise(made.plan):
            raise UserError(
                f"TensorRT does not load the engine that it just built ({reason_in(self._lines)})",
                "send the worker's standard error with a report",
            )
        inspector = None
        if (found := self._engine.create_engine_inspector()) is not None:
            form = self._trt.LayerInformationFormat.JSON
            inspector = str(found.get_engine_information(form)) or None
        self._built = made.built
        self._note(
            layer_types=layer_types(inspector),
            placement=placement_of(made.log, inspector, self._order.device),
            engine_key=key,
            engine_bytes=len(made.plan),
            **self._request(),
        )
        return BuiltEngine(made.plan, self._built, made.log, inspector)

    def _deserialise(self, content: bytes) -> bool:
        """Load an engine on the order's device; False where TensorRT does not."""
        with self._part("deserialise"):
            self._lines.clear()
            self._runtime = self._trt.Runtime(self._logger)
            if (core := self._order.dla_core) is not None:
                self._runtime.DLA_core = core
                if self._runtime.DLA_core != core:
                    raise self._no_dla(core)
            self._engine = self._runtime.deserialize_cuda_engine(content)
        return self._engine is not None

    def _make_context(self) -> Any:
        context = self._engine.create_execution_context()
        if context is None:
            raise UserError(
                f"TensorRT makes no context for the engine ({reason_in(self._lines)})",
                "free memory of the device, or set streams: 1 or a smaller batch",
            )
        if hasattr(context, "nvtx_verbosity"):
            # Built with detail for the inspector; while it runs, detail only costs time.
            levels = self._trt.ProfilingVerbosity
            context.nvtx_verbosity = levels.LAYER_NAMES_ONLY if is_watched() else levels.NONE
        return context

    def _first_infer(self) -> None:
        """Run the first inference as TensorRT enqueues it; then make the graph, if there is one."""
        for slot in self.slots:
            slot.infer()
        if self._order.cuda_graph:
            with self._part("graph"):
                reason: str | None = "a CUDA graph cannot hold work for a DLA"
                if self._order.dla_core is None:
                    for slot in self.slots:
                        slot.use_graph()
                    reasons = (slot.why_no_graph for slot in self.slots)
                    reason = next(filter(None, reasons), None)
                self._note(has_cuda_graph=reason is None, why_no_graph=reason)
        self._look_at_memory()
        self.infer = self.slots[0].infer

    def _key_parts(self) -> dict[str, str]:
        versions, order = self._can.versions, self._order
        is_dla = order.dla_core is not None
        # "require-pure" builds as "allow" does and then checks the placement.
        fallback = "forbid" if order.fallback == "forbid" else "allow"
        return {
            "model": engine_cache.model_digest(self._model),
            "device": "dla" if is_dla else "gpu",
            "batch": str(order.batch),
            "precision": order.precision or "model",
            "fallback": fallback if is_dla else "none",
            "optimization_level": str(order.optimization_level),
            "module": self._module,
            "tensorrt": versions.get("tensorrt", ""),
            "cuda": versions.get("cuda-runtime", ""),
            "sm": self._can.compute_capability or "",
            "gpu": self._can.device or "",
            **engine_cache.machine_parts(is_dla=is_dla, root=self._machine),
        }

    def _look_at_memory(self) -> None:
        taken = max(0, self._free_bytes - self._cuda.free_bytes())
        self._peak_bytes = max(self._peak_bytes or 0, taken)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """Time a part of the cold start."""
        begin_ns = time.monotonic_ns()
        yield
        self._parts_ns[name] = time.monotonic_ns() - begin_ns
