"""Power modes: nvpmodel's configuration, its status file and its answers."""

import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

# pmode:0002 fmode:quiet
_STATUS = re.compile(r"pmode:([0-9]{1,8})", re.ASCII)
# < POWER_MODEL ID=2 NAME=MODE_30W >
_MODE = re.compile(r"\s*<\s*POWER_MODEL\s+ID=([0-9]{1,8})\s+NAME=(\S+)\s*>", re.ASCII)
# GPU MAX_FREQ 612000000, or CPU_ONLINE CORE_4 0
_CAP = re.compile(r"\s*(\w+)\s+(MAX_FREQ|CORE_\d+)\s+(-?\d{1,18})\s*$", re.ASCII)
# The last line of `nvpmodel -q`; lines before it have the name, or warnings.
_ASKED = re.compile(r"^([0-9]{1,8})\s*\Z", re.ASCII | re.MULTILINE)
_REBOOT = "reboot required"
# A clock with a number is slower than one without a limit, even if the number is its highest.
_LIMITED = 0.99


class PowerMode(NamedTuple):
    """A mode; caps are clocks in hertz, infinite without a limit, and cores, 0 or 1."""

    number: int
    name: str
    caps: Mapping[tuple[str, str], float] = {}


def parse_modes(text: str) -> list[PowerMode]:
    r"""Return the modes of ``nvpmodel.conf`` in its order; lines of other kinds are skipped.

    -1 means unlimited. For the memory (EMC) 0 does too. The rows below a mode that cannot be read
    are skipped with it: they are not those of the mode before.

    >>> [mode] = parse_modes("< POWER_MODEL ID=2 NAME=MAXN_SUPER >\nGPU MAX_FREQ -1")
    >>> mode.number, mode.name, mode.caps
    (2, 'MAXN_SUPER', {('GPU', 'MAX_FREQ'): inf})
    """
    modes: list[PowerMode] = []
    caps: dict[tuple[str, str], float] | None = None  # of the present mode
    for line in text.splitlines():
        if line.lstrip().startswith("<"):
            header = _MODE.match(line)
            caps = None
            if header is not None:
                caps = {}
                modes.append(PowerMode(int(header[1]), header[2], caps))
            continue
        cap = _CAP.match(line)
        if cap is None or caps is None:
            continue
        value = float(cap[3])
        if value < 0 or (value == 0 and cap[1] == "EMC"):
            value = inf
        caps[cap[1], cap[2]] = value
    return modes


def largest_mode(modes: Sequence[PowerMode]) -> PowerMode | None:
    """Return the mode with the highest caps; ``None`` if the file has none to compare.

    That is the mode whose clocks and cores have the largest mean share of the highest of all modes.
    A file without caps has only names: then it is the first that begins with MAXN.
    """
    keys: set[tuple[str, str]] = set()
    for mode in modes:
        keys.update(mode.caps)
    if not keys:
        return next((mode for mode in modes if mode.name.upper().startswith("MAXN")), None)
    shares = [0.0] * len(modes)
    for key in keys:
        caps = [mode.caps.get(key, inf) for mode in modes]
        for at, cap in enumerate(caps):
            shares[at] += _share_of_highest(cap, caps)
    return modes[shares.index(max(shares))]


def _share_of_highest(cap: float, caps: Sequence[float]) -> float:
    """Return a cap as a share of the highest of all modes; 1.0 without a limit."""
    if cap == inf:
        return 1.0
    highest = max(number for number in caps if number != inf)
    if highest == 0:
        return 0.0
    if inf in caps:
        return _LIMITED * cap / highest
    return cap / highest


def find_mode(modes: Sequence[PowerMode], word: str) -> PowerMode | None:
    """Return the mode with this number or name; ``None`` for a word that the file does not have."""
    return next((one for one in modes if word in (str(one.number), one.name)), None)


def mode_of(status: str | None) -> int | None:
    """Read the number of the mode out of nvpmodel's status file.

    >>> mode_of("pmode:0002 fmode:quiet"), mode_of("nonsense")
    (2, None)
    """
    return _number_in(_STATUS.match(status or ""))


def mode_in_answer(answer: str) -> int | None:
    r"""Read the number of the mode out of the answer of ``nvpmodel -q``.

    >>> mode_in_answer("NVPM WARN: fan mode is not set!\nNV Power Mode: MAXN\n0\n")
    0
    """
    return _number_in(_ASKED.search(answer.rstrip()))


def _number_in(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    return int(found[1])


def wants_reboot(answer: str) -> bool:
    """Return whether nvpmodel refused a mode because it needs a reboot.

    >>> wants_reboot("NVPM WARN: Reboot required for changing to this power mode: 2")
    True
    """
    return _REBOOT in answer.lower()
