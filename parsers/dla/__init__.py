"""A line of the DLA trace reader to an event: tasks submitted and ended, and its own lines.

Only the standard library, because the privileged reader uses it too.
"""

import re
from typing import NamedTuple

from ..errors import ParseError

OWN_PREFIX = "# tegrascope-dla "
"""Begins the lines that the reader adds; all other lines are the kernel's."""

# A name may contain anything, also " [1]-2"; so the last place that fits is taken. The kernel cuts
# a name at 15 characters, and escapes and replacements make it longer.
_SUBMITTER = re.compile(
    r"\s*(?P<name>.{0,64})-(?P<thread>[0-9]{1,10}) +"
    r"(?:\( *(?P<process>[0-9]{1,10}|-+)\) +)?\[[0-9]+\] .*",
    re.ASCII,
)
_UNKNOWN_NAME = "<...>"
_TIME = re.compile(r"([0-9]{1,12})\.([0-9]{1,9})", re.ASCII)
# The reader enables only these events of the driver.
_EVENTS = {
    "job_submit": re.compile(
        r"(?P<device>.*) class=(?P<class>[0-9a-f]{2,8}) id=(?P<id>[0-9]{1,10}) "
        r"fences=[0-9]{1,10} ts=(?P<ts>[0-9]{1,20})",
        re.ASCII,
    ),
    "job_timestamps": re.compile(
        r"job_id=([0-9]{1,10}) begin=([0-9]{1,20}) end=([0-9]{1,20})", re.ASCII
    ),
}
_LOST = re.compile(r"CPU:([0-9]{1,5}) \[LOST(?: ([0-9]{1,20}))? EVENTS\]", re.ASCII)
_ALIVE = re.compile(r"alive at=([0-9.]{3,22})", re.ASCII)
_HELLO = re.compile(r"hello cores=((?:[0-9](?:,[0-9])*)?)", re.ASCII)
_FIRMWARE = re.compile(
    r"firmware core=(?P<core>[0-9]) percent=(?P<percent>[0-9]{1,7}(?:\.[0-9]{1,4})?) "
    r"at=(?P<at>[0-9.]{3,22})",
    re.ASCII,
)
_CORES = {0xF3: 0, 0xF4: 1}
_DEVICE = re.compile(r".*nvdla([0-9])", re.ASCII)


class Submitted(NamedTuple):
    """A task was submitted to a DLA, a moment before the event was written.

    Attributes:
        task: Its id, unique among the tasks in flight on one core; two cores may use the same.
        core: Number of the core; ``None`` if neither class nor name shows it.
        ticks: The architectural counter at the submission.
        thread: Name of the thread that submitted it, at most 15 characters; ``None`` if the kernel
            no longer knew it.
        process: Its process, or the thread's own number if the trace has no processes.
    """

    at_ns: int
    task: int
    core: int | None
    ticks: int
    thread: str | None = None
    process: int | None = None


class Ended(NamedTuple):
    """A task has ended, a moment before the event was written; the event does not name the core.

    The ticks are the architectural counter when the DLA began the task and when it ended it.
    """

    at_ns: int
    task: int
    begin_ticks: int
    end_ticks: int


class Lost(NamedTuple):
    """The trace buffer of a CPU overflowed; ``events`` is ``None`` if the kernel has no count."""

    cpu: int
    events: int | None


class TraceHello(NamedTuple):
    """The reader has started, with the DLA cores of this machine."""

    cores: tuple[int, ...]


class Unavailable(NamedTuple):
    """The reader has nothing to read; ``why`` contains the reason and the remedy."""

    why: str


class Alive(NamedTuple):
    """All events until this CLOCK_MONOTONIC time have been printed."""

    at_ns: int


class Firmware(NamedTuple):
    """The busy share of the firmware's own window, read just before while a task was in flight."""

    at_ns: int
    core: int
    busy_ratio: float


TraceEvent = Submitted | Ended | Lost | TraceHello | Unavailable | Alive | Firmware


def parse_trace_line(line: str) -> TraceEvent:
    """Parse a line of ``trace_pipe`` with the ``mono`` trace clock, or of the reader itself.

    Times are CLOCK_MONOTONIC; ticks are as printed, because the caller knows their rate.

    Raises:
        ParseError: It is blank (``empty``), not a line of a trace (``noise``), another event
            (``event``), or one of these events with unknown fields (``fields``).

    Source:
        The trace events ``job_submit`` and ``job_timestamps`` of ``nvdla_ftrace``, in the NVDLA
        driver of L4T R36, and the format of ftrace.

    >>> parse_trace_line(
    ...     " kworker/3:1-112 [003] .....  1234.567890: job_timestamps: "
    ...     "job_id=65536 begin=3125000000 end=3125031250"
    ... )
    Ended(at_ns=1234567890000, task=65536, begin_ticks=3125000000, end_ticks=3125031250)
    >>> parse_trace_line("CPU:3 [LOST 12 EVENTS]")
    Lost(cpu=3, events=12)
    """
    text = line.strip()
    if not text:
        raise ParseError("empty", line)
    if text.startswith(OWN_PREFIX):
        return _own(text.removeprefix(OWN_PREFIX), line)
    lost = _LOST.fullmatch(text)
    if lost is not None:
        events = None if lost[2] is None else int(lost[2])
        return Lost(int(lost[1]), events)
    for event in _EVENTS:
        # From the right: the name of the program stands in front and may contain anything.
        head, found, rest = text.rpartition(f": {event}: ")
        if found:
            return _event(event, head, rest, line)
    head, found, _ = text.partition(": ")
    if found and _TIME.fullmatch(head.rpartition(" ")[2]):
        raise ParseError("event", line)
    raise ParseError("noise", line)


def core_of(class_id: int, device: str) -> int | None:
    """Return the DLA core of a host1x class, or of a device name for another class.

    >>> core_of(0xF4, "158c0000.nvdla1"), core_of(0, "15880000.nvdla0"), core_of(0, "?")
    (1, 0, None)
    """
    if class_id in _CORES:
        return _CORES[class_id]
    named = _DEVICE.fullmatch(device)
    if named is None:
        return None
    return int(named[1])


def _event(event: str, head: str, fields: str, line: str) -> TraceEvent:
    at_ns, found = _time(head, line), _EVENTS[event].fullmatch(fields)
    if found is None:
        raise ParseError("fields", line)
    if event == "job_timestamps":
        return Ended(at_ns, *map(int, found.groups()))
    core = core_of(int(found["class"], 16), found["device"])
    return Submitted(at_ns, int(found["id"]), core, int(found["ts"]), *_submitter(head))


def _submitter(head: str) -> tuple[str | None, int | None]:
    """Return name and number at the begin of a line of the trace, each ``None`` if unknown.

    >>> _submitter("          infer-4711    (   4700) [002] .....  12.5")
    ('infer', 4700)
    >>> _submitter("           <...>-4711    [002] .....  12.5")
    (None, 4711)
    """
    found = _SUBMITTER.fullmatch(head)
    if found is None:
        return None, None
    name: str | None = found["name"]
    if name == _UNKNOWN_NAME:
        name = None
    process = found["process"] or "-"
    if process.startswith("-"):
        process = found["thread"]
    return name, int(process)


def _own(text: str, line: str) -> TraceEvent:
    if text.startswith("unavailable "):
        return Unavailable(text.removeprefix("unavailable "))
    if hello := _HELLO.fullmatch(text):
        return TraceHello(tuple(int(core) for core in hello[1].split(",") if core))
    if alive := _ALIVE.fullmatch(text):
        return Alive(_time(alive[1], line))
    firmware = _FIRMWARE.fullmatch(text)
    if firmware is not None and float(firmware["percent"]) <= 100:
        ratio = float(firmware["percent"]) / 100
        return Firmware(_time(firmware["at"], line), int(firmware["core"]), ratio)
    raise ParseError("fields", line)


def _time(head: str, line: str) -> int:
    """Return the time at the end of the text before an event, in nanoseconds."""
    found = _TIME.fullmatch(head.rpartition(" ")[2])
    if found is None:
        raise ParseError("noise", line)
    return int(found[1]) * 1_000_000_000 + int(found[2].ljust(9, "0"))
