"""How late a power figure is, beyond what a line of tegrastats is late anyway."""

READING_SECONDS = {"instant": 0.05, "usage": 1.0}
"""By NVML's kind of reading: the sensor is renewed every 100 ms, of which 50 ms are allowed for
already; a mean over a second says nothing of where in that second power moved."""


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
