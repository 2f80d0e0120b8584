"""The cold start of a run, in parts that do not overlap."""

from .engines.base import Engine


class ColdStart:
    """What a cold start was spent on, in parts that do not overlap.

    Attributes:
        parts_ns: Name to nanoseconds.
    """

    def __init__(self) -> None:
        self.parts_ns: dict[str, int] = {}
        self._told: set[str] = set()

    def add(self, step: str, took_ns: int, engine: Engine) -> None:
        """Add a step, less those parts of it that the engine tells apart.

        Args:
            step: What to call the rest of it.
            took_ns: The whole of it.
            engine: Asked which parts there were.
        """
        parts = {name: ns for name, ns in engine.cold_start_ns().items() if name not in self._told}
        self._told.update(parts)
        self.parts_ns.update(parts)
        # What was read from a cache was not built: its rest goes with the reading.
        rest = "cache_load" if step == "build" and "cache_load" in parts else step
        rest_ns = max(0, took_ns - sum(parts.values()))
        self.parts_ns[rest] = self.parts_ns.get(rest, 0) + rest_ns
