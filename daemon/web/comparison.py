"""DLA or GPU: the last good runs of each model by device, and which device is better for what."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any, NamedTuple

from ..measure.dla import POWERED, SOURCES
from ..measure.figures import Point, difference, mean_of_most, mean_of_rounds, present
from ..measure.run_report import Figure
from ..store.history import History

_RUNS_PER_WORKLOAD = 10
_SPAN_NS = 7 * 86_400 * 1_000_000_000
# tegrastats prints whole percents.
_LOAD_STEP = 0.01
# Flags that every run has, or that say nothing of a figure's worth.
_QUIET = frozenset({"simulated", "late_samples"})
_GOALS = {"latency": "latency_seconds", "energy": "joules", "gpu": "gpu_ratio"}
_Run = Mapping[str, Any]


def _place(path: str) -> str:
    return f"json_extract(report, '$.{path}')"


_FIELDS = {
    "model": _place("model"),
    "batch": _place("batch"),
    "workload": "workload",
    "device": "device",
    "started": "started_wall_ns / 1e9",
    "precision": _place("built.requested_precision"),
    "inferences": _place("inferences"),
    "latency": _place("latency.p50_seconds"),
    "net": _place("energy.net_joules_per_inference"),
    "net_interval": _place("energy.net_interval"),
    "gross": _place("energy.gross_joules_per_inference"),
    "gross_interval": _place("energy.gross_interval"),
    "loads": _place("telemetry.utilization"),
    "gates": _place("telemetry.dla_active"),
    "quality": _place("quality"),
    "conditions": f"json_array({_place('environment.power_mode')},"
    f" {_place('environment.clocks_locked')}, {_place('environment.simulated')})",
}
_SELECTED = "json_object(" + ", ".join(f"'{name}', {sql}" for name, sql in _FIELDS.items()) + ")"


class _Entry(NamedTuple):
    """One workload of a model on one device, with the means of its runs."""

    workload: str
    device: str
    runs: int
    latest: float
    precision: str | None
    flags: Mapping[str, int]
    latency_seconds: Figure | None
    joules: Figure | None
    gpu_ratio: Figure | None
    dla: tuple[str, float] | None
    gpu_freed: Figure | None = None

    def figure(self, goal: str) -> Figure | None:
        """Return the figure that decides about a goal; less is better."""
        found: Figure | None = getattr(self, _GOALS[goal])
        return found

    def document(self) -> dict[str, Any]:
        """Return it for the answer."""
        return {
            name: value.model_dump() if isinstance(value, Figure) else value
            for name, value in self._asdict().items()
        }


def compare(history: History, now_wall_ns: int) -> dict[str, Any]:
    """Return, as ``models``, each model and batch with an entry per workload, and verdicts.

    The figures are means of the last ten good runs of a workload in seven days, of those that have
    the power mode and clock locks of the model's newest run.
    """
    picked = history.last_good(_SELECTED, now_wall_ns - _SPAN_NS, _RUNS_PER_WORKLOAD)
    runs = [run for run in map(json.loads, picked) if run["model"] is not None]
    runs.sort(key=lambda run: (run["model"], run["batch"], run["device"], run["workload"]))
    models = []
    for (model, batch), group in groupby(runs, key=lambda run: (run["model"], run["batch"])):
        every = list(group)
        conditions = max(every, key=lambda run: float(run["started"]))["conditions"]
        equal = [run for run in every if run["conditions"] == conditions]
        kind = "net" if any(run["net"] is not None for run in equal) else "gross"
        by_workload = groupby(equal, key=lambda run: (run["workload"], run["device"]))
        entries = [
            _entry(workload, device, list(of), kind) for (workload, device), of in by_workload
        ]
        freed = _best([one for one in entries if one.device == "gpu"], "gpu")
        if freed is not None:
            entries = [
                one
                if one.device == "gpu"
                else one._replace(gpu_freed=_minus(freed.gpu_ratio, one.gpu_ratio))
                for one in entries
            ]
        models.append(
            {
                "model": model,
                "batch": batch,
                "energy": kind,
                "simulated": bool(conditions[2]),
                "left_out": len(every) - len(equal),
                "entries": [one.document() for one in entries],
                "verdicts": [found for goal in _GOALS if (found := _verdict(goal, entries))],
            }
        )
    return {"models": models}


def _entry(workload: str, device: str, runs: Sequence[_Run], kind: str) -> _Entry:
    newest = max(runs, key=lambda run: float(run["started"]))
    flags = Counter(flag for run in runs for flag in run["quality"] or () if flag not in _QUIET)
    gpu = present((run["loads"] or {}).get("gpu", {}).get("mean_ratio") for run in runs)
    return _Entry(
        workload,
        device,
        len(runs),
        newest["started"],
        newest["precision"],
        flags,
        mean_of_rounds(present(run["latency"] for run in runs)),
        mean_of_most([_joules(run, kind) for run in runs]),
        mean_of_rounds(gpu, floor=_LOAD_STEP / 2),
        _dla_use(device, runs),
    )


def _joules(run: _Run, kind: str) -> Point | None:
    """Return the energy per inference of a run; None if it is withheld."""
    value, interval = run[kind], run[f"{kind}_interval"]
    if value is None:
        return None
    return value, interval and (interval["high"] - interval["low"]) / 2 / run["inferences"]


def _dla_use(device: str, runs: Sequence[_Run]) -> tuple[str, float] | None:
    """Return the mean use of a run's own core by the best source that all runs have."""
    if not device.startswith("dla"):
        return None
    loads = [run["loads"] or {} for run in runs]
    for source in (*SOURCES, POWERED):
        found = present(one.get(f"{device}:{source}", {}).get("mean_ratio") for one in loads)
        if len(found) == len(runs):
            return source, fmean(found)
    gates = present((run["gates"] or {}).get(device) for run in runs)
    return ("gate", fmean(gates)) if gates else None


def _best(entries: Sequence[_Entry], goal: str) -> _Entry | None:
    """Return the entry with the least value; one that mostly did not use its DLA is no choice."""
    found = [
        (figure.value, one)
        for one in entries
        if (figure := one.figure(goal)) and 2 * one.flags.get("dla_not_used", 0) < one.runs
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _minus(one: Figure | None, other: Figure | None) -> Figure | None:
    """Return a difference with its interval, if both figures have one."""
    if one is None or other is None:
        return None
    interval = difference(other, one)
    ends = {} if interval is None else {"low": interval.low, "high": interval.high}
    return Figure(value=one.value - other.value, **ends)


def _verdict(goal: str, entries: Sequence[_Entry]) -> dict[str, Any] | None:
    """Return the best DLA against the best GPU entry: ``better`` is None if the interval has 0."""
    gpu = _best([one for one in entries if one.device == "gpu"], goal)
    dla = _best([one for one in entries if one.device.startswith("dla")], goal)
    if gpu is None or dla is None:
        return None
    here, there = gpu.figure(goal), dla.figure(goal)
    less = _minus(here, there)
    if here is None or there is None or less is None:
        return None
    better = None
    if less.low is not None and less.high is not None and not less.low <= 0 <= less.high:
        better = dla.device if less.value > 0 else "gpu"
    return {
        "goal": goal,
        "better": better,
        "dla": dla.workload,
        "gpu": gpu.workload,
        "dla_value": there.value,
        "gpu_value": here.value,
        "less_on_dla": less.model_dump(),
    }
