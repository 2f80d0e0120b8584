"""A recorded log, line by line, at its own pace, faster, or at once."""

import codecs
import gzip
import io
import logging
import os
import re
import stat
import statistics
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import PositiveFloat

from ...parsers.errors import PIP_INSTALL, UnreadableError, UserError, file_error
from ...parsers.tegrastats.line import split_records
from ...parsers.tegrastats.prefix import read_prefix
from ...parsers.tegrastats.values import read_time
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..children.process import LONGEST_LINE
from ..paths import is_pipe
from .collector import Opening, SourceSettings, TegrastatsCollector

LONGEST_STEP_SECONDS = 10.0
REMOTE_BLOCK_BYTES = 8 << 20
MOST_LINES_A_SECOND = 2000
RECENT_GAPS = 31

LogPath = Path | str | None
"""A file, a URL of fsspec such as ``s3://bucket/robot.log.gz``, or standard input."""

# So many bytes tell UTF-16 from a stray zero.
_HEAD_BYTES = 8

_LOG = logging.getLogger(__name__)
_RECORD = re.compile(r"(?:^|\s)RAM [0-9]+/[0-9]+MB")


class LogFile:
    """A log, as lines or as bytes, and how far it has been read; a context manager."""

    def __init__(self, path: LogPath) -> None:
        """Open a log, plain or gzip, or raise ``UserError``; ``None`` is standard input, plain."""
        self._path = path or Path("standard input")
        self.problem: UserError | None = None  # why ``read1`` could not read it to its end
        self.is_cut = False  # whether the line that ``lines`` yielded last has no newline
        self.size_bytes: int | None = None  # None for a pipe
        self._decoder: codecs.IncrementalDecoder | None = None
        self._head = b""
        try:
            self._file, self._log = _open_log(path)
            self.size_bytes = self._size()
        except Exception as error:  # a remote file system has errors of its own
            raise _unreadable(self._path, error) from error
        self._begin()

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def position_bytes(self) -> int:
        """How much of the file has been read; 0 where it has no size."""
        if self.size_bytes is None:
            return 0
        return self._file.raw.tell()

    def lines(self) -> Iterator[str]:
        """Yield its lines, a too long one in pieces; an unreadable rest raises ``UserError``."""
        # Not from the log itself: it loses the beginning of a line whose rest cannot be read.
        log = io.BufferedReader(_ReadableRaw(self), LONGEST_LINE)
        while line := log.readline(LONGEST_LINE):
            self.is_cut = line[-1:] != b"\n" and len(line) < LONGEST_LINE
            yield line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
        if self.problem is not None:
            raise self.problem

    def read1(self, size: int = -1, /) -> bytes:
        """Return some of the next bytes; none at the end, and none after a problem."""
        try:
            if self._head:
                data, self._head = self._head, b""
                return data
            if self._decoder is None:
                return self._log.read1(size)
            return self._read_utf16(size)
        except Exception as error:  # as above
            self.problem = _unreadable(self._path, error)
            return b""

    def _size(self) -> int | None:
        if isinstance(self._path, str):
            size: int | None = getattr(self._file.raw, "size", None)
            return size
        on_disk = os.fstat(self._file.fileno())
        if not stat.S_ISREG(on_disk.st_mode):
            return None
        return on_disk.st_size

    def _begin(self) -> None:
        """Look at the first bytes: PowerShell's ``>`` writes UTF-16, with a mark in front."""
        try:
            self._head = self._log.read(_HEAD_BYTES)
        except Exception as error:  # as above
            self.problem = _unreadable(self._path, error)
            return
        if self._head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            # Damaged pairs of bytes are damaged words, as invalid bytes of a plain log are.
            self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
            self._head = self._decoder.decode(self._head).encode()
        for order, halves in (("LE", self._head[1::2]), ("BE", self._head[::2])):
            if halves == bytes(_HEAD_BYTES // 2) and self._head != bytes(_HEAD_BYTES):
                self._close()
                # Its end may look like any text, so it is not guessed.
                raise UserError(
                    f"{self._path} is UTF-16 without a mark that says so",
                    f"convert it: iconv -f UTF-16{order} -t UTF-8 FILE",
                )

    def _read_utf16(self, size: int) -> bytes:
        """Return some of the next bytes in UTF-8; none at the end."""
        assert self._decoder is not None
        while True:
            # Two bytes become three at most, and no more than ``size`` may be returned.
            data = self._log.read1(size // 2 if size > 1 else size)
            text = self._decoder.decode(data, not data)
            if text or not data:
                return text.encode()

    def _close(self) -> None:
        self._log.close()
        self._file.close()


class _ReadableRaw(io.RawIOBase):
    """The bytes of a log until its end or a problem."""

    def __init__(self, log: LogFile) -> None:
        self._log = log

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._log.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def log_path(name: str) -> Path | str:
    """Return what a person names: a URL or a file."""
    return name if "://" in name else Path(name)


def _open_log(path: LogPath) -> tuple[io.BufferedReader, io.BufferedReader | gzip.GzipFile]:
    """Open a log, and return what is read of it and its text."""
    if path is None:
        standard_input = open(0, "rb", closefd=False)  # noqa: SIM115 - the caller closes it
        return standard_input, standard_input
    file = _open_url(path) if isinstance(path, str) else path.open("rb")
    try:
        is_gzip = file.peek(2)[:2] == b"\x1f\x8b"
    except BaseException:
        file.close()
        raise
    if is_gzip:
        return file, gzip.GzipFile(fileobj=file)
    return file, file


def _open_url(url: str) -> io.BufferedReader:
    import fsspec

    files, path = fsspec.url_to_fs(url)
    return io.BufferedReader(files.open(path, "rb", block_size=REMOTE_BLOCK_BYTES))


def _unreadable(path: Path | str, error: Exception) -> UserError:
    if isinstance(error, ImportError):
        return UserError(f"{path} cannot be read ({error})", f"{PIP_INSTALL} fsspec s3fs")
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path} is not there", "name a log that tegrastats wrote")
    if isinstance(path, str):
        remedy = "check the address, its credentials and the file"
        return UserError(f"{path} cannot be read ({error})", remedy)
    if isinstance(error, PermissionError):
        return file_error(error, path)
    if isinstance(error, IsADirectoryError):
        return UserError(f"{path} is a directory", "name one log in it")
    return UserError(f"{path} cannot be read ({error})", "copy it again; it may be cut off")


class TimedLine(NamedTuple):
    """A line and when it was printed, in seconds since the first line of the log."""

    seconds: float
    line: str


class LogTimes:
    """The times of one log's lines, in seconds since the first; they never fall and never stall.

    A line's time is that of a recorder (``1750865666.38::``, or another form of ``read_prefix``)
    where it has one, else the timestamp that it prints. Lines that print the same second are spread
    evenly up to the next different one, which is the look-ahead: at most one second of lines, or
    2000. A record without either comes one interval after the record before; another line comes
    with the line before it. A step back, or of more than ten seconds, is a clock that was set or a
    machine that slept: it counts as one median interval.

    >>> log = ["05-18-2026 00:29:11 RAM 1/2MB", "05-18-2026 00:29:11 RAM 1/2MB",
    ...        "05-18-2026 00:29:13 RAM 1/2MB"]
    >>> [line.seconds for line in LogTimes().times(log)]
    [0.0, 1.0, 2.0]
    """

    def __init__(self, interval_seconds: float = 1.0) -> None:
        """Prepare; the interval counts until the log shows its own."""
        self.median_seconds: float | None = None
        self._nominal_seconds = interval_seconds
        self._gaps: deque[float] = deque(maxlen=RECENT_GAPS)
        self._gaps_seen = 0
        self._now = 0.0  # when the present block begins

    def times(self, lines: Iterable[str]) -> Iterator[TimedLine]:
        """Yield every line with its time, in order."""
        mark: float | None = None
        block: list[tuple[int, str]] = []  # the lines of a mark, and how many records are before
        records = 0
        for line in lines:
            prefix = read_prefix(line)
            own = _printed_second(prefix.rest) if prefix.kind is None else prefix.ns / 10**9
            if own is not None and own != mark:
                yield from self._spread(block, records, mark, own)
                mark, block, records = own, [], 0
            is_record = own is not None
            if mark is None:
                is_record = is_record or _RECORD.search(prefix.rest) is not None
            if is_record:
                block.append((records, line))
                records += 1
            else:
                block.append((max(0, records - 1), line))  # with the record before it
            if len(block) >= MOST_LINES_A_SECOND:
                yield from self._spread(block, records, mark, mark)
                block, records = [], 0
        yield from self._spread(block, records, mark, None)

    def _spread(
        self,
        block: list[tuple[int, str]],
        records: int,
        mark: float | None,
        after: float | None,
    ) -> Iterator[TimedLine]:
        """Yield a mark's lines, evenly up to the next one, and move on to where that begins."""
        step: float | None = None
        if mark is not None and after is not None:
            step = after - mark
        span = self._span_seconds(records, step)
        if mark is not None and records > 1 and span != step:
            span = min(span, 1.0)  # they share a second
        for record, line in block:
            yield TimedLine(self._now + span * record / max(1, records), line)
        self._now += span

    def _span_seconds(self, records: int, step: float | None) -> float:
        """Return how long some records took: by their clock, if that is plausible."""
        if step is None or not 0 <= step <= LONGEST_STEP_SECONDS:
            gap = self._nominal_seconds
            if self._gaps:
                gap = statistics.median(self._gaps)
            return gap * records
        if records and step:
            self._gaps.append(step / records)
            self._gaps_seen += 1
            if self._gaps_seen in (3, RECENT_GAPS) or self._gaps_seen % 256 == 0:
                self.median_seconds = statistics.median(self._gaps)
        return step


def _printed_second(text: str) -> float | None:
    """Return the second that a record prints, counted from any fixed day."""
    try:
        return (read_time(*text.split(maxsplit=2)[:2]) - datetime.min).total_seconds()
    except (TypeError, UnreadableError):
        return None


class ReplaySource:
    """A log file, plain or gzip, whose lines come as they did when it was recorded.

    Lines are due on an absolute schedule, so late ones do not delay the rest. Lines that are not
    tegrastats records are yielded too, for the collector to count.
    """

    name = "replay"
    is_live = False
    restarts = 0

    def __init__(
        self,
        path: Path,
        speed: float | None = 1.0,
        *,
        interval_seconds: float = 1.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Check speed and log, or raise ``UserError``; without a speed nothing waits."""
        if speed is not None and not 0 < speed < float("inf"):
            raise UserError(f"a speed of {speed:g} replays nothing", "give one above 0, or at once")
        self.path = path
        self.problem: str | None = None
        self._speed = speed
        self._times = LogTimes(interval_seconds)
        self._clock = clock
        self._stopping = threading.Event()
        if is_pipe(path):  # it would wait for a writer, and give its lines once only
            raise UserError(f"{path} is a named pipe", "read it with telemetry.source: stream")
        with LogFile(path) as log:
            log.read1(1)
        if log.problem is not None:
            raise log.problem

    @property
    def interval_seconds(self) -> float | None:
        """Median time between two records as they are replayed; ``None`` until it is known."""
        if self._times.median_seconds is None or self._speed is None:
            return None
        return self._times.median_seconds / self._speed

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield the log's lines when they are due, stamped as they go out, until ``stop``."""
        begin_ns = None
        for seconds, line in self._times.times(self._read()):
            if self._speed is not None:
                if begin_ns is None:
                    begin_ns = self._clock.monotonic_ns()
                self._clock.wait(self._stopping, begin_ns + round(seconds / self._speed * 1e9))
            if self._stopping.is_set():
                return
            yield Stamped(self._clock.monotonic_ns(), self._clock.wall_ns(), line)

    def stop(self) -> None:
        """End ``lines``; from another thread, and more than once."""
        self._stopping.set()

    def _read(self) -> Iterator[str]:
        try:
            with LogFile(self.path) as log:
                for line in log.lines():
                    pieces = split_records(line)
                    for piece in pieces:
                        is_cut = piece.is_cut or (log.is_cut and piece is pieces[-1])
                        if is_cut:
                            # The last word of a line without its newline may be incomplete.
                            yield piece.text.rpartition(" ")[0]
                        else:
                            yield piece.text
        except UserError as error:
            # Lines have gone out already, so the service goes on without the rest of them.
            self.problem = str(error)
            _LOG.warning("%s: %s", self.name, self.problem)


class ReplaySettings(SourceSettings):
    """A recorded log in place of this machine's telemetry."""

    is_recorded = True

    path: Path | None = None  # the log, plain or gzip
    speed: PositiveFloat | Literal["max"] = 1.0  # times its own pace

    @property
    def problem(self) -> str | None:  # noqa: D102
        if self.path is None:
            return "source is replay, so replay.path must name the log"
        return None

    @property
    def file(self) -> Path | None:  # noqa: D102
        return self.path

    def summary(self) -> str:  # noqa: D102
        return f"replay of {self.path}"

    def open(self, opening: Opening) -> TegrastatsCollector:  # noqa: D102
        assert self.path is not None  # see ``problem``
        speed = None if self.speed == "max" else self.speed
        interval, clock = opening.interval_seconds, opening.clock
        source = ReplaySource(self.path, speed, interval_seconds=interval, clock=clock)
        return TegrastatsCollector(source)
