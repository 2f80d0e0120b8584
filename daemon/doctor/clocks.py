"""The wall clock: whether it is right, who keeps it, and whether it was set since boot."""

from collections.abc import Iterator
from datetime import datetime, timezone

from .finding import Finding, Patient

_FIRST_GOOD_YEAR = 2024
# Made by the first process and by udev in the first seconds of a boot, and never copied.
_EARLY_SOCKETS = (
    "/run/systemd/private",
    "/run/systemd/notify",
    "/run/systemd/journal/socket",
    "/run/udev/control",
)
_STEP_SECONDS = 120.0
_UNITS = ((86400.0 * 365.25, "years"), (86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))


def check_clocks(patient: Patient) -> Iterator[Finding]:
    """Look at the year, the kernel's word on synchronisation, and the first sockets of the boot."""
    machine, clock = patient.machine, patient.machine.clock
    wall_seconds, boot_seconds = clock.wall_ns() / 1e9, clock.boottime_ns() / 1e9
    yield judge_wall(wall_seconds)
    yield judge_synchronised(machine.is_synchronised())
    made = machine.socket_made_seconds(_EARLY_SOCKETS)
    # In a container these sockets are those of its own, later start.
    yield judge_step(None if patient.board.container else made, wall_seconds, boot_seconds)


def judge_wall(wall_seconds: float) -> Finding:
    """Say whether the wall clock can be right at all.

    Args:
        wall_seconds: Seconds since 1970.
    """
    now = datetime.fromtimestamp(max(0.0, wall_seconds), timezone.utc)
    facts = {"time": now.isoformat(timespec="seconds")}
    if now.year < _FIRST_GOOD_YEAR:
        return Finding(
            check="wall_clock",
            level="broken",
            said=f"the clock says {now:%Y-%m-%d}: it was not set since the board started",
            mend="sudo timedatectl set-ntp true, and see that the network is there",
            facts=facts,
        )
    return Finding(
        check="wall_clock", level="good", said=f"{now:%Y-%m-%d %H:%M:%S} UTC", facts=facts
    )


def judge_synchronised(is_synchronised: bool | None) -> Finding:
    """Say whether something keeps the wall clock right."""
    facts = {"synchronised": is_synchronised}
    if is_synchronised:
        return Finding(
            check="clock_sync", level="good", said="the clock is kept in step", facts=facts
        )
    said = "nothing keeps the clock in step: times of runs may be wrong, their lengths are not"
    if is_synchronised is None:
        said = "the kernel does not say whether the clock is kept in step"
    return Finding(
        check="clock_sync",
        level="note",
        said=said,
        mend="sudo timedatectl set-ntp true",
        facts=facts,
    )


def judge_step(made_seconds: float | None, wall_seconds: float, boot_seconds: float) -> Finding:
    """Say whether the wall clock was set since the board started.

    What was made in the first seconds of a boot bears the wall time of then. If the clock has run
    on undisturbed since, that is now less the time since boot.

    Args:
        made_seconds: Wall time of the oldest of those things; ``None`` where there are none.
        wall_seconds: Wall time now.
        boot_seconds: Time since boot, suspend included.
    """
    if made_seconds is None:
        return Finding(
            check="clock_step", level="note", said="nothing tells whether the clock was set"
        )
    step = wall_seconds - boot_seconds - made_seconds
    if abs(step) < _STEP_SECONDS:
        return Finding(
            check="clock_step", level="good", said="the clock was not set since the board started"
        )
    way = "forward" if step > 0 else "back"
    return Finding(
        check="clock_step",
        level="note",
        said=f"the clock was set {way} by {_length(abs(step))} since the board started: a run"
        " across that is flagged clock_step",
        mend="a battery for the board's RTC, or start the service after time-sync.target",
        facts={"step_seconds": round(step)},
    )


def _length(seconds: float) -> str:
    """Return a length of time in the largest unit of which there is one.

    >>> _length(3700), _length(1.77e9)
    ('1 hour', '56 years')
    """
    for length, unit in _UNITS:
        if seconds >= length:
            count = round(seconds / length)
            return f"{count} {unit if count > 1 else unit[:-1]}"
    return f"{seconds:.0f} seconds"
