"""The buffers of one element of a GStreamer pipeline, by a tracer that is part of GStreamer."""

import os
import sys
import tempfile
import threading
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...parsers.errors import UserError
from ...parsers.gstreamer import NewElement, Push, TracerLine, read_line, read_record
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..children.process import DescriptorReader

# Buffers that an element dropped stay in its process's list up to this length.
_INSIDE_AT_MOST = 1000
# For processes that the program leaves behind, which have the log open.
_LAST_WAIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Buffers:
    """The buffers of an element; times are CLOCK_MONOTONIC.

    Attributes:
        count: Buffers that left the element, by any pad; those that entered it if none left.
        begin_ns: The first push into or out of the element; ``end_ns`` is the last one.
        start_ns: Entry of each buffer that left with the time stamp of one that had entered, shape
            (n,); ``latency_ns`` is its time inside.
    """

    count: int
    begin_ns: int
    end_ns: int
    start_ns: "array[int]"
    latency_ns: "array[int]"


@dataclass(slots=True)
class _Process:
    """The pipelines of a process; times count from GStreamer's start there."""

    started_ns: int  # on CLOCK_MONOTONIC
    wanted: set[int] = field(default_factory=set)
    inside: deque[Push] = field(default_factory=lambda: deque(maxlen=_INSIDE_AT_MOST))
    entered: int = 0
    left: int = 0
    first_ns: int | None = None
    last_ns: int = 0
    start_ns: "array[int]" = field(default_factory=lambda: array("q"))
    latency_ns: "array[int]" = field(default_factory=lambda: array("q"))

    def push(self, push: Push) -> None:
        """Add a push, if it is into or out of a wanted element."""
        if push.taker in self.wanted:
            self.entered += 1
            self.inside.append(push)
        elif push.giver in self.wanted:
            self.left += 1
            same = (push.giver, push.presentation_ns)
            entry = next((one for one in self.inside if one[2:] == same), None)
            if entry is not None:
                self.inside.remove(entry)
                self.start_ns.append(entry.at_ns)
                self.latency_ns.append(push.at_ns - entry.at_ns)
        else:
            return
        self.last_ns = push.at_ns
        if self.first_ns is None:
            self.first_ns = push.at_ns


class ElementWatch:
    """Counts and times the buffers of the elements of a name, line by line."""

    def __init__(self, element: str) -> None:
        self._element = element
        self._processes: dict[int, _Process] = {}
        self._seen: dict[str, bool] = {}  # by name, whether all of them are bins

    def add(self, arrived_ns: int, line: TracerLine) -> None:
        """Add a line of the log, which arrived at a moment of CLOCK_MONOTONIC."""
        started_ns = arrived_ns - line.printed_ns
        process = self._processes.setdefault(line.process, _Process(started_ns))
        # The line that was read soonest after it was printed has the least error.
        process.started_ns = min(process.started_ns, started_ns)
        record = read_record(line.message)
        if isinstance(record, NewElement):
            self._seen[record.name] = record.is_bin and self._seen.get(record.name, True)
            # A bin would count a buffer at its own pads and again at those inside.
            if record.name == self._element and not record.is_bin:
                process.wanted.add(record.number)
        elif record is not None:
            process.push(record)

    def buffers(self) -> Buffers:
        """Return all that were seen.

        Raises:
            UserError: There are none; it says what was seen in place of them.
        """
        starts, latencies = array("q"), array("q")
        begins: list[int] = []
        ends: list[int] = []
        left = entered = 0
        for process in self._processes.values():
            if process.first_ns is None:
                continue
            begins.append(process.started_ns + process.first_ns)
            ends.append(process.started_ns + process.last_ns)
            left += process.left
            entered += process.entered
            starts.extend(process.started_ns + at_ns for at_ns in process.start_ns)
            latencies.extend(process.latency_ns)
        if not begins:
            raise self._nothing()
        return Buffers(left or entered, min(begins), max(ends), starts, latencies)

    def _nothing(self) -> UserError:
        if not self._seen:
            remedy = "see that the program uses it, and that gst-inspect-1.0 stats finds the tracer"
            return UserError("GStreamer reported no element", remedy)
        is_bin = self._seen.get(self._element)
        if is_bin is False:
            return UserError(f"no buffer entered or left {self._element}", "see its pipeline run")
        problem = f"{self._element} is a bin" if is_bin else f"there is no element {self._element}"
        names = ", ".join(name for name, is_bin in self._seen.items() if not is_bin)
        return UserError(problem, f"name one of: {names}")


def check_log_is_free() -> None:
    """Raise if the user wants the log of GStreamer in a file."""
    if os.environ.get("GST_DEBUG_FILE"):
        remedy = "unset it: lines of other categories go to standard error"
        raise UserError("--gst reads the log of GStreamer, and GST_DEBUG_FILE is set", remedy)


@contextmanager
def traced(watch: ElementWatch, clock: Clock = SYSTEM_CLOCK) -> Iterator[dict[str, str]]:
    """Yield the environment for a program whose GStreamer reports to a watch.

    GStreamer writes its log into a named pipe. Other lines of that go to standard error, where they
    would be without us.
    """
    tracers = os.environ.get("GST_TRACERS", "").split(";")
    if not any(one.partition("(")[0].strip() == "stats" for one in tracers):
        tracers.append("stats")
    with tempfile.TemporaryDirectory(prefix="tegrascope-") as folder:
        path = Path(folder, "gstreamer.log")
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        # The log does not end between two processes that write to it.
        held = os.open(path, os.O_WRONLY)
        reader = DescriptorReader(fd, clock=clock)
        thread = threading.Thread(target=_read, args=(reader, watch), name="gstreamer")
        thread.start()
        try:
            yield {
                "GST_TRACERS": ";".join(filter(None, tracers)),
                "GST_DEBUG": ",".join(filter(None, (os.environ.get("GST_DEBUG"), "GST_TRACER:7"))),
                "GST_DEBUG_FILE": str(path),
            }
        finally:
            os.close(held)
            thread.join(_LAST_WAIT_SECONDS)
            reader.wake()
            thread.join()
            reader.end()
            os.close(fd)


def _read(reader: DescriptorReader, watch: ElementWatch) -> None:
    """Read the log until it ends, or until the reader is woken."""
    while isinstance(line := reader.read(), Stamped):
        traced_line = read_line(line.value)
        if traced_line is not None:
            watch.add(line.monotonic_ns, traced_line)
        elif sys.stderr is not None:
            print(line.value, file=sys.stderr)
