"""What many people write: the power of NVML each 100 ms, and the trapezoid rule."""

import threading
import time

import pynvml
from marks import Window

INTERVAL_SECONDS = 0.1


def main() -> None:
    """Measure one window."""
    window = Window()
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    seconds: list[float] = []
    watts: list[float] = []
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            seconds.append(time.monotonic())
            watts.append(pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000)
            is_over.wait(INTERVAL_SECONDS)
        seconds.append(time.monotonic())
        watts.append(pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000)

    poller = threading.Thread(target=poll)
    window.wait()
    poller.start()
    window.work()
    is_over.set()
    poller.join()
    areas = [
        (watts[i] + watts[i + 1]) / 2 * (seconds[i + 1] - seconds[i]) for i in range(len(watts) - 1)
    ]
    window.answer(sum(areas))


if __name__ == "__main__":
    main()
