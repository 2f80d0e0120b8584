"""The accelerators of a simulated board: they compute nothing, at a published pace."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...parsers.errors import UserError
from ...parsers.inference.events import InferenceSettings, Order, StageName, Surroundings
from ...parsers.inference.placement import Built
from ...parsers.values import some_of
from ..simulator.paces import Pace, find_pace
from ..simulator.plan import PlannedClock
from .base import Inferring, require_pure

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_LOAD_NS = 300_000_000  # reading an engine from the cache; assumed


class Simulated(Inferring):
    """An accelerator of the simulated board, by its plan and not by this machine's speed."""

    devices = ("gpu", "dla0", "dla1")
    is_simulated = True
    clock = PlannedClock()
    stages: tuple[StageName, ...] = ("compute",)

    def __init__(self) -> None:
        self.cold_start_ns: Mapping[str, int] = {"import": 0}
        self._pace: Pace | None = None
        self._latencies_ns: Iterator[float] = iter(())
        self._latency_ns = 0.0
        self._told: deque[Surroundings] = deque()  # by another thread, in any order of their times
        self._ahead: dict[int, float] = {}  # slowdowns that are not yet in force, by their times
        self._slowdown = 1.0

    @classmethod
    def check(cls, model: str, device: str, settings: InferenceSettings) -> None:
        """Raise ``UserError`` if no pace is known of a model with these settings."""
        find_pace(model, device, settings.precision, settings.batch)
        if settings.streams > 1:
            what = "the paces are those of one inference at a time"
            raise UserError(what, "leave streams out")
        if settings.shapes:
            raise UserError("the paces are those of the model's own shapes", "leave shapes out")

    @classmethod
    def loads(cls, model: str, device: str, settings: InferenceSettings) -> Mapping[str, float]:
        """Return the share of its time in which an inference keeps each lane busy."""
        try:
            return find_pace(model, device, settings.precision, settings.batch).loads_of(device)
        except UserError:  # the run will fail with it
            return {}

    def load(self, model: Path, order: Order) -> None:
        """Find the pace."""
        self.check_device(order)
        self.check(str(model), order.device, order)
        self._pace = find_pace(str(model), order.device, order.precision, order.batch)
        self._latencies_ns = self._pace.latencies_ns(order.run_id)
        self.clock.spend(_LOAD_NS)
        placement = self._pace.placement
        if order.fallback == "forbid" and placement.verdict == "mixed":
            names = placement.gpu_layers
            what = f"{len(names)} layers of {self._pace.model} do not run on the DLA"
            raise UserError(f"{what}: {some_of(names)}", "set fallback: allow")
        if order.fallback == "require-pure" and order.dla_core is not None:
            require_pure(self._pace.model, placement)
        self.built = Built(
            requested_precision=order.precision, fallback=order.fallback, placement=placement
        )

    def take(self, surroundings: Surroundings) -> None:
        """Note how much slower the other work on the board makes an inference, and from when."""
        self._told.append(surroundings)

    def infer(self) -> None:
        """Let the planned time of an inference pass."""
        while self._told:
            surroundings = self._told.popleft()
            self._ahead[surroundings.at_ns] = surroundings.slowdown
        if self._ahead:
            self._follow_the_others()
        self._latency_ns = next(self._latencies_ns) * self._slowdown
        self.clock.spend(self._latency_ns)

    def _follow_the_others(self) -> None:
        """Put the slowdown of this time into force, and forget those before."""
        now_ns = self.clock.monotonic_ns()
        due_ns = [at_ns for at_ns in self._ahead if at_ns <= now_ns]
        if due_ns:
            self._slowdown = self._ahead[max(due_ns)]
            for at_ns in due_ns:
                del self._ahead[at_ns]

    def stages_ns(self) -> Sequence[int]:
        """Return the time of the last inference, which is all on the device."""
        return (round(self._latency_ns),)

    def outputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return nothing: nothing was computed."""
        return {}
