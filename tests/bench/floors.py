"""What plain Python costs on the same lines: the floors that the readers are held against.

None of these makes a record. ``str.split`` finds the words. One expression for the whole line
finds every field; it is written twice: with the text of the core list and of each engine in one
group, as it comes out of a hand that wants speed, and with a group for every number. The ten
searches, one after the other, are how published readers of tegrastats go about it.
"""

import re
from collections.abc import Sequence

# What may be absent is told by its name, so no part of a pattern ever steps back.
_PAIR = "([0-9]+)%@([0-9]+)"


def _engine(name: str) -> str:
    return f"(?: {name} ([^ ]+))?"


def _zone(lower: str, upper: str) -> str:
    return f"(?: (?:{lower}|{upper})@([^ C]+)C(?:/([^ C]+)C)?)?"


def _rail(name: str) -> str:
    return f"(?: {name} ([0-9]+)mW/([0-9]+)mW(?:/([0-9]+)mW)?)?"


_MEMORY = (
    "([0-9-]{10} [0-9:]{8})"
    r" RAM ([0-9]+)/([0-9]+)MB \(lfb ([0-9]+)x([0-9]+)([Mk])B\)"
    r"(?: SWAP ([0-9]+)/([0-9]+)MB \(cached ([0-9]+)MB\))?"
)
_SENSORS = (
    f"{_zone('cv0', 'CV0')}{_zone('cpu', 'CPU')}{_zone('tboard', 'Tboard')}"
    f"{_zone('soc2', 'SOC2')}{_zone('tdiode', 'Tdiode')}{_zone('soc0', 'SOC0')}"
    f"{_zone('cv1', 'CV1')}{_zone('gpu', 'GPU')}{_zone('tj', 'tj')}"
    f"{_zone('soc1', 'SOC1')}{_zone('cv2', 'CV2')}"
    f"{_rail('VDD_GPU_SOC')}{_rail('VDD_CPU_CV')}{_rail('VIN_SYS_5V0')}"
    f"(?: NC 0mW/0mW)?{_rail('VDDQ_VDD2_1V8AO')}(?: NC 0mW/0mW)?"
    f"{_rail('VDD_IN')}{_rail('VDD_CPU_GPU_CV')}{_rail('VDD_SOC')}"
)

WHOLE_LINE = re.compile(
    rf"{_MEMORY} CPU \[([^]]+)\]"
    f"(?: EMC_FREQ {_PAIR})?"
    rf" GR3D_FREQ ([0-9]+)%(?:@([^ ]+))?(?: GR3D2_FREQ {_PAIR})?"
    f"{_engine('NVENC0?')}{_engine('NVDEC0?')}{_engine('NVJPG0?')}{_engine('NVJPG1')}"
    f"{_engine('VIC(?:_FREQ)?')}{_engine('OFA')}"
    f"{_engine('NVDLA0(?:_FREQ)?')}{_engine('NVDLA1(?:_FREQ)?')}"
    f"{_engine('PVA0_FREQ')}{_engine('APE')}"
    f"{_SENSORS}"
)
"""The floor: every field of every line of ``lines.py``; a list and an engine are one text."""

_CORE = f"(?:{_PAIR}|off)"


def _busy(name: str) -> str:
    return f"(?: {name} (?:(off)|{_PAIR}))?"


def _dla(core: int) -> str:
    return f"(?: NVDLA{core}(?: (?:(off)|{_PAIR})|_FREQ @([0-9]+)))?"


EVERY_NUMBER = re.compile(
    rf"{_MEMORY} CPU \[{_CORE},{_CORE},{_CORE},{_CORE},{_CORE},{_CORE}"
    rf"(?:,{_CORE},{_CORE}(?:,{_CORE},{_CORE},{_CORE},{_CORE})?)?\]"
    f"(?: EMC_FREQ {_PAIR})?"
    r" GR3D_FREQ ([0-9]+)%(?:@(?:\[([0-9]+)(?:,([0-9]+))?\]|([0-9]+)))?"
    f"(?: GR3D2_FREQ {_PAIR})?"
    f"{_busy('NVENC0?')}{_busy('NVDEC0?')}{_busy('NVJPG0?')}{_busy('NVJPG1')}"
    rf"(?: VIC(?: (?:(off)|{_PAIR})|_FREQ ([0-9]+)))?"
    f"{_busy('OFA')}{_dla(0)}{_dla(1)}"
    "(?: PVA0_FREQ (?:(off)|@([0-9]+)))?"
    "(?: APE ([0-9]+))?"
    f"{_SENSORS}"
)
"""The same with every number in a group of its own."""

_SEARCHES = (
    re.compile(r"RAM (\d+)/(\d+)MB \(lfb (\d+)x(\d+)[Mk]B\)"),
    re.compile(r"SWAP (\d+)/(\d+)MB \(cached (\d+)MB\)"),
    re.compile(r"CPU \[(.*?)\]"),
    re.compile(r"EMC_FREQ (\d+)%@(\d+)"),
    re.compile(r"GR3D_FREQ (\d+)%"),
    re.compile(r"APE (\d+)"),
    re.compile(r"NVENC (\d+)%@(\d+)"),
    re.compile(r"VIC(?:_FREQ)? (\d+)"),
)
_ZONES = re.compile(r"(\w+)@(-?[\d.]+)C")
_RAILS = re.compile(r"(\w+) (\d+)mW/(\d+)mW")


def split(lines: Sequence[str]) -> int:
    """Cut each line at its blanks; count those that have words."""
    return sum(1 for line in lines if line.split())


def whole_line(lines: Sequence[str], pattern: re.Pattern[str] = WHOLE_LINE) -> int:
    """Match each line as a whole, and take out its groups; count those that match."""
    count = 0
    match = pattern.fullmatch
    for line in lines:
        found = match(line)
        if found is not None:
            found.groups()
            count += 1
    return count


def every_number(lines: Sequence[str]) -> int:
    """Match each line as a whole, with a group for every number."""
    return whole_line(lines, EVERY_NUMBER)


def ten_searches(lines: Sequence[str]) -> int:
    """Search each line ten times, as published readers do; count those that tell their RAM."""
    count = 0
    for line in lines:
        found = [search.search(line) for search in _SEARCHES]
        _ZONES.findall(line)
        _RAILS.findall(line)
        count += found[0] is not None
    return count
