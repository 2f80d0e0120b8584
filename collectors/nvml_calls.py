"""What is asked of NVML, call by call; a GPU that does not answer one of them answers the others.

Only the standard library and what is handed in as ``nvml`` are used: this runs in the reader's
process. Values are those of NVML, in its own units, which the keys name.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

_NAMES = {
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    6: "NOT_FOUND",
    9: "DRIVER_NOT_LOADED",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    18: "LIB_RM_VERSION_MISMATCH",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    28: "GPU_NOT_FOUND",
}
# Codes of errors that end the reader: nothing it could still say of the GPU would be true.
LOST = frozenset({1, 9, 15, 16, 18, 28})
# Those that will be the same next time, so the call is not made again; any other may pass.
_FOR_GOOD = frozenset({2, 3, 4, 13, 25, 26})

_MEMORY_CELSIUS, _POWER_AVERAGE, _POWER_INSTANT = 82, 185, 186
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_NO_FIGURE = 0xFFFFFFFF
_NO_STATE = 32


def error_name(error: Any) -> str:
    """Return the name of an ``NVMLError``, ``GPU_IS_LOST`` say; of an unknown one its number."""
    return _NAMES.get(error.value, str(error.value))


class Gpu:
    """One GPU, asked again and again.

    Attributes:
        refused: What it will never answer, with the reason that it gave.
    """

    def __init__(
        self, nvml: Any, handle: Any, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Take a handle.

        Args:
            nvml: The module ``pynvml``.
            handle: What it gave for the GPU.
            now_ns: CLOCK_MONOTONIC.
        """
        self.refused: dict[str, str] = {}
        self._nvml = nvml
        self._handle = handle
        self._now_ns = now_ns

    def ask(self, name: str, call: str, *arguments: Any) -> Any:
        """Make one call about this GPU.

        Args:
            name: Under which a refusal is kept.
            call: ``nvmlDeviceGet`` and this is what is called.
            arguments: Behind the handle.

        Returns:
            The answer; ``None`` where there is none, this time or ever.

        Raises:
            NVMLError: One of ``LOST``.
        """
        if name in self.refused:
            return None
        function = getattr(self._nvml, f"nvmlDeviceGet{call}", None)
        if function is None:
            self.refused[name] = "this nvidia-ml-py does not know it"
            return None
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            self._take(name, error)
            return None

    def _take(self, name: str, error: Any) -> None:
        if error.value in LOST:
            raise error
        if error.value in _FOR_GOOD:
            self.refused[name] = str(error)

    def facts(self) -> dict[str, Any]:
        """Return what does not change while the reader runs."""
        limit = self.ask("power_limit", "EnforcedPowerLimit")
        memory = self.ask("memory", "MemoryInfo")
        found = {
            "name": self.ask("name", "Name"),
            "uuid": self.ask("uuid", "UUID"),
            "part_number": self.ask("part_number", "BoardPartNumber"),
            "power_limit_mw": limit,
            "memory_total_bytes": None if memory is None else memory.total,
            "power_from": self.power_from,
        }
        return {key: value for key, value in found.items() if value is not None}

    @property
    def power_from(self) -> str | None:
        """Where power comes from: ``instant``, else ``usage``, else nowhere."""
        known = ("instant", "usage")
        return next((one for one in known if f"power_{one}" not in self.refused), None)

    def sample(self) -> dict[str, Any]:
        """Return everything that the GPU says now; what it does not say is not there.

        Power is read first and ``at_ns`` is the middle of that. The energy counter is read last,
        with a stamp before and one after it, since that takes milliseconds.
        """
        found: dict[str, Any] = dict(self._power())
        found.update(self._figures())
        begin_ns = self._now_ns()
        energy = self.ask("energy", "TotalEnergyConsumption")
        if energy is not None:
            found |= {
                "energy_mj": energy,
                "energy_begin_ns": begin_ns,
                "energy_end_ns": self._now_ns(),
            }
        return {key: value for key, value in found.items() if value is not None}

    def _power(self) -> Iterator[tuple[str, Any]]:
        begin_ns = self._now_ns()
        average = None
        if "power_instant" not in self.refused:
            fields = {"power_instant": _POWER_INSTANT, "power_average": _POWER_AVERAGE}
            values = self._fields("power_instant", fields)
            power, average = values["power_instant"], values["power_average"]
        if "power_instant" in self.refused:
            begin_ns = self._now_ns()
            power = self.ask("power_usage", "PowerUsage")
        yield "at_ns", (begin_ns + self._now_ns()) // 2
        # Some drivers say all ones for a sensor that is not there.
        if power is not None and power != _NO_FIGURE:
            yield "power_mw", power
            yield "power_from", self.power_from
        yield "average_mw", None if average == _NO_FIGURE else average

    def _fields(self, name: str, fields: dict[str, int]) -> dict[str, Any]:
        """Ask for several field values at once; each has a return code of its own."""
        answer = self.ask(name, "FieldValues", list(fields.values()))
        found: dict[str, Any] = dict.fromkeys(fields)
        for key, field in zip(fields, answer or (), strict=False):
            if field.nvmlReturn != 0:
                self._take(key, self._nvml.NVMLError(field.nvmlReturn))
            elif field.valueType < len(_VALUES):
                found[key] = getattr(field.value, _VALUES[field.valueType])
        return found

    def _figures(self) -> Iterator[tuple[str, Any]]:
        load = self.ask("utilization", "UtilizationRates")
        if load is not None:
            yield from (("gpu_percent", load.gpu), ("memory_percent", load.memory))
        memory = self.ask("memory", "MemoryInfo")
        if memory is not None:
            yield from (("memory_used_bytes", memory.used), ("memory_total_bytes", memory.total))
        yield "sm_mhz", self.ask("sm_clock", "ClockInfo", _SM_CLOCK)
        yield "memory_mhz", self.ask("memory_clock", "ClockInfo", _MEMORY_CLOCK)
        yield "gpu_celsius", self.ask("temperature", "Temperature", 0)
        if "memory_celsius" not in self.refused:
            celsius = self._fields("memory_celsius", {"memory_celsius": _MEMORY_CELSIUS})
            # Boards without that sensor say 0 and call it good.
            yield "memory_celsius", celsius["memory_celsius"] or None
        yield "fan_percent", self.ask("fan", "FanSpeed")
        for engine, call in (
            ("nvenc", "EncoderUtilization"),
            ("nvdec", "DecoderUtilization"),
            ("nvjpg", "JpgUtilization"),
            ("ofa", "OfaUtilization"),
        ):
            answer = self.ask(engine, call)
            yield f"{engine}_percent", None if answer is None else answer[0]
        state = self.ask("performance_state", "PerformanceState")
        yield "performance_state", None if state == _NO_STATE else state
        yield "power_limit_mw", self.ask("power_limit", "EnforcedPowerLimit")
        yield "clock_events", self._clock_events()

    def _clock_events(self) -> int | None:
        # Called throttle reasons before driver 535.
        names = ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
        for call in names:
            found = self.ask(call, call)
            if found is not None or call not in self.refused:
                return found if found is None else int(found)
        return None
