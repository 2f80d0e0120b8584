"""A stand-in for NVIDIA's ``pynvml``: GPUs of known physics, refusals as they are asked for.

The environment variable ``FAKE_NVML`` holds a JSON object: ``absent`` (as if it were not
installed), ``gpus`` (how many), ``init`` and
``handle`` (an error code for these calls), ``refuse`` (name of a call or number of a field value
to an error code, or to the text of an error of Python), ``missing`` (calls that this version of the
module does not have), ``events`` (masks of clock event reasons, one a sample, the last for ever),
``lost_after`` (samples after which the GPU is lost), ``processes`` (number of a process to its
bytes, or to null), ``busy`` (number of a process to its load in percent, sampled each 0.2 s).

The truth: GPU i draws ``60 + 20 i + 30 sin(2 pi t / 3)`` watts at CLOCK_MONOTONIC t. What NVML
shows of it is as late as on real boards: instant power and the energy counter are renewed every
100 ms, the average is the mean of the second before, and the counter takes 3 ms to read.
"""

import json
import math
import os
import time
from types import SimpleNamespace

_ASKED = json.loads(os.environ.get("FAKE_NVML", "{}"))
if _ASKED.get("absent"):
    raise ModuleNotFoundError("No module named 'pynvml'")
_PERIOD, _BASE, _STEP, _SWING = 3.0, 60.0, 20.0, 30.0
_TICK = 0.1
_TEXTS = {3: "Not Supported", 4: "Insufficient Permissions", 15: "GPU is lost"}
_samples = 0


class NVMLError(Exception):
    """An error with its number."""

    def __init__(self, value):
        super().__init__(value)
        self.value = value

    def __str__(self):
        return _TEXTS.get(self.value, f"error {self.value}")


def joules(seconds, gpu=0):
    """Return the true energy since time 0."""
    turn = 2 * math.pi / _PERIOD
    return (_BASE + _STEP * gpu) * seconds + _SWING / turn * (1 - math.cos(turn * seconds))


def watts(seconds, gpu=0):
    """Return the true power."""
    return _BASE + _STEP * gpu + _SWING * math.sin(2 * math.pi * seconds / _PERIOD)


def _ticked():
    return math.floor(time.monotonic() / _TICK) * _TICK


def _average(gpu):
    now = _ticked()
    return joules(now, gpu) - joules(now - 1, gpu)


def _check(name, gpu=None):
    lost_after = _ASKED.get("lost_after")
    if gpu is not None and lost_after is not None and _samples > lost_after:
        raise NVMLError(15)
    code = _ASKED.get("refuse", {}).get(name)
    if isinstance(code, str):
        raise ValueError(code)
    if code:
        raise NVMLError(code)


def nvmlInit():
    if _ASKED.get("init"):
        raise NVMLError(_ASKED["init"])


def nvmlSystemGetDriverVersion():
    return "580.1"


def nvmlSystemGetNVMLVersion():
    return "13.580.1"


def nvmlSystemGetCudaDriverVersion():
    return 13010


def nvmlDeviceGetCount():
    return _ASKED.get("gpus", 1)


def nvmlDeviceGetHandleByIndex(index):
    if _ASKED.get("handle"):
        raise NVMLError(_ASKED["handle"])
    if index >= nvmlDeviceGetCount():
        raise NVMLError(2)
    return index


def nvmlDeviceGetHandleByUUID(uuid):
    for index in range(nvmlDeviceGetCount()):
        if uuid == f"GPU-{index}":
            return nvmlDeviceGetHandleByIndex(index)
    raise NVMLError(6)


def nvmlDeviceGetFieldValues(gpu, fields):
    global _samples
    _samples += 186 in fields
    _check("FieldValues", gpu)
    truth = {
        82: 61,
        185: round(_average(gpu) * 1000),
        186: round(watts(_ticked(), gpu) * 1000),
    }
    refused = _ASKED.get("refuse", {})
    return [
        SimpleNamespace(
            nvmlReturn=refused.get(str(field), 0),
            valueType=1,
            value=SimpleNamespace(uiVal=truth[field]),
        )
        for field in fields
    ]


def nvmlDeviceGetTotalEnergyConsumption(gpu):
    _check("TotalEnergyConsumption", gpu)
    read = joules(_ticked(), gpu)
    time.sleep(0.003)
    return round(read * 1000)


def _events():
    masks = _ASKED.get("events", [0])
    # The first sample is the reader's own, to see what is refused.
    return masks[min(max(_samples - 2, 0), len(masks) - 1)]


def _busy(since_us):
    latest = math.floor(time.monotonic() / 0.2) * 200_000
    found = []
    for at in range(max(since_us, latest - 600_000) + 200_000, latest + 1, 200_000):
        for pid, load in _ASKED.get("busy", {}).items():
            found.append(SimpleNamespace(pid=int(pid), timeStamp=at, smUtil=load))
    if not found:
        raise NVMLError(6)
    return found


def _answer(call, give):
    def answered(gpu, *arguments):
        _check(call, gpu)
        return give(gpu, *arguments)

    globals()[f"nvmlDeviceGet{call}"] = answered


for _call, _give in {
    "PowerUsage": lambda gpu: round(_average(gpu) * 1000),
    "Name": lambda gpu: f"Fake GPU {gpu}",
    "UUID": lambda gpu: f"GPU-{gpu}",
    "BoardPartNumber": lambda gpu: f"900-0000{gpu}",
    "EnforcedPowerLimit": lambda gpu: 350_000,
    "MemoryInfo": lambda gpu: SimpleNamespace(total=8 << 30, used=(1 + gpu) << 30),
    "UtilizationRates": lambda gpu: SimpleNamespace(gpu=40 + gpu, memory=12),
    "ClockInfo": lambda gpu, kind: {1: 1980, 2: 2619}[kind],
    "Temperature": lambda gpu, sensor: 45 + gpu,
    "FanSpeed": lambda gpu: 33,
    "EncoderUtilization": lambda gpu: [7, 100_000],
    "DecoderUtilization": lambda gpu: [0, 100_000],
    "JpgUtilization": lambda gpu: [0, 100_000],
    "OfaUtilization": lambda gpu: [0, 100_000],
    "ComputeRunningProcesses": lambda gpu: [
        SimpleNamespace(pid=int(pid), usedGpuMemory=used)
        for pid, used in _ASKED.get("processes", {}).items()
    ],
    "GraphicsRunningProcesses": lambda gpu: [],
    "ProcessUtilization": lambda gpu, since_us: _busy(since_us),
    "PerformanceState": lambda gpu: 2,
    "CurrentClocksEventReasons": lambda gpu: _events(),
    "CurrentClocksThrottleReasons": lambda gpu: _events(),
}.items():
    _answer(_call, _give)
for _call in _ASKED.get("missing", ()):
    del globals()[f"nvmlDeviceGet{_call}"]
