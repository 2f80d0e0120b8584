"""Programs for which the machine has booted at another time: time namespaces.

CLOCK_MONOTONIC and CLOCK_BOOTTIME begin at the boot, and a namespace shifts them. A machine on
which the tests run has usually been up for hours, and hides every subtraction that reaches back
beyond the boot.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

DAY_SECONDS = 86_400
JUST_BOOTED_SECONDS = 5
LONG_UP_SECONDS = 400 * DAY_SECONDS

_CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME}
_LOOK = "import time; print(time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))"


def clock_offset(clock: str) -> int:
    """Return the whole seconds by which a time namespace shifts a clock for us; 0 without one."""
    try:
        rows = Path("/proc/self/timens_offsets").read_text(encoding="ascii").splitlines()
    except OSError:  # a kernel without time namespaces
        return 0
    offsets = {name: int(seconds) for name, seconds, _ in map(str.split, rows)}
    return offsets[clock]


def booted_ago(seconds: int, asleep_seconds: int = 0) -> tuple[str, ...]:
    """Return the words before a command line for which the machine booted so many seconds ago.

    Where a time namespace is not allowed, the test is skipped. In CI it fails: there it is the only
    proof that the product works just after the boot.

    Args:
        seconds: What CLOCK_MONOTONIC shows when the command begins.
        asleep_seconds: How much more CLOCK_BOOTTIME shows: the time for which the machine slept.
    """
    shown = {"monotonic": seconds, "boottime": seconds + asleep_seconds}
    within = ["unshare", "--time", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        within.append("--map-root-user")
    for name, clock in _CLOCKS.items():
        # The kernel takes offsets from the clock of the machine, also in a namespace within one.
        offset = shown[name] - int(time.clock_gettime(clock)) + clock_offset(name)
        within += [f"--{name}", str(offset)]
    reason = _why_not(within, seconds)
    if reason is not None:
        _give_up(reason)
    return (*within, "--")


def beside(pid: int) -> tuple[str, ...]:
    """Return the words before a command line for which the clocks are those of a process."""
    within = ["nsenter", "--target", str(pid), "--time"]
    if os.geteuid() != 0:
        within += ["--user", "--preserve-credentials"]
    return (*within, "--")


def _why_not(within: list[str], seconds: int) -> str | None:
    """Return why the clocks cannot be shifted here; None if they can."""
    if shutil.which("unshare") is None:
        return "unshare is not installed: apt install util-linux"
    look = [*within, "--", sys.executable, "-c", _LOOK]
    tried = subprocess.run(look, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"this machine grants no time namespace: {tried.stderr.strip()[:200]}"
    monotonic, boottime = map(float, tried.stdout.split())
    if min(monotonic, boottime) < seconds:
        return f"the clocks are not shifted: {tried.stdout.strip()}"
    return None


def _give_up(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"CI has to test this, and cannot: {reason}")
    pytest.skip(reason)
