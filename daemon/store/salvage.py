"""The runs of a damaged database, read from its pages without SQLite.

SQLite reads a table from its root down, and stops at the first damaged page. It reads a write-ahead
log from its begin, and stops at the first damaged frame without an error. This module reads each
page and each frame on its own, so damage costs only the rows that it hits. A row counts only if its
report agrees with its columns, so a page that only looks like a page of runs does no harm.

The format: <https://sqlite.org/fileformat2.html>, and <https://sqlite.org/walformat.html> for the
shared index of the log.
"""

import math
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from .rows import is_report

_MAGIC = b"SQLite format 3\0"
_DEFAULT_PAGE = 4096  # the page size of every release
_PAGE_SIZES = frozenset(1 << power for power in range(9, 17))
_LOG_HEADER, _FRAME_HEADER = 32, 24
# Pages of an index tree. The table of runs has no row ids, so it is one, as its own index is.
_INTERIOR, _LEAF = 2, 10
_RUN_COLUMNS = 7
# A report has some kilobytes; a length beyond this is damage.
_LONGEST_ROW = 16 << 20
# A long row continues on further pages. So many versions of these pages are tried for each row.
_VERSIONS_TRIED = 3
# Kinds of a column by the format: 1 to 6 are integers, 8 and 9 are the numbers 0 and 1.
_NULL, _ZERO, _ONE = 0, 8, 9
_KINDS_NEVER_WRITTEN = (7, 10, 11)
# Kinds from here on are blobs if even and texts if odd; the length is in the number.
_FIRST_BLOB, _FIRST_TEXT = 12, 13
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_INDEX_VERSION = 3007000

RESCUE_SCHEMA = """
    CREATE TABLE IF NOT EXISTS runs (
        run_id TEXT PRIMARY KEY, workload, device, outcome, in_flight, started_wall_ns, report
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS known (run_id TEXT PRIMARY KEY) WITHOUT ROWID;
    """


class DamagedPageError(ValueError):
    """A cell of a page contains no readable row."""


class Saved(NamedTuple):
    """The number of runs that were read, and of others whose id alone could be read."""

    runs: int
    lost: int


class Files:
    """Database and log, open for reading as long as a connection writes them.

    An open file can be read even after its name was removed. Close the connection first: by POSIX,
    closing any descriptor of a file drops all locks of the process on it, and SQLite uses such
    locks.
    """

    def __init__(self, path: Path) -> None:
        """Open the files that exist; ``refresh`` opens those that are made later."""
        self._path = path
        self._log_path = path.with_name(f"{path.name}-wal")
        self._closing = ExitStack()
        self.database: FileIO | None = None
        self.log: FileIO | None = None
        self.refresh()

    def refresh(self) -> None:
        """Open the files that have these names now; earlier ones stay open."""
        self.database = self._current(self._path, self.database)
        self.log = self._current(self._log_path, self.log)

    def _current(self, path: Path, known: FileIO | None) -> FileIO | None:
        try:
            if known is not None and os.path.samestat(path.stat(), os.fstat(known.fileno())):
                return known
            return self._closing.enter_context(path.open("rb", buffering=0))
        except OSError:  # SQLite fails as well, and reports the reason
            return known

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the bytes of database and log."""
        return _size(self.database), _size(self.log)

    def reopen(self) -> None:
        """Open the files that have these names now, and close all others."""
        self.close()
        self.refresh()

    def close(self) -> None:
        """Close all files."""
        self.database = self.log = None
        self._closing.close()


def _size(file: FileIO | None) -> int:
    return 0 if file is None else os.fstat(file.fileno()).st_size


class Pages:
    """The pages of a database and of its log, each in all versions that exist.

    Attributes:
        size: Bytes of a page.
        count: Pages of the database by its header; 0 if the header is not valid.
        in_file: Pages in the file of the database, the last of which may be torn.
        in_log: Positions of each page in the log, the newest first.
    """

    def __init__(self, files: Files) -> None:
        """Find the frames of the log."""
        self._files = files
        header = self._read(files.database, 0, 100).ljust(100, b"\0")
        log_header = self._read(files.log, 0, _LOG_HEADER).ljust(_LOG_HEADER, b"\0")
        self.size = _page_size(header[16:18], log_header[8:12])
        self.count = 0
        # By the format, the count is valid if these two are the same.
        if header.startswith(_MAGIC) and header[24:28] == header[92:96]:
            self.count = int.from_bytes(header[28:32], "big")
        self.in_file = math.ceil(_size(files.database) / self.size)
        self.in_log: dict[int, list[int]] = {}
        # Positions of frames that SQLite wrote before it began the log anew.
        self._stale: dict[int, list[int]] = {}
        self._find_frames(log_header[16:24])

    def _read(self, file: FileIO | None, at: int, length: int) -> bytes:
        if file is None:
            return b""
        return os.pread(file.fileno(), length, at)

    def _find_frames(self, salts: bytes) -> None:
        """Note where each page is in the log; ``salts`` are those of the log's header."""
        step = _FRAME_HEADER + self.size
        frames: list[tuple[int, bytes, int]] = []
        for at in range(_LOG_HEADER, _size(self._files.log), step):
            header = self._read(self._files.log, at, _FRAME_HEADER)
            number = int.from_bytes(header[:4], "big")
            if len(header) == _FRAME_HEADER and number:
                frames.append((number, header[8:16], at + _FRAME_HEADER))
        salts_of_frames = {frame_salts for _, frame_salts, _ in frames}
        if frames and salts not in salts_of_frames:
            salts = frames[0][1]  # the header is damaged
        for number, frame_salts, at in reversed(frames):
            positions = self.in_log if frame_salts == salts else self._stale
            positions.setdefault(number, []).append(at)

    def numbers(self) -> Iterator[int]:
        """Yield the number of each page, in the database or in the log."""
        yield from range(1, self.in_file + 1)
        beyond = {*self.in_log, *self._stale}
        yield from sorted(number for number in beyond if number > self.in_file)

    def versions(self, number: int) -> Iterator[bytes]:
        """Yield all versions of a page, the newest first; a torn page ends in zeros."""
        for at in self.in_log.get(number, ()):
            yield self._read(self._files.log, at, self.size).ljust(self.size, b"\0")
        if number <= self.in_file:
            at = (number - 1) * self.size
            yield self._read(self._files.database, at, self.size).ljust(self.size, b"\0")
        for at in self._stale.get(number, ()):
            yield self._read(self._files.log, at, self.size).ljust(self.size, b"\0")

    def version(self, number: int, age: int) -> bytes:
        """Return the version of a page of this age, 0 for the newest, or else its oldest one."""
        page = b""
        for index, version in enumerate(self.versions(number)):
            page = version
            if index == age:
                break
        if not page:
            raise DamagedPageError("a page is missing")
        return page

    def is_cut(self) -> bool:
        """Return whether pages are missing that the database has by its header.

        A process that died while it copied its log leaves a short file too; the log has the rest.
        """
        is_torn = _size(self._files.database) % self.size > 0
        if self.count > 0 and is_torn and self.in_file not in self.in_log:
            return True
        beyond_the_file = range(self.in_file + 1, self.count + 1)
        return any(number not in self.in_log for number in beyond_the_file)

    def free(self) -> set[int]:
        """Return the pages that the database does not use, as far as their list can be read."""
        numbers: set[int] = set()
        try:
            trunk = int.from_bytes(self.version(1, 0)[32:36], "big")
            while trunk and trunk not in numbers:
                numbers.add(trunk)
                page = self.version(trunk, 0)
                trunk, count = struct.unpack_from(">2I", page)
                count = min(count, self.size // 4 - 2)  # no more fit on a page
                numbers.update(struct.unpack_from(f">{count}I", page, 8))
        except DamagedPageError:
            pass
        return numbers


def _page_size(in_database: bytes, in_log: bytes) -> int:
    """Return the size of a page by the header of the database, else by that of the log."""
    for field in (in_database, in_log):
        size = int.from_bytes(field, "big")
        if size == 1:  # two bytes cannot hold 65536
            size = 65536
        if size in _PAGE_SIZES:
            return size
    return _DEFAULT_PAGE


def missing_frames(path: Path, log_bytes: int) -> bool:
    """Return whether a log has fewer frames than its shared index counts.

    A log that was cut looks like a shorter one, but a killed process leaves its index. The index
    must be closed before SQLite opens it, so call this at the start only.
    """
    try:
        index = path.with_name(f"{path.name}-shm").read_bytes()[:96]
    except OSError:
        return False
    if len(index) < 96 or index[:48] != index[48:]:
        return False
    version, _, _, is_filled, _, size, frames = struct.unpack_from("=3I2BHI", index)
    if version != _INDEX_VERSION or not is_filled:
        return False
    page_bytes = 65536 if size == 1 else size
    return bool(frames and log_bytes < _LOG_HEADER + frames * (_FRAME_HEADER + page_bytes))


def lost_commits(log: Path, read: int, size: int) -> int:
    """Return how many commits at the end of a write-ahead log SQLite did not read.

    A power cut tears at most the last one, which was not acknowledged. More are a damaged log. A
    header that is damaged costs the whole log.

    Args:
        log: The file, as <https://sqlite.org/fileformat2.html#walformat> describes it.
        read: Frames that SQLite read.
        size: Bytes of a page; the header may be damaged.
    """
    commits = 0
    with log.open("rb") as file:
        header = file.read(32)
        if len(header) < 32 or not any(header):
            return 0
        salts = header[16:24]
        is_whole = _has_valid_sum(header)
        file.seek(read * (24 + size), os.SEEK_CUR)
        frame = file.read(24)
        while len(frame) == 24:
            is_commit = frame[4:8] != bytes(4)
            # Frames with other salts are left from before SQLite began the log anew.
            if is_commit and (frame[8:16] == salts or not is_whole):
                commits += 1
            file.seek(size, os.SEEK_CUR)
            frame = file.read(24)
    return commits


def _has_valid_sum(header: bytes) -> bool:
    """Return whether the header of a write-ahead log has the checksum of its content."""
    order = ">" if header[3] & 1 else "<"
    first_sum = second_sum = 0
    for first, second in struct.iter_unpack(f"{order}2I", header[:24]):
        first_sum = (first_sum + first + second_sum) & 0xFFFFFFFF
        second_sum = (second_sum + second + first_sum) & 0xFFFFFFFF
    return header[24:] == struct.pack(">2I", first_sum, second_sum)


def save_runs(files: Files, target: Path, running: frozenset[str] = frozenset()) -> Saved:
    """Write each finished run of any page into the database ``target``, and count them.

    A run without its end is left out: its begin is stored as failed, and its lost end may be good.
    Runs that ``target`` has stay, so this can be repeated after it was interrupted.

    Args:
        running: Ids of runs in flight, whose end is still to come.
    """
    pages = Pages(files)
    free = pages.free()
    with closing(sqlite3.connect(target)) as rescue, rescue:
        rescue.execute("PRAGMA synchronous=FULL")
        rescue.execute("PRAGMA cache_size=-2048")
        rescue.executescript(RESCUE_SCHEMA)
        for number in pages.numbers():
            for age, page in enumerate(pages.versions(number)):
                is_live = age == 0 and number not in free
                for cell in _cells(page):
                    _save_cell(pages, page, cell, rescue, is_live=is_live)
        (runs,) = rescue.execute("SELECT count(*) FROM runs").fetchone()
        lost = 0
        for (run_id,) in rescue.execute(
            "SELECT run_id FROM known WHERE run_id NOT IN (SELECT run_id FROM runs)"
        ):
            if run_id not in running:
                lost += 1
        return Saved(runs, lost)


def _save_cell(
    pages: Pages, page: bytes, cell: int, rescue: sqlite3.Connection, *, is_live: bool
) -> None:
    """Write the row of a cell if it is a finished run, and its id if that alone is readable.

    A row of the newest version of a page in use (``is_live``) is a run that must not be missing.
    """
    try:
        run_id = _run_id(page, cell)
        if is_live:
            rescue.execute("INSERT OR IGNORE INTO known VALUES (?)", (run_id,))
    except DamagedPageError:
        pass
    for age in range(_VERSIONS_TRIED):
        try:
            row = _columns(_payload(pages, page, cell, age))
        except DamagedPageError:
            continue
        if len(row) != _RUN_COLUMNS:
            return
        run_id_column, workload, device, outcome, in_flight, started_wall_ns, report = row
        if is_report(run_id_column, workload, device, outcome, started_wall_ns, report):
            if not in_flight:
                values = (
                    _text(run_id_column),
                    _text(workload),
                    _text(device),
                    _text(outcome),
                    0,
                    started_wall_ns,
                    _text(report),
                )
                rescue.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            return


def _text(column: int | bytes | None) -> str:
    assert isinstance(column, bytes)  # ``is_report`` requires it
    return column.decode()


def _cells(page: bytes) -> Iterator[int]:
    """Yield where the rows of a page of an index tree begin."""
    kind = page[0]
    if kind == _LEAF:
        header, child_bytes = 8, 0
    elif kind == _INTERIOR:
        header, child_bytes = 12, 4  # each row comes after the number of a lower page
    else:
        return
    count = int.from_bytes(page[3:5], "big")
    for at in range(header, min(header + 2 * count, len(page) - 1), 2):
        cell = int.from_bytes(page[at : at + 2], "big") + child_bytes
        if header + child_bytes <= cell < len(page):
            yield cell


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of variable length, and the position after it."""
    value = 0
    for index in range(9):
        if at >= len(data):
            raise DamagedPageError("a number is cut")
        byte = data[at]
        at += 1
        if index == 8:
            return value << 8 | byte, at
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, at


def _payload(pages: Pages, page: bytes, cell: int, age: int) -> bytes:
    """Return the whole row of a cell; further pages of a long row are of the given age."""
    length, at = _number(page, cell)
    if length > _LONGEST_ROW:
        raise DamagedPageError("a length is out of range")
    # By the format, a page holds at most so much of a row. A longer row leaves so much there that
    # its further pages are full, or the least if that is too much.
    most = (pages.size - 12) * 64 // 255 - 23
    if length <= most:
        return page[at : at + length]
    least = (pages.size - 12) * 32 // 255 - 23
    local = least + (length - least) % (pages.size - 4)
    if local > most:
        local = least
    parts = [page[at : at + local]]
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    missing = length - local
    while missing > 0:
        if not following:
            raise DamagedPageError("a row ends too early")
        further = pages.version(following, age)
        following = int.from_bytes(further[:4], "big")
        parts.append(further[4 : 4 + missing])
        missing -= pages.size - 4
    return b"".join(parts)


def _columns(payload: bytes, most: int = _RUN_COLUMNS + 1) -> list[int | bytes | None]:
    """Return the columns of a row; a text is bytes."""
    header_end, at = _number(payload, 0)
    kinds: list[int] = []
    while at < header_end:
        kind, at = _number(payload, at)
        kinds.append(kind)
        if len(kinds) > most:
            raise DamagedPageError("a row has too many columns")
    columns: list[int | bytes | None] = []
    at = header_end
    for kind in kinds:
        length = _column_bytes(kind)
        data = payload[at : at + length]
        at += length
        if len(data) < length:
            raise DamagedPageError("a column is cut")
        columns.append(_column(kind, data))
    return columns


def _column_bytes(kind: int) -> int:
    """Return the length of a column of a kind."""
    if kind in _KINDS_NEVER_WRITTEN:
        raise DamagedPageError("runs have no such column")
    if kind in (_ZERO, _ONE):
        return 0
    if kind < len(_INTEGER_BYTES):
        return _INTEGER_BYTES[kind]
    return (kind - _FIRST_BLOB) // 2


def _column(kind: int, data: bytes) -> int | bytes | None:
    """Return the value of a column of a kind."""
    if kind == _NULL:
        return None
    if kind == _ZERO:
        return 0
    if kind == _ONE:
        return 1
    if kind < len(_INTEGER_BYTES):
        return int.from_bytes(data, "big", signed=True)
    return data


def _run_id(page: bytes, cell: int) -> str:
    """Return the id in a row of runs, or of the index of their starts, also if the rest is lost."""
    length, at = _number(page, cell)
    payload = page[at : at + min(length, len(page))]
    header_end, at = _number(payload, 0)
    kinds: list[int] = []
    while at < min(header_end, len(payload)):
        kind, at = _number(payload, at)
        kinds.append(kind)
    if len(kinds) == _RUN_COLUMNS:
        bytes_before, kind = 0, kinds[0]
    elif len(kinds) == 2 and 1 <= kinds[0] < len(_INTEGER_BYTES):
        bytes_before, kind = _INTEGER_BYTES[kinds[0]], kinds[1]  # after the time of the start
    else:
        raise DamagedPageError("it is not a row of runs")
    if kind < _FIRST_TEXT or kind % 2 == 0:
        raise DamagedPageError("its id is not a text")
    begin, text_bytes = header_end + bytes_before, (kind - _FIRST_TEXT) // 2
    data = payload[begin : begin + text_bytes]
    try:
        run_id = data.decode("ascii")
    except UnicodeDecodeError:
        raise DamagedPageError("its id is not a text") from None
    if len(data) < text_bytes or not run_id.isprintable():
        raise DamagedPageError("its id is cut")
    return run_id
