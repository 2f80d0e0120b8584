"""The bench itself: each model is looked at on every accelerator, then measured in turns."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..measure.run_report import Device
from ..session.executor import Lane
from .contention import ContentionBench
from .contention_result import Contention
from .lanes import Flown, Lanes
from .look import Look, look_at
from .plan import Plan, agree, passes
from .progress import Teller
from .result import BenchSettings, ModelResult
from .rounds import Round, clock_ranges
from .stand import Stand
from .summary import Entry, summarise
from .watch import Watcher


class Bench:
    """Runs models on accelerators, by the daemon's own lanes, flights and pairing."""

    def __init__(
        self,
        settings: BenchSettings,
        stand: Stand,
        teller: Teller,
        *,
        lane_cwd: Path | None = None,
        make_lane: Callable[..., Lane] = Lane,
        watcher: Watcher | None = None,
    ) -> None:
        """Prepare.

        Args:
            settings: What to measure.
            stand: The telemetry, started.
            teller: Who is told how it goes on.
            lane_cwd: Where workers run.
            make_lane: Device to the lane of its worker.
            watcher: Makes a further pass of each accelerator, after all that is measured.
        """
        self._settings = settings
        self._plan = Plan.of(settings.rounds)
        self._stand = stand
        self._watcher = watcher
        self._teller = teller
        self._lanes = Lanes(stand.surroundings, teller.heard, cwd=lane_cwd, make_lane=make_lane)

    @property
    def was_cancelled(self) -> bool:
        """Whether it was ended before it was done."""
        return self._lanes.was_cancelled

    def cancel(self) -> None:
        """End the run in flight and all that follow; from any thread but that of ``run``."""
        self._stand.stopping.set()
        self._lanes.cancel()

    def close(self) -> None:
        """End all workers."""
        self._lanes.close()

    def run(self, model: str) -> ModelResult:
        """Look at a model on every accelerator, and measure where it runs."""
        looks = look_at(model, self._settings, self._lanes, self._teller.say)
        rounds = self._measure(looks)
        if self._watcher is not None:
            self._teller.say(f"{model}: once more under Nsight Systems, for its timeline alone")
            self._watcher.watch(looks, self._lanes)
        entries = [self._entry(device, seen, rounds) for device, seen in looks.items()]
        return summarise(model, entries, [one.report for one in rounds])

    def run_together(self, models: Sequence[ModelResult]) -> Contention:
        """Measure models that were measured alone once more, together, in every placement."""
        # Their workers hold memory, and each model gets one of its own.
        self._lanes.close()
        return ContentionBench(self._settings, self._stand, self._lanes, self._teller).run(models)

    def _measure(self, looks: Mapping[Device, Look]) -> list[Round]:
        """Measure in turns until the rounds agree or the plan is over; return all rounds."""
        left = [device for device, seen in looks.items() if seen.status == "ok"]
        rounds: list[Round] = []
        steady = False
        for number, turn in enumerate(passes(left)):
            if not left or self.was_cancelled or not self._plan.goes_on(number, steady):
                break
            for device in turn:
                if device in left and not self.was_cancelled:
                    self._announce(device, number, left)
                    rounds.append(self._measure_round(device, looks[device]))
                    if looks[device].status != "ok":
                        left.remove(device)
            steady = all(agree([one.report for one in _of(device, rounds)]) for device in left)
        return rounds

    def _announce(self, device: Device, number: int, left: Sequence[Device]) -> None:
        """Say which round begins, and how long it and all that are planned take."""
        settings, plan = self._settings, self._plan
        planned = plan.least if number < plan.least else plan.most
        turn = list(left) if number % 2 == 0 else list(left)[::-1]
        to_come = (planned - number - 1) * len(left) + len(turn) - turn.index(device)
        each = settings.warm_up_seconds + 2 * settings.baseline_seconds + settings.duration_seconds
        self._teller.begin_round(device, number + 1, planned, each * to_come)

    def _measure_round(self, device: Device, seen: Look) -> Round:
        """Measure one round; an accelerator that fails has no other."""
        flown = self._lanes.fly(seen.workload, device, seen.workload.timeout_seconds, None)
        if flown.status != "ok":
            seen.status, seen.reason = flown.status, flown.report.reason
        self._teller.end_round(flown.report)
        return self._round(flown)

    def _round(self, flown: Flown) -> Round:
        report, trace = flown.report, flown.trace
        window = report.phases.get("steady")
        if window is None:
            return Round(report)
        return Round(
            report,
            trace.completed(window)[1],
            trace.device_ns(),
            trace.stages_ns,
            clock_ranges(self._stand.cut(window.begin_ns, window.end_ns), window),
        )

    def _entry(self, device: Device, seen: Look, rounds: Sequence[Round]) -> Entry:
        good = [one for one in _of(device, rounds) if one.report.outcome == "ok"]
        counted = good[-self._plan.least :]
        return Entry(
            device=device,
            backend=seen.workload.backend_in_force,
            status=seen.status,
            reason=seen.reason,
            look=seen.report,
            outputs=seen.outputs,
            rounds=counted,
            is_steady=agree([one.report for one in counted]),
            nsys_report=seen.nsys_report,
            nsys_problem=seen.nsys_problem,
        )


def _of(device: Device, rounds: Sequence[Round]) -> list[Round]:
    return [one for one in rounds if one.report.device == device]
