"""What holds clocks down on a board: over-current events, and zones beyond a throttle trip."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .kernel_file import KernelFile, read_number, read_text, to_number
from .readings import Column, Reading, Scaled

_COUNTER = re.compile(r"(oc[0-9])_event_cnt")
_ALERT = re.compile(r"([a-z][a-z0-9]*)-throttle-alert")


@dataclass(unsafe_hash=True)
class ThrottleAlert:
    """A cooling device that stands for clocks held down for heat; its state is 0 while none is.

    The kernel counts nothing here, so what began between two looks and ended before the second is
    not seen.

    Attributes:
        file: ``cur_state``.
        kind: What it is called.
    """

    file: KernelFile
    kind: str
    _events: int = field(default=0, compare=False)
    _was_active: bool = field(default=False, compare=False)

    def take(self, text: str, now_ns: int) -> Iterator[Column]:  # noqa: ARG002
        """Yield whether it goes on, and how often it began since the first look."""
        state = to_number(text)
        if state is None or state < 0:
            return
        is_active = state > 0
        self._events += is_active and not self._was_active
        self._was_active = is_active
        yield f"throttle.{self.kind}.active", float(is_active)
        yield f"throttle.{self.kind}.events", float(self._events)


def find_over_current(root: Path) -> Iterator[Reading]:
    """Yield the counter of each over-current alarm that throttles.

    They are named as the files are (``oc1`` …), for what each stands for differs by chip. One
    that is set to hold nothing down (``oc1_throt_en`` is 0) is no throttling.
    """
    for chip in sorted(root.glob("sys/class/hwmon/hwmon*")):
        if read_text(chip / "name") != "soctherm_oc":
            continue
        for path in sorted(chip.glob("oc*_event_cnt")):
            found = _COUNTER.fullmatch(path.name)
            if found is not None and read_number(chip / f"{found[1]}_throt_en") != 0:
                yield Scaled(KernelFile(path), f"throttle.{found[1]}.events")


def find_alerts(root: Path) -> Iterator[Reading]:
    """Yield the state of each throttle alert: kinds ``cpu_thermal``, ``gpu_thermal`` and so on.

    The file ``thermal_trip_event_block`` beside it is never touched: reading it waits for the
    next event.
    """
    for device in sorted(root.glob("sys/class/thermal/cooling_device*")):
        found = _ALERT.fullmatch(read_text(device / "type") or "")
        if found is not None:
            yield ThrottleAlert(KernelFile(device / "cur_state"), f"{found[1]}_thermal")
