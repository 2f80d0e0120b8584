"""Calls of NVML, one by one; a GPU that refuses one of them answers the others.

Only the standard library and the module ``nvml`` are used: this runs in the reader's process.
Values are those of NVML, in its own units, which the keys name.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ...parsers.errors import PIP_INSTALL, UserError

_INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND = 2, 3, 4, 6
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND = 9, 12, 13
_GPU_IS_LOST, _RESET_REQUIRED, _OPERATING_SYSTEM, _VERSION_MISMATCH = 15, 16, 17, 18
_UNINITIALIZED, _ARGUMENT_VERSION_MISMATCH, _DEPRECATED, _GPU_NOT_FOUND = 1, 25, 26, 28
# Errors that end the reader: no later value of the GPU would be true.
_GONE = (_UNINITIALIZED, _DRIVER_NOT_LOADED, _GPU_IS_LOST, _RESET_REQUIRED)
LOST = frozenset({*_GONE, _VERSION_MISMATCH, _GPU_NOT_FOUND})
# Errors of calls that are not repeated, since they will fail again; any other may pass.
_REFUSED = (_INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION, _FUNCTION_NOT_FOUND)
_FOR_GOOD = frozenset({*_REFUSED, _ARGUMENT_VERSION_MISMATCH, _DEPRECATED})

_MEMORY_CELSIUS, _POWER_AVERAGE, _POWER_INSTANT = 82, 185, 186
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_NO_FIGURE = 0xFFFFFFFF
_NO_STATE = 32
_MOST_PERCENT = 100
# A list of processes takes longer than the other values; less than a second, so as to keep step.
_LIST_NS = 900_000_000


class NvmlGpu:
    """One GPU; ``nvml`` is the module ``pynvml``."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.refused: dict[str, str] = {}
        self._nvml = nvml
        self._handle = handle
        self._utilization_us = 0  # of NVML's own last sample of the processes

    def ask(self, name: str, call: str, *arguments: Any) -> Any:
        """Return the result of ``nvmlDeviceGet`` + ``call``, or ``None``; raise if ``LOST``."""
        if name in self.refused:
            return None
        function = getattr(self._nvml, f"nvmlDeviceGet{call}", None)
        if function is None:
            self.refused[name] = "this nvidia-ml-py does not have it"
            return None
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            self._take(name, error)
        except Exception as error:  # of the package itself, as for a name that is not UTF-8
            self.refused[name] = f"{type(error).__name__}: {error}"
        return None

    def _take(self, name: str, error: Any) -> None:
        if error.value in LOST:
            raise error
        if error.value in _FOR_GOOD:
            self.refused[name] = str(error)

    def facts(self) -> dict[str, Any]:
        """Return the values that do not change while the reader runs."""
        found = {
            "name": self.ask("name", "Name"),
            "uuid": self.ask("uuid", "UUID"),
            "part_number": self.ask("part_number", "BoardPartNumber"),
            "power_limit_mw": self.ask("power_limit", "EnforcedPowerLimit"),
            "power_from": self.power_from,
        }
        return {key: value for key, value in found.items() if value is not None}

    @property
    def power_from(self) -> str | None:
        """The source of power: ``instant``, else ``usage``, else none."""
        for source in ("instant", "usage"):
            if f"power_{source}" not in self.refused:
                return source
        return None

    def sample(self) -> dict[str, Any]:
        """Return all values of the GPU; those that it does not have are absent.

        Power is read first and ``at_ns`` is the middle of that. The energy counter is read last,
        with a stamp before and one after it, since that takes milliseconds.
        """
        found: dict[str, Any] = dict(self._power()) | dict(self._figures())
        begin_ns = time.monotonic_ns()
        energy = self.ask("energy", "TotalEnergyConsumption")
        if energy is not None:
            end_ns = time.monotonic_ns()
            found |= {"energy_mj": energy, "energy_begin_ns": begin_ns, "energy_end_ns": end_ns}
        return {key: value for key, value in found.items() if value is not None}

    def sample_beside(self) -> dict[str, Any]:
        """Return power and load only: the values that tegrastats leaves out on some boards."""
        found: dict[str, Any] = dict(self._power())
        load = self.ask("utilization", "UtilizationRates")
        if load is not None:
            found["gpu_percent"] = load.gpu
        return {key: value for key, value in found.items() if value is not None}

    def processes(self) -> dict[int, int] | None:
        """Return the memory that each process uses, in bytes; ``None`` if NVML does not say."""
        computing = self.ask("compute_processes", "ComputeRunningProcesses")
        drawing = self.ask("graphics_processes", "GraphicsRunningProcesses")
        if computing is None and drawing is None:
            return None
        used_bytes: dict[int, int] = {}
        # A process that computes and draws is in both lists, with the same memory.
        for process in (*(computing or ()), *(drawing or ())):
            if process.usedGpuMemory is not None:
                used_bytes[process.pid] = process.usedGpuMemory
        return used_bytes

    def busy_processes(self) -> dict[int, float] | None:
        """Return the percentage of time in which each process computed since the last call.

        It is ``None`` if NVML does not have it. NVML samples by itself, a few times per second.
        """
        samples = self.ask("process_utilization", "ProcessUtilization", self._utilization_us)
        if "process_utilization" in self.refused:
            return None
        # Without a new sample of any process it returns an error.
        by_process: dict[int, list[int]] = {}
        for sample in samples or ():
            if sample.timeStamp > self._utilization_us and 0 <= sample.smUtil <= _MOST_PERCENT:
                by_process.setdefault(sample.pid, []).append(sample.smUtil)
        for sample in samples or ():
            self._utilization_us = max(self._utilization_us, sample.timeStamp)
        return {pid: sum(loads) / len(loads) for pid, loads in by_process.items()}

    def _power(self) -> Iterator[tuple[str, Any]]:
        begin_ns = time.monotonic_ns()
        average = None
        if "power_instant" not in self.refused:
            fields = {"power_instant": _POWER_INSTANT, "power_average": _POWER_AVERAGE}
            values = self._fields("power_instant", fields)
            power, average = values["power_instant"], values["power_average"]
        if "power_instant" in self.refused:
            begin_ns = time.monotonic_ns()
            power = self.ask("power_usage", "PowerUsage")
        yield "at_ns", (begin_ns + time.monotonic_ns()) // 2
        # Some drivers return all ones for a sensor that is not there.
        if power is not None and power != _NO_FIGURE:
            yield "power_mw", power
            yield "power_from", self.power_from
        if average != _NO_FIGURE:
            yield "average_mw", average

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
            # Boards without that sensor return 0 and success.
            yield "memory_celsius", celsius["memory_celsius"] or None
        yield "fan_percent", self.ask("fan", "FanSpeed")
        engines = {"nvenc": "Encoder", "nvdec": "Decoder", "nvjpg": "Jpg", "ofa": "Ofa"}
        for engine, name in engines.items():
            answer = self.ask(engine, f"{name}Utilization")
            if answer is not None:
                yield f"{engine}_percent", answer[0]
        state = self.ask("performance_state", "PerformanceState")
        if state != _NO_STATE:
            yield "performance_state", state
        yield "power_limit_mw", self.ask("power_limit", "EnforcedPowerLimit")
        yield "clock_events", self._clock_events()

    def _clock_events(self) -> int | None:
        # Called throttle reasons before driver 535.
        for call in ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons"):
            events = self.ask(call, call)
            if events is not None:
                return int(events)
            if call not in self.refused:
                return None
        return None


# Exit statuses: this machine has no such GPU or cannot read it; the GPU or its driver went away.
UNAVAILABLE, GONE = 3, 4

_REMEDIES = {
    _LIBRARY_NOT_FOUND: ("there is no NVIDIA driver (libnvidia-ml.so.1)", "install the driver"),
    _DRIVER_NOT_LOADED: ("the NVIDIA driver is not loaded", "sudo modprobe nvidia, or reboot"),
    _VERSION_MISMATCH: (
        "the NVIDIA driver that runs is another version than its library",
        "reboot, so that the driver that was installed is loaded",
    ),
    _NO_PERMISSION: (
        "this user may not use the GPU",
        "let it read /dev/nvidiactl and /dev/nvidia0",
    ),
    _OPERATING_SYSTEM: (
        "the operating system keeps this process from the GPU",
        "look at the device rules of its container or unit",
    ),
    _GPU_IS_LOST: ("the GPU has fallen off the bus", "look at dmesg for Xid errors; reboot"),
    _RESET_REQUIRED: ("the GPU wants a reset", "sudo nvidia-smi --gpu-reset, or reboot"),
}


def load_nvml() -> Any:
    """Import and initialise ``pynvml``; raise ``UserError`` without it or a driver."""
    try:
        import pynvml
    except ImportError as error:
        what = f"pynvml can't be imported ({error})"
        raise UserError(what, f"{PIP_INSTALL} nvidia-ml-py") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise explained(error) from error
    return pynvml


def explained(error: Any) -> UserError:
    """Return the meaning and the remedy of an error of NVML."""
    if error.value in _REMEDIES:
        return UserError(*_REMEDIES[error.value])
    return UserError(f"NVML reports: {error}", "try nvidia-smi on this machine")


def find_gpu(nvml: Any, wanted: str) -> Any:
    """Return the handle of a GPU; raise ``UserError`` if it does not exist or may not be used."""
    try:
        count = nvml.nvmlDeviceGetCount()
        if wanted.isdecimal():
            return nvml.nvmlDeviceGetHandleByIndex(int(wanted))
        return nvml.nvmlDeviceGetHandleByUUID(wanted)
    except nvml.NVMLError as error:
        if error.value not in (_INVALID_ARGUMENT, _NOT_FOUND, _GPU_NOT_FOUND):
            raise explained(error) from error
    there = f"there are {count}: 0 to {count - 1}"
    if count == 1:
        there = "there is one: 0"
    elif count == 0:
        there = "it has none"
    remedy = f"give nvml.gpu an index or a UUID of nvidia-smi -L ({there})"
    raise UserError(f"there is no GPU {wanted}", remedy)


def hello(nvml: Any, gpu: NvmlGpu) -> dict[str, Any]:
    """Return the first line: the GPU, its driver, and the values that it refuses."""
    versions = {}
    libraries = {"nvidia_driver": "Driver", "nvml": "NVML", "cuda_driver": "CudaDriver"}
    for library, name in libraries.items():
        try:
            version = getattr(nvml, f"nvmlSystemGet{name}Version")()
        except (AttributeError, nvml.NVMLError):
            continue
        if isinstance(version, int):
            version = f"{version // 1000}.{version % 1000 // 10}"
        versions[library] = version
    return {"event": "hello", **gpu.facts(), "versions": versions, "refused": gpu.refused}


def read(
    gpu: NvmlGpu,
    interval_seconds: float,
    tell: Callable[[dict[str, Any]], None],
    samples: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
    now_ns: Callable[[], int] = time.monotonic_ns,
    *,
    beside: bool = False,
    processes: bool = False,
) -> None:
    """Sample at absolute deadlines, for ever or so many times; a missed one is left out.

    Args:
        beside: Only the values that a board's tegrastats may leave out.
        processes: Also the memory and the load of each process, at most once per second.
    """
    interval_ns = round(interval_seconds * 1e9)
    begin_ns, count, printed = now_ns(), 0, 0
    listed_ns: int | None = None
    while True:
        sample = gpu.sample_beside() if beside else gpu.sample()
        tell({"event": "sample", **sample})
        printed += 1
        if processes and (listed_ns is None or now_ns() - listed_ns >= _LIST_NS):
            listed_ns = now_ns()
            used_bytes = gpu.processes()
            busy_percent = gpu.busy_processes()
            if used_bytes is not None:
                listed = {"used_bytes": used_bytes, "busy_percent": busy_percent}
                tell({"event": "processes", "at_ns": listed_ns, **listed})
        if printed == samples:
            return
        count = max(count + 1, -((begin_ns - now_ns()) // interval_ns))
        sleep(max(0.0, (begin_ns + count * interval_ns - now_ns()) / 1e9))


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line, separators=(",", ":")), flush=True)


def main(argv: list[str] | None = None) -> int:
    """Print samples until asked to stop, or until nothing reads them."""
    parser = argparse.ArgumentParser(
        prog="tegrascope.collectors.gpu.reader",
        description="Print the values of one NVIDIA GPU, one JSON object per line.",
        epilog="example: python -m tegrascope.collectors.gpu.reader --gpu 0 --interval 0.103",
    )
    parser.add_argument("--gpu", default="0", help="index or UUID, as nvidia-smi -L lists them")
    parser.add_argument("--interval", type=float, default=1.009, help="seconds (1.009)")
    parser.add_argument("--samples", type=int, help="so many, then end")
    parser.add_argument("--beside", action="store_true", help="load and power only")
    parser.add_argument("--processes", action="store_true", help="and memory and load by process")
    asked = parser.parse_args(argv)
    if not 0.01 <= asked.interval <= 3600:
        parser.error("an interval is 0.01 to 3600 seconds")
    try:
        nvml = load_nvml()
        gpu = NvmlGpu(nvml, find_gpu(nvml, asked.gpu))
    except UserError as error:
        print(f"nvml: {error}", file=sys.stderr)
        return UNAVAILABLE
    try:
        # By these it finds the values that the GPU refuses.
        gpu.sample_beside() if asked.beside else gpu.sample()
        if asked.processes:
            gpu.processes()
            gpu.busy_processes()
        _print(hello(nvml, gpu))
        kinds = {"beside": asked.beside, "processes": asked.processes}
        read(gpu, asked.interval, _print, asked.samples, **kinds)
    except nvml.NVMLError as error:
        print(f"nvml: {explained(error)}", file=sys.stderr)
        return GONE if error.value in LOST else 1
    except BrokenPipeError:
        # The reader is gone; the interpreter must not try to flush the rest either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
