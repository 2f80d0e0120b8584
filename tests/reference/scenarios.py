"""Runs whose lines and events come in under a fixed clock, and their reports."""

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from tegrascope import parse_line
from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.report import Environment, Span
from tegrascope.daemon.measure.running_energy import EnergyCounters
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.parsers.inference.events import parse_run_event
from tegrascope.parsers.nvml import parse_nvml_line
from tegrascope.parsers.records import flatten

Output = Any
SECOND = 1_000_000_000

_AGX = (
    "RAM {ram}/62841MB (lfb 3x4MB) CPU [{cpu}%@729,0%@729,off] EMC_FREQ {emc}%@2133 "
    "GR3D_FREQ {gpu}%@[{mhz},{mhz}] NVDLA0 {dla} NVDLA1 off cpu@{tj}C tj@{tj}C "
    "VDD_GPU_SOC {a}mW/{a}mW VDD_CPU_CV {b}mW/{b}mW VIN_SYS_5V0 {c}mW/{c}mW "
    "VDDQ_VDD2_1V8AO 604mW/604mW"
)
_NX = (
    "RAM {ram}/15655MB (lfb 2x4MB) CPU [{cpu}%@729,off] GR3D_FREQ {gpu}%@[{mhz}] NVDLA0 {dla} "
    "tj@{tj}C VDD_IN {a}mW/{a}mW VDD_CPU_GPU_CV {b}mW/{b}mW VDD_SOC {c}mW/{c}mW"
)
_STRANGE = "RAM {ram}/62841MB (lfb 2x4MB) GR3D_FREQ {gpu}%@[{mhz}] tj@{tj}C OTHER_RAIL {a}mW/{a}mW"
_PLACED = {
    "requested_precision": "fp16",
    "fallback": "allow",
    "placement": {
        "verdict": "mixed",
        "loadables": 1,
        "dla_layers": ["{ForeignNode[a]}"],
        "gpu_layers": ["softmax"],
        "reformat_layers": ["reformat"],
    },
    "engine_key": "ab",
    "engine_bytes": 7,
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "sound": {},
    "nx": {"board": _NX, "device": "cpu", "backend": "onnxruntime", "batch": 4},
    "strange board": {"board": _STRANGE},
    "no idle phases": {"baseline": 0.0},
    "dla": {"device": "dla0", "busy": 0.6},
    "dla unused": {"device": "dla0", "busy": 0.0},
    "dla fallback": {"device": "dla0", "busy": 0.4, "built": _PLACED},
    "foreign dla": {"device": "dla0", "busy": 0.5, "foreign": True},
    "short": {"seconds": 4.0},
    "failed": {"seconds": 12.0, "outcome": "failed"},
    "cut short": {"cuts": True, "outcome": "cancelled"},
    "never steady": {"seconds": 0.0, "outcome": "failed"},
    "overlapped": {"others": {"other": (112.0, 118.0), "apart": (10.0, 20.0)}},
    "throttled": {"throttles": True},
    "gap": {"gap": (112.0, 116.5)},
    "clock step": {"step": 3.0},
    "suspended": {"suspended": 2.0},
    "aliased": {"cycle": 0.1, "jitter": 0.0},
    "counted": {"backend": "command", "counted": 900, "uncertain": 0.05},
    "uncounted": {"backend": "command", "counted": None, "uncertain": 0.05},
    "unknown clock": {"clock_seconds": None},
    "simulated": {"environment": {"simulated": True}},
    "not steady": {"drift": 0.03},
    "nvml": {"board": "nvml", "environment": {"power_reading": "average"}},
    "no telemetry": {"board": None},
}


def _report(
    *,
    board: str | None = _AGX,
    device: str = "gpu",
    backend: str = "tensorrt",
    batch: int = 1,
    seconds: float = 20.0,
    baseline: float = 6.0,
    cycle: float = 0.0213,
    jitter: float = 0.004,
    drift: float = 0.0,
    busy: float | None = None,
    foreign: bool = False,
    built: Mapping[str, Any] | None = None,
    outcome: str = "ok",
    cuts: bool = False,
    others: Mapping[str, tuple[float, float]] | None = None,
    throttles: bool = False,
    gap: tuple[float, float] = (0.0, 0.0),
    step: float = 0.0,
    suspended: float = 0.0,
    counted: int | str | None = "timed",
    uncertain: float = 0.0,
    clock_seconds: float | None = 0.0,
    environment: Mapping[str, Any] | None = None,
) -> Output:
    """Let samples and events of one run come in; return its report, joules and rule."""
    chance = random.Random(1)
    begin, end = 100.0 + baseline, 100.0 + baseline + seconds
    trace = RunTrace(
        run_id="run",
        workload="w",
        backend=backend,
        device=device,
        started_ns=98 * SECOND,
        started_wall_ns=1_750_000_000 * SECOND,
        model="m.onnx",
        batch=batch,
        lateness_seconds=0.25,
    )
    events = _events(begin, end, baseline, cycle, drift, built, outcome, cuts, counted, uncertain)
    for event in events:
        assert trace.add(parse_run_event(json.dumps({"run_id": "run", **event})))
    trace.ended_ns = round((end + baseline + 1) * SECOND)
    trace.suspended_ns = round(suspended * SECOND)
    timeline, counters = Timeline(), EnergyCounters()
    rule, at, spent, throttled = None, 99.0, 0.0, 0
    while board is not None and at < end + baseline + 2:
        at += 0.1 + chance.random() * jitter
        works = begin <= at < end
        spent += 0.1 * (busy or 0.0) * (works or foreign)
        throttled += works and throttles
        draw = chance.random()
        if gap[0] <= at < gap[1]:
            continue
        sample = _sample(board, at, works, draw, device)
        values = dict(flatten(sample))
        if busy is not None:
            values |= {"dla.0.busy_seconds": spent, "dla.0.busy_ratio": busy * works}
        if throttles:
            values |= {"throttle.oc1.events": float(throttled)}
        if rule is None:
            rule = counters.rule = find_rail_rule(sample.rails)
        at_ns = round(at * SECOND)
        counters.feed(at_ns, values)
        wall_ns = at_ns + 1_749_999_900 * SECOND + round(step * SECOND) * (at > 110)
        timeline.append(at_ns, wall_ns, values)
    window = trace.telemetry_window()
    cut = timeline.cut(window.begin_ns, window.end_ns) if window and board else None
    report = correlate(
        trace,
        cut,
        rule=rule,
        others={
            name: (Span(begin_ns=round(a * SECOND), end_ns=round(b * SECOND)),)
            for name, (a, b) in (others or {}).items()
        },
        environment=Environment(board="b", **(environment or {})),
        clock_seconds=clock_seconds,
    )
    return {
        "report": report.model_dump(mode="json"),
        "joules": counters.rails,
        "module_joules": counters.module_joules,
        "rule": rule and rule.name,
    }


def _events(
    begin: float,
    end: float,
    baseline: float,
    cycle: float,
    drift: float,
    built: Mapping[str, Any] | None,
    outcome: str,
    cuts: bool,
    counted: int | str | None,
    uncertain: float,
) -> Iterator[dict[str, Any]]:
    """Yield what a worker prints, without its run."""

    def phase(name: str, edge: str, at: float) -> dict[str, Any]:
        spread = {"uncertain_ns": round(uncertain * SECOND)} if uncertain else {}
        at_ns = round(at * SECOND)
        return {"event": "phase", "phase": name, "edge": edge, "at_ns": at_ns, **spread}

    yield phase("load", "begin", 98.2)
    yield phase("load", "end", 99.1)
    cold = {"import": 0.5, "load": 0.25, "first_inference": 0.125}
    made = {} if built is None else {"built": built}
    versions = {"tensorrt": "10.3"}
    yield {
        "event": "loaded",
        "model_sha256": "ab" * 32,
        "versions": versions,
        "cold_start_seconds": cold,
        **made,
    }
    if baseline:
        yield phase("baseline_before", "begin", begin - baseline)
        yield phase("baseline_before", "end", begin)
    if end > begin:
        yield phase("steady", "begin", begin)
        if counted == "timed":
            count = int((end - begin - 0.05) / cycle)
            starts = [round((begin + i * cycle) * SECOND) for i in range(count)]
            took = [round(SECOND * cycle * (0.9 + i % 7 / 100 + drift * i / count)) for i in
                    range(count)]  # fmt: skip
            stages = {"h2d": [n // 10 for n in took], "compute": [n // 2 for n in took]}
            for half in (slice(None, count // 2), slice(count // 2, None)):
                yield {
                    "event": "inferences",
                    "start_ns": starts[half],
                    "latency_ns": took[half],
                    "stages_ns": {stage: durations[half] for stage, durations in stages.items()},
                }
        else:
            yield {"event": "counted", "inferences": counted}
        if not cuts:
            yield phase("steady", "end", end)
            if baseline:
                yield phase("baseline_after", "begin", end)
                yield phase("baseline_after", "end", end + baseline)
    reason = {} if outcome == "ok" else {"reason": "a reason"}
    yield {"event": "finished", "outcome": outcome, "process_peak_bytes": 7 << 20, **reason}


def _sample(board: str, at: float, works: bool, draw: float, device: str) -> Any:
    watts = 4000 + 9000 * works + round(900 * draw)
    if board == "nvml":
        reading = {
            "event": "sample",
            "at_ns": round(at * SECOND),
            "power_mw": watts,
            "average_mw": watts,
            "power_from": "instant",
            "gpu_percent": 90 * works,
            "sm_mhz": 1980,
            "gpu_celsius": 45,
            "clock_events": 0x48 if works and draw > 0.9 else 0,
        }
        return parse_nvml_line(json.dumps(reading))
    line = board.format(
        ram=6000 + 300 * works,
        cpu=5 + round(9 * draw),
        emc=12 * works,
        gpu=(90 if device == "gpu" else 3) * works,
        mhz=1300 if works else 305,
        dla="@1600" if works and device == "dla0" else "off",
        tj=45 + round(draw, 2),
        a=watts,
        b=400 + round(200 * draw),
        c=3000 + 500 * works,
    )
    return parse_line(line)


def reports() -> dict[str, Output]:
    """Return the report of each scenario, as JSON has it."""
    found = {name: _report(**scenario) for name, scenario in SCENARIOS.items()}
    return dict(json.loads(json.dumps(found)))
