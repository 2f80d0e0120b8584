"""The other processes that used the board in a window: CPU, DLA and GPU by name."""

from collections.abc import Mapping, Sequence

from ...parsers import signals
from ...parsers.signals import Signal
from .blocks import WindowSlice, known_values
from .report import ProcessShare, Span

# A load is that of the second before its sample.
_LOAD_LAG_NS = 1_000_000_000
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
    loads = gpu_loads(samples, window)
    users = []
    for name in dict.fromkeys([*cpu, *dla, *gpu]):
        share = ProcessShare(
            name=name,
            cpu_seconds=cpu.get(name),
            dla_seconds=dla.get(name, {}),
            gpu_memory_bytes=gpu.get(name),
            gpu_load_ratio=loads.get(name),
        )
        of_dla, of_cpu, gpu_bytes = _use(share)
        is_busy = max(of_dla, of_cpu) >= _LEAST_SHARE * window.seconds
        if name != signals.OWN_PROCESS and (is_busy or gpu_bytes):
            users.append(share)
    users.sort(key=lambda share: share.name)
    users.sort(key=_use, reverse=True)
    return tuple(users[:_NAMED_AT_MOST])


def own_gpu_bytes(samples: WindowSlice, window: Span) -> int | None:
    """Return the most GPU memory of our own processes in a window, if processes are listed."""
    return _largest(samples, signals.PROCESS_GPU_MEMORY, window).get(signals.OWN_PROCESS)


def least_available_bytes(samples: WindowSlice, window: Span) -> int | None:
    """Return the least memory of the board that was available in a window, if it is read."""
    inside = samples.inside(window.begin_ns, window.end_ns)
    column = samples.columns.get(signals.RAM_AVAILABLE.column(), ())
    values = known_values(column[inside])
    return int(min(values)) if values else None


def dla_seconds(samples: WindowSlice, window: Span) -> dict[str, dict[str, float]]:
    """Return by process the busy seconds of each DLA core in a window, ours included."""
    found: dict[str, dict[str, float]] = {}
    for core, signal in DLA_SECONDS.items():
        for name, seconds in _grown(samples, signal, window).items():
            if seconds:
                found.setdefault(name, {})[core] = seconds
    return found


def gpu_loads(samples: WindowSlice, window: Span) -> dict[str, float]:
    """Return the mean load of the GPU by each process in a window, ours included, if NVML has it.

    A name that the list lacks at times, since it began later or ended, did not compute then.
    """
    inside = samples.inside(window.begin_ns + _LOAD_LAG_NS, window.end_ns)
    columns = {}
    for name, column in signals.PROCESS_GPU_LOAD.by_label(samples.columns).items():
        columns[name] = known_values(column[inside])
    listed = max(map(len, columns.values()), default=0)
    if not listed:
        return {}
    return {name: min(sum(loads) / listed, 1.0) for name, loads in columns.items()}


def foreign_gpu_load(samples: WindowSlice, window: Span) -> float:
    """Return the mean load of the GPU by other programs in a window in which a run of ours used it.

    It is 0 where NVML lists none of ours: the program that is measured may then be one of the
    others, or names are hidden, as in a container. Processes without a name do not count.
    """
    loads = gpu_loads(samples, window)
    if not loads.pop(signals.OWN_PROCESS, 0.0):
        return 0.0
    loads.pop(signals.UNKNOWN_PROCESS, None)
    return sum(loads.values())


def _use(share: ProcessShare) -> tuple[float, float, int]:
    """Return the use of all DLA cores, of the CPU and of the GPU's memory."""
    of_dla = sum(share.dla_seconds.values())
    return of_dla, share.cpu_seconds or 0.0, share.gpu_memory_bytes or 0


def _grown(samples: WindowSlice, signal: Signal, window: Span) -> Mapping[str, float]:
    """Return by how much each counter of a signal grew in a window, by name."""
    columns = signal.by_label(samples.columns)
    return {name: _growth(samples, column, window) for name, column in columns.items()}


def _largest(samples: WindowSlice, signal: Signal, window: Span) -> Mapping[str, int]:
    """Return the largest value of each column of a signal in a window, by name."""
    inside = samples.inside(window.begin_ns, window.end_ns)
    largest: dict[str, int] = {}
    for name, column in signal.by_label(samples.columns).items():
        values = known_values(column[inside])
        if values:
            largest[name] = int(max(values))
    return largest


def _growth(samples: WindowSlice, column: Sequence[float], window: Span) -> float:
    grown = 0.0
    for begin, before, end, after in samples.steps(column):
        inside = min(end, window.end_ns) - max(begin, window.begin_ns)
        if inside > 0 and after > before:
            grown += (after - before) * inside / (end - begin)
    return grown
