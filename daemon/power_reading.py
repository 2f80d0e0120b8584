"""What a power figure of NVML is: how late, and on a beat of its own.

The sensor of a board is read afresh for every line of tegrastats. NVML's instant power is
renewed every 100 ms whenever it is asked, so work at ten, twenty or thirty a second meets it at
the same moments, however far from that beat our own samples are.
"""

from .run_report import Span

READING_SECONDS = {"instant": 0.05, "usage": 1.0}
"""By NVML's kind of reading: the sensor is renewed every 100 ms, of which 50 ms are allowed for
already; a mean over a second says nothing of where in that second power moved."""

_BEAT_NS = {"instant": 100_000_000}


def sensor_times(window: Span, power_reading: str | None) -> list[int]:
    """Return when in a window the sensor behind the power figures was read, but for its phase.

    When exactly its beat falls nobody tells; that work keeps step with it shows all the same.

    Args:
        window: The steady window.
        power_reading: As the environment of a run names it; ``None`` on a board, which has none.

    >>> sensor_times(Span(begin_ns=0, end_ns=250_000_000), "instant")
    [0, 100000000, 200000000]
    """
    beat = _BEAT_NS.get(power_reading or "")
    return [] if beat is None else list(range(window.begin_ns, window.end_ns, beat))


def unsure_seconds(clock_seconds: float | None, power_reading: str | None) -> float | None:
    """Return by how much times of samples and of the run may differ, readings considered.

    Args:
        clock_seconds: By how much their clocks may; ``None`` where that is not known.
        power_reading: As the environment of a run names it; ``None`` on a board.

    >>> unsure_seconds(0.0, "instant"), unsure_seconds(0.0, None), unsure_seconds(None, "usage")
    (0.05, 0.0, None)
    """
    if clock_seconds is None:
        return None
    return clock_seconds + READING_SECONDS.get(power_reading or "", 0.0)
