"""The NVML reader: a child that prints what one NVIDIA GPU says, one JSON object a line.

``python -m tegrascope.collectors.nvml_reader --gpu 0 --interval 1.009``. The first line is what
does not change; every other one is a sample. It needs the package nvidia-ml-py and a driver, and
says in one line on standard error what is missing.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ..parsers.errors import Mendable
from .nvml_calls import LOST, Gpu, error_name

UNAVAILABLE = 3
"""Exit status: there is no such GPU on this machine, or no way to ask it."""
GONE = 4
"""Exit status: the GPU or its driver went away."""

_MENDS = {
    "LIBRARY_NOT_FOUND": ("there is no NVIDIA driver (libnvidia-ml.so.1)", "install the driver"),
    "DRIVER_NOT_LOADED": ("the NVIDIA driver is not loaded", "sudo modprobe nvidia, or reboot"),
    "LIB_RM_VERSION_MISMATCH": (
        "the NVIDIA driver that runs is another version than its library",
        "reboot, so that the driver that was installed is loaded",
    ),
    "NO_PERMISSION": (
        "this user may not use the GPU",
        "let it read /dev/nvidiactl and /dev/nvidia0",
    ),
    "OPERATING_SYSTEM": (
        "the operating system keeps this process from the GPU",
        "look at the device rules of its container or unit",
    ),
    "GPU_IS_LOST": ("the GPU has fallen off the bus", "look at dmesg for Xid errors; reboot"),
    "RESET_REQUIRED": ("the GPU wants a reset", "sudo nvidia-smi --gpu-reset, or reboot"),
}


def load_nvml() -> Any:
    """Import ``pynvml`` and begin with it.

    Raises:
        Mendable: It is not installed, or finds no driver.
    """
    try:
        import pynvml
    except ImportError as error:
        raise Mendable(
            f"pynvml can't be imported ({error})", "pip install 'tegrascope[nvml]'"
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise explained(error) from error
    return pynvml


def explained(error: Any) -> Mendable:
    """Say of an error of NVML what it means and what mends it."""
    found = _MENDS.get(error_name(error))
    return Mendable(*(found or (f"NVML says: {error}", "try nvidia-smi on this machine")))


def find_gpu(nvml: Any, wanted: str) -> Any:
    """Return the handle of a GPU.

    Args:
        nvml: The module.
        wanted: Its index or its UUID.

    Raises:
        Mendable: There is none, or it may not be used.
    """
    try:
        count = nvml.nvmlDeviceGetCount()
        if wanted.isdecimal():
            return nvml.nvmlDeviceGetHandleByIndex(int(wanted))
        return nvml.nvmlDeviceGetHandleByUUID(wanted)
    except nvml.NVMLError as error:
        if error_name(error) not in ("INVALID_ARGUMENT", "NOT_FOUND", "GPU_NOT_FOUND"):
            raise explained(error) from error
    there = f"there are {count}: 0 to {count - 1}" if count > 1 else "there is one: 0"
    raise Mendable(
        f"there is no GPU {wanted}",
        f"give nvml.gpu an index or a UUID of nvidia-smi -L ({there if count else 'it has none'})",
    )


def hello(nvml: Any, gpu: Gpu) -> dict[str, Any]:
    """Return the first line: what the GPU and its driver are, and what it will not say."""
    versions = {}
    for library, call in (
        ("nvidia_driver", "nvmlSystemGetDriverVersion"),
        ("nvml", "nvmlSystemGetNVMLVersion"),
        ("cuda_driver", "nvmlSystemGetCudaDriverVersion"),
    ):
        try:
            version = getattr(nvml, call)()
        except (AttributeError, nvml.NVMLError):
            continue
        if isinstance(version, int):
            version = f"{version // 1000}.{version % 1000 // 10}"
        versions[library] = version
    return {"event": "hello", **gpu.facts(), "versions": versions, "refused": gpu.refused}


def read(
    gpu: Gpu,
    interval_seconds: float,
    tell: Callable[[dict[str, Any]], None],
    samples: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
    now_ns: Callable[[], int] = time.monotonic_ns,
) -> None:
    """Sample at absolute deadlines; one that is missed is left out, not made up for.

    Args:
        gpu: Whom to ask.
        interval_seconds: Time between two samples.
        tell: What takes them.
        samples: How many; ``None`` goes on for ever.
        sleep: How time passes.
        now_ns: CLOCK_MONOTONIC.

    Raises:
        NVMLError: The GPU is gone.
    """
    interval_ns = round(interval_seconds * 1e9)
    begin_ns, count, told = now_ns(), 0, 0
    while True:
        tell({"event": "sample", **gpu.sample()})
        told += 1
        if told == samples:
            return
        count = max(count + 1, -((begin_ns - now_ns()) // interval_ns))
        sleep(max(0.0, (begin_ns + count * interval_ns - now_ns()) / 1e9))


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def main(argv: list[str] | None = None) -> int:
    """Print samples until told to stop, or until nobody reads them."""
    parser = argparse.ArgumentParser(
        prog="tegrascope.collectors.nvml_reader",
        description="Print what one NVIDIA GPU says, one JSON object a line.",
        epilog="example: python -m tegrascope.collectors.nvml_reader --gpu 0 --interval 0.103",
    )
    parser.add_argument("--gpu", default="0", help="index or UUID, as nvidia-smi -L lists them")
    parser.add_argument("--interval", type=float, default=1.009, help="seconds (1.009)")
    parser.add_argument("--samples", type=int, help="so many, then end")
    asked = parser.parse_args(argv)
    if not 0.01 <= asked.interval <= 3600:
        parser.error("an interval is 0.01 to 3600 seconds")
    try:
        nvml = load_nvml()
        gpu = Gpu(nvml, find_gpu(nvml, asked.gpu))
    except Mendable as error:
        print(f"nvml: {error}", file=sys.stderr)
        return UNAVAILABLE
    try:
        gpu.sample()  # by which it shows what it will not say
        _print(hello(nvml, gpu))
        read(gpu, asked.interval, _print, asked.samples)
    except nvml.NVMLError as error:
        print(f"nvml: {explained(error)}", file=sys.stderr)
        return GONE if error.value in LOST else 1
    except BrokenPipeError:
        # Nobody reads; nor may the interpreter try to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
