"""The other processes that used the board in a window: CPU, DLA and GPU memory by name."""

from collections.abc import Mapping, Sequence
from math import isnan

from ...parsers import signals
from ...parsers.signals import Signal
from .blocks import WindowSlice
from .report import ProcessShare, Span

# A process counts as a user of the board from this share of the window on, of a CPU core or a DLA.
_LEAST_SHARE = 0.005
_NAMED_AT_MOST = 10
DLA_SECONDS = {
    "dla0": signals.DLA0_PROCESS_SECONDS,
    "dla1": signals.DLA1_PROCESS_SECONDS,
}


def other_processes(samples: WindowSlice, window: Span) -> tuple[ProcessShare, ...]:
    """Return who else used the board in a window, the largest use first, without our own processes.

    A counter is taken to grow evenly between two readings. CPU time is read at the edges of a run
    and every ten seconds, DLA time with each sample.
    """
    cpu = _grown(samples, signals.PROCESS_CPU, window)
    dla = dla_seconds(samples, window)
    gpu = _largest(samples, signals.PROCESS_GPU_MEMORY, window)
    shares = [
        ProcessShare(
            name=name,
            cpu_seconds=cpu.get(name),
            dla_seconds=dla.get(name, {}),
            gpu_memory_bytes=gpu.get(name),
        )
        for name in dict.fromkeys([*cpu, *dla, *gpu])
        if name != signals.OWN_PROCESS
    ]
    least = _LEAST_SHARE * window.seconds
    used = [
        one
        for one in shares
        if max(_dla(one), one.cpu_seconds or 0.0) >= least or one.gpu_memory_bytes
    ]
    used.sort(
        key=lambda one: (
            *(-_dla(one), -(one.cpu_seconds or 0.0), -(one.gpu_memory_bytes or 0)),
            one.name,
        )
    )
    return tuple(used[:_NAMED_AT_MOST])


def dla_seconds(samples: WindowSlice, window: Span) -> dict[str, dict[str, float]]:
    """Return by process the busy seconds of each DLA core in a window, ours included."""
    found: dict[str, dict[str, float]] = {}
    for core, signal in DLA_SECONDS.items():
        for name, seconds in _grown(samples, signal, window).items():
            if seconds:
                found.setdefault(name, {})[core] = seconds
    return found


def _dla(one: ProcessShare) -> float:
    return sum(one.dla_seconds.values())


def _grown(samples: WindowSlice, signal: Signal, window: Span) -> Mapping[str, float]:
    """Return by how much each counter of a signal grew in a window, by name."""
    columns = signal.by_label(samples.columns)
    return {name: _growth(samples, column, window) for name, column in columns.items()}


def _largest(samples: WindowSlice, signal: Signal, window: Span) -> Mapping[str, int]:
    """Return the largest value of each column of a signal in a window, by name."""
    inside = samples.inside(window.begin_ns, window.end_ns)
    columns = signal.by_label(samples.columns)
    known = {name: [v for v in column[inside] if not isnan(v)] for name, column in columns.items()}
    return {name: int(max(values)) for name, values in known.items() if values}


def _growth(samples: WindowSlice, column: Sequence[float], window: Span) -> float:
    grown = 0.0
    for begin, before, end, after in samples.steps(column):
        inside = min(end, window.end_ns) - max(begin, window.begin_ns)
        if inside > 0 and after > before:
            grown += (after - before) * inside / (end - begin)
    return grown
