"""Checks of beliefs about the daemon, its units and its package on a board."""

from ...parsers.records import Sample
from .belief import Checks, Decision, Evidence, decide, refuted, undecided
from .telemetry import samples

CHECKS = Checks()

_MOST_BYTES, _MOST_RATIO = 56 << 20, 0.01
_STOPPED_SECONDS = 3.0


@CHECKS.needs("daemon")
def parent_small(daemon: Evidence) -> Decision:
    """Memory, and processor time after the start; a minute proves no more."""
    size = daemon.need("^rss bytes$", "the daemon did not run")
    ratio = daemon.need("^cpu ratio$", "the daemon did not run")
    because = f"{size / (1 << 20):.0f} MiB, {100 * ratio:.1f} % of a core in {daemon.seconds:.0f} s"
    if size > _MOST_BYTES or ratio > _MOST_RATIO:
        return refuted(because)
    return undecided(f"{because}; measure after ten minutes")


@CHECKS.needs("daemon")
def page_memory(daemon: Evidence) -> Decision:
    """The most memory while its page was asked for each second; a minute proves no more."""
    size = daemon.need("^hwm bytes$", "the daemon did not run")
    because = f"at most {size / (1 << 20):.0f} MiB in {daemon.seconds:.0f} s"
    if size > _MOST_BYTES:
        return refuted(because)
    return undecided(f"{because}; leave the page open for ten minutes")


@CHECKS.needs("unit")
def unit_starts(unit: Evidence) -> Decision:
    """It starts, so it is ready (Type=notify), and stops in time."""
    states = [text for _, text in unit.items("status$")]
    seconds = unit.number("^stop seconds$")
    if seconds is None or len(states) < 2:
        return undecided("the unit was not started and stopped")
    holds = states == ["0", "0"] and seconds < _STOPPED_SECONDS
    return decide(holds, f"status {' and '.join(states)}; stopped in {seconds:.1f} s")


@CHECKS.needs("root_tegrastats", "socket")
def root_tegrastats_in_sandbox(rootly: Evidence, served: Evidence) -> Decision:
    """The lines of the unit have the names that root's lines have."""

    def names(last: Sample) -> set[str]:
        groups = {"EMC": last.emc, "GR3D": last.gpu, "RAM": last.ram}
        found = {name for name, value in groups.items() if value is not None}
        found |= {f"NVDLA{core}" for core in range(len(last.dla))}
        return found | {*last.engines, *last.temperatures_celsius, *last.rails}

    differ = sorted(names(samples(rootly)[-1]) ^ names(samples(served)[-1]))
    return decide(not differ, f"names in one of the two only: {', '.join(differ) or 'none'}")


@CHECKS.needs("socket")
def tegrastats_ends(served: Evidence) -> Decision:
    """No tegrastats is left after our connection was closed."""
    samples(served)
    before, after = (served.need(f"^{when}$", "nothing counted") for when in ("before", "after"))
    return decide(after <= before, f"{before:.0f} ran before, {after:.0f} three seconds after")


@CHECKS.needs("venv")
def package_installs(venv: Evidence) -> Decision:
    """The package's Python imports numpy, TensorRT and the CUDA binding."""
    words = next((line for line in reversed(venv.lines) if line.strip()), "nothing")[:120]
    return decide(venv.status == 0 and venv.has("^ok"), f"it printed: {words}")
