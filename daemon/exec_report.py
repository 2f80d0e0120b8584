"""A run in a few lines, for the person who has just waited for it."""

from collections.abc import Iterator

from .run_report import Energy, RunReport, Telemetry


def report_lines(report: RunReport, notes: tuple[str, ...] = ()) -> list[str]:
    """Return what a person wants to know of a run; what is not known is not said.

    Args:
        report: The run.
        notes: What else there is to say.
    """
    rows = [
        *_energy(report),
        *_load(report.telemetry),
        *_latency(report),
        *((("flags", " ".join(report.quality)),) if report.quality else ()),
        *((("overlaps", " ".join(report.overlapping_runs)),) if report.overlapping_runs else ()),
        *(("note", note) for note in notes),
        ("run", report.run_id),
    ]
    return [_headline(report), *(f"  {name:9} {text}" for name, text in rows)]


def _headline(report: RunReport) -> str:
    steady = report.phases.get("steady")
    parts = [f"{report.workload} on {report.device}: {report.outcome}"]
    if report.reason:
        parts.append(report.reason)
    if steady is not None:
        parts.append(f"{steady.seconds:.3g} s")
    if report.inferences:
        parts.append(f"{report.inferences} inferences")
    if report.throughput_per_second is not None:
        parts.append(f"{report.throughput_per_second:.4g} inputs/s")
    return "tegrascope: " + " · ".join(parts)


def _energy(report: RunReport) -> Iterator[tuple[str, str]]:
    energy, steady = report.energy, report.phases.get("steady")
    if energy is None or steady is None:
        return
    if energy.gross_joules is not None:
        interval = energy.gross_interval
        sure = "" if interval is None else f" ({interval.low:.4g} to {interval.high:.4g})"
        mean = energy.gross_joules / steady.seconds
        yield "energy", f"{energy.gross_joules:.4g} J{sure}, {mean:.3g} W in the mean"
    else:
        rails = (f"{name} {rail.mean_watts:.3g} W" for name, rail in energy.rails.items())
        yield "rails", " · ".join(rails)
    if energy.net_joules is not None:
        yield "net", f"{energy.net_joules:.4g} J above {energy.baseline_watts:.3g} W idle"
    each = list(_each(energy))
    if each:
        yield "each", " · ".join(each)


def _each(energy: Energy) -> Iterator[str]:
    if energy.gross_joules_per_inference is not None:
        yield f"{energy.gross_joules_per_inference:.3g} J an inference"
    if energy.net_joules_per_inference is not None:
        yield f"{energy.net_joules_per_inference:.3g} J of them net"


def _load(telemetry: Telemetry | None) -> Iterator[tuple[str, str]]:
    if telemetry is None:
        return
    loads = [
        f"{signal} {load.mean_ratio:.0%} (up to {load.max_ratio:.0%})"
        for signal, load in telemetry.utilization.items()
    ]
    if loads:
        yield "load", " · ".join(loads)
    if telemetry.temperature:
        zone, hottest = max(telemetry.temperature.items(), key=lambda item: item[1].max_celsius)
        yield "hottest", f"{zone} {hottest.max_celsius:.3g} °C ({hottest.delta_celsius:+.2g})"


def _latency(report: RunReport) -> Iterator[tuple[str, str]]:
    if report.latency is not None:
        latency = report.latency
        yield (
            "latency",
            f"p50 {latency.p50_seconds * 1e3:.3g} ms · p99 {latency.p99_seconds * 1e3:.3g} ms",
        )
