"""trtexec in a child process: TensorRT on boards whose interpreter has no bindings for it.

It builds an engine once and measures it by itself, warm-up included; ``place_zero`` places its
times on our clock.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Literal

from ...parsers.errors import UnreadableError, UserError
from ...parsers.inference.events import Inferences, Order, Phase, PhaseName
from ...parsers.inference.placement import Built
from ...parsers.inference.trtexec import (
    ExportedTimes,
    Wanted,
    context_bytes_in,
    parse_report,
    parse_times,
    run_arguments,
    version_in,
)
from ..base import SYSTEM_CLOCK, Clock
from .base import SelfTimed, device_stages, require_pure
from .engine_cache import EngineCache, engine_key, model_name
from .trtexec_build import (
    DEFAULT_PROGRAM,
    Measuring,
    Output,
    TrtexecBuilder,
    failure,
    find_program,
    help_of,
    place_zero,
)

_CHUNK = 1024
_NO_GRAPH = "without using CUDA graph"
_DLA_GRAPH = "work of a DLA can't be captured"
_SPOILT_PLAN = ("deserialization failed", "invalid engine")
_NOTES = (
    "latencies are the device's, as trtexec tells them",
    "idle was measured without the model: trtexec loads it for its run alone",
)

_NO_ORDER = Order(run_id="", backend="trtexec", device="gpu", model="", model_directory="")


class Trtexec(SelfTimed):
    """One engine, built and run by trtexec."""

    devices = ("gpu", "dla0", "dla1")
    program = DEFAULT_PROGRAM
    install = "sudo apt install libnvinfer-bin, or name it with trtexec:"
    uses_tensorrt = True
    builds = True

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._order = _NO_ORDER
        self._model = Path()
        self._builder: TrtexecBuilder
        self._cache: EngineCache
        self._key = ""
        self._built: Built | None = None
        self._tensorrt: str | None = None

    def load(self, model: Path, order: Order) -> None:
        """Find trtexec and its options, and read the inputs of the model."""
        self.check_device(order)
        self._order, self._model = order, model
        program = find_program(order.program)
        self._builder = TrtexecBuilder(program, help_of(program), model, order)
        self._tensorrt = version_in(self._builder.help_text.splitlines())

    def build(self) -> None:
        """Build the engine, unless the cache has it."""
        order = self._order
        directory = order.engine_directory or Path(order.model_directory) / "engines"
        self._cache = EngineCache(Path(directory))
        parts = self._builder.key_parts()
        self._key = engine_key(parts)
        with self._cache.lock(self._key):
            found = self._cache.read(self._key)
            if found is None:
                built = self._build(parts)
            else:
                built = found[1].built.model_copy(update={"is_cached": True})
        wanted = self._builder.wanted(order)
        self._built = built.model_copy(
            update={
                "requested_precision": order.precision,
                "fallback": None if wanted.core is None else order.fallback,
                "why_no_graph": _DLA_GRAPH if order.cuda_graph and not wanted.is_graph else None,
                "streams": order.streams,
                "has_transfers": order.transfers,
                "notes": _NOTES,
            }
        )
        if self._built.fallback == "require-pure":
            require_pure(model_name(order.model, self._model), self._built.placement)
        precision, types = order.precision, self._built.layer_types
        if precision in (None, "fp32") or self._builder.chooses(precision):
            return
        if types and precision not in types:
            raise UserError(
                f"this TensorRT builds the model's own types, and none of them is {precision}",
                "export the model in it (builtin:resnet50-fp16 is), or leave precision away",
            )

    def measure(self, order: Order, stop: Event) -> Iterator[Phase | Inferences]:
        """Run trtexec through warm-up and steady phase; yield inferences once it has ended.

        The begin of the steady phase is yielded twice: when it is due, and when it is known.
        """
        self._order = order
        wanted = self._builder.wanted(order)
        warm_up_ns = int(wanted.warm_up_seconds * 1e9)
        with TemporaryDirectory(prefix="tegrascope-") as folder:
            file = Path(folder) / "times.json"
            arguments = run_arguments(
                self._builder.offered,
                wanted,
                plan=str(self._cache.plan_path(self._key)),
                times=str(file),
            )
            child = Measuring([*self._builder.program, *arguments], self._clock)
            yield self._edge("warm_up", "begin", child.started_ns)
            for due_ns in child.follow(stop, warm_up_ns):
                yield self._edge("steady", "begin", due_ns)
            if child.output.returncode is None:
                return
            times = self._times_of(child, file)
        length_ns = max(map(add, times.start_ns, times.latency_ns))
        done_ns = child.done_ns or self._clock.monotonic_ns()
        zero_ns, error_ns = place_zero(child.started_ns, child.began_ns, done_ns, length_ns)
        self._learn(child.output, wanted, error_ns)
        yield from self._events(times, zero_ns, error_ns, length_ns)

    def built(self) -> Built | None:
        """Return the facts of the engine; after the run also whether it was a CUDA graph."""
        return self._built

    def versions(self) -> dict[str, str]:
        """Return the version of TensorRT that trtexec prints."""
        return {} if self._tensorrt is None else {"tensorrt": self._tensorrt}

    def _build(self, parts: Mapping[str, str]) -> Built:
        begin_ns = self._clock.monotonic_ns()
        made = self._builder.build(self._cache.directory / f"{self._key}.{os.getpid()}.part")
        seconds = (self._clock.monotonic_ns() - begin_ns) / 1e9
        built = made.built.model_copy(update={"engine_key": self._key, "build_seconds": seconds})
        name = model_name(self._order.model, self._model)
        self._cache.write(self._key, replace(made, built=built), model=name, parts=parts)
        return built

    def _times_of(self, child: Measuring, file: Path) -> ExportedTimes:
        """Read the exported times of those inferences that count."""
        output = child.output
        if output.returncode != 0:
            if any(sign in line for line in output.lines for sign in _SPOILT_PLAN):
                with self._cache.lock(self._key):
                    self._cache.set_aside(self._key)
                raise UserError(
                    f"the engine could not be loaded ({output.reason})",
                    "it was set aside, and the next run builds it anew",
                )
            raise failure("measure", output, child.argv)
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                times = parse_times(lines)
            report = parse_report(output.lines)
        except (OSError, UnreadableError) as error:
            raise UserError(
                f"the times of trtexec cannot be read ({error})", f"try: {' '.join(child.argv)}"
            ) from error
        times = times if report.queries is None else times.last(report.queries)
        return times if self._order.count is None else times.first(self._order.count)

    def _learn(self, output: Output, wanted: Wanted, error_ns: int) -> None:
        """Note the facts that only the run shows."""
        assert self._built is not None
        lines = output.lines
        placed = f"its times are placed on our clock to within {error_ns / 1e6:.1f} ms"
        is_refused = wanted.is_graph and any(_NO_GRAPH in line for line in lines)
        facts: dict[str, object] = {
            "has_cuda_graph": wanted.is_graph and not is_refused,
            "context_bytes": context_bytes_in(lines),
            "notes": (*_NOTES, placed, *parse_report(lines).warnings),
        }
        if is_refused:
            facts["why_no_graph"] = "its capture failed"
        self._built = self._built.model_copy(update=facts)

    def _events(
        self, times: ExportedTimes, zero_ns: int, error_ns: int, length_ns: int
    ) -> Iterator[Phase | Inferences]:
        begin_ns = zero_ns + times.start_ns[0]
        stages = device_stages(self._order.transfers)
        yield self._edge("warm_up", "end", begin_ns)
        yield self._edge("steady", "begin", begin_ns, error_ns)
        for at in range(0, len(times.start_ns), _CHUNK):
            chunk = slice(at, at + _CHUNK)
            yield Inferences(
                run_id=self._order.run_id,
                start_ns=tuple(zero_ns + start for start in times.start_ns[chunk]),
                latency_ns=tuple(times.latency_ns[chunk]),
                stages_ns={stage: tuple(times.stages_ns[stage][chunk]) for stage in stages},
            )
        yield self._edge("steady", "end", zero_ns + length_ns, error_ns)

    def _edge(
        self,
        phase: PhaseName,
        edge: Literal["begin", "end"],
        at_ns: int,
        uncertain_ns: int | None = None,
    ) -> Phase:
        run_id = self._order.run_id
        return Phase(run_id=run_id, phase=phase, edge=edge, at_ns=at_ns, uncertain_ns=uncertain_ns)
