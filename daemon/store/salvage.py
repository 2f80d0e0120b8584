"""The runs of a damaged database, read from its pages without SQLite.

SQLite reads a table from its root down, and stops at the first damaged page. It reads a write-ahead
log from its begin, and stops at the first damaged frame without an error. Here each page and each
frame is read for itself, so that damage costs only the rows that it hits. A row counts only if its
report agrees with its columns, so a page that only looks like one of runs does no harm.

The format: <https://sqlite.org/fileformat2.html>, and <https://sqlite.org/walformat.html> for the
shared index of the log.
"""

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
_DEFAULT_PAGE = 4096  # of all that we have ever written
_PAGE_SIZES = frozenset(1 << power for power in range(9, 17))
_LOG_HEADER, _FRAME_HEADER = 32, 24
# Pages of an index tree. The table of runs has no row ids, so it is one, as its own index is.
_INTERIOR, _LEAF = 2, 10
_RUN_COLUMNS = 7
# A report has some kilobytes; a length beyond this is damage.
_LONGEST_ROW = 16 << 20
# How many earlier forms of the pages of a long row are tried.
_FORMS = 3
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_INDEX_VERSION = 3007000

RESCUE_SCHEMA = """
    CREATE TABLE IF NOT EXISTS runs (
        run_id TEXT PRIMARY KEY, workload, device, outcome, in_flight, started_wall_ns, report
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS known (run_id TEXT PRIMARY KEY) WITHOUT ROWID;
    """


class DamagedPageError(ValueError):
    """A cell of a page has no row that can be read."""


class Saved(NamedTuple):
    """How many runs were read, and of how many others only the id was."""

    runs: int
    lost: int


class Files:
    """Database and log, open for reading as long as a connection writes them.

    They can be read even after their names were removed. They are closed after the connection only:
    by POSIX, closing any descriptor of a file drops all locks of the process on it, and those of
    SQLite are such locks.
    """

    def __init__(self, path: Path) -> None:
        """Open what there is; ``refresh`` opens what was made later."""
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
        except OSError:  # SQLite meets it as well, and has the words for it
            return known

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of database and log."""
        return _size(self.database), _size(self.log)

    def reopen(self) -> None:
        """Open the files that have these names now, and close all others."""
        self.close()
        self.refresh()

    def close(self) -> None:
        """Close them."""
        self.database = self.log = None
        self._closing.close()


def _size(file: FileIO | None) -> int:
    return 0 if file is None else os.fstat(file.fileno()).st_size


class Pages:
    """The pages of a database and of its log, each in all forms that are there."""

    def __init__(self, files: Files) -> None:
        """Find the frames of the log."""
        self._files = files
        header = self._read(files.database, 0, 100).ljust(100, b"\0")
        log_header = self._read(files.log, 0, _LOG_HEADER).ljust(_LOG_HEADER, b"\0")
        said = (int.from_bytes(header[16:18], "big"), int.from_bytes(log_header[8:12], "big"))
        sizes = [65536 if size == 1 else size for size in said]
        self.size = next((size for size in sizes if size in _PAGE_SIZES), _DEFAULT_PAGE)
        # By the format, the count is valid if these two are the same.
        is_counted = header.startswith(_MAGIC) and header[24:28] == header[92:96]
        self.count = int.from_bytes(header[28:32], "big") if is_counted else 0
        self.in_file = -(-_size(files.database) // self.size)
        # Where a page is in the log: the newest first, and those of a log that was begun anew.
        self.in_log: dict[int, list[int]] = {}
        self._stale: dict[int, list[int]] = {}
        self._find_frames(log_header[16:24])

    def _read(self, file: FileIO | None, at: int, length: int) -> bytes:
        return b"" if file is None else os.pread(file.fileno(), length, at)

    def _find_frames(self, salts: bytes) -> None:
        step = _FRAME_HEADER + self.size
        frames: list[tuple[int, bytes, int]] = []
        for at in range(_LOG_HEADER, _size(self._files.log), step):
            header = self._read(self._files.log, at, _FRAME_HEADER)
            number = int.from_bytes(header[:4], "big")
            if len(header) == _FRAME_HEADER and number:
                frames.append((number, header[8:16], at + _FRAME_HEADER))
        if frames and all(frame[1] != salts for frame in frames):
            salts = frames[0][1]  # the header is damaged
        for number, frame_salts, at in reversed(frames):
            forms = self.in_log if frame_salts == salts else self._stale
            forms.setdefault(number, []).append(at)

    def numbers(self) -> Iterator[int]:
        """Yield the number of each page that is anywhere."""
        yield from range(1, self.in_file + 1)
        beyond = {*self.in_log, *self._stale}
        yield from sorted(number for number in beyond if number > self.in_file)

    def forms(self, number: int) -> Iterator[bytes]:
        """Yield a page in all its forms, the newest first; a torn page ends in zeros."""
        for at in self.in_log.get(number, ()):
            yield self._read(self._files.log, at, self.size).ljust(self.size, b"\0")
        if number <= self.in_file:
            at = (number - 1) * self.size
            yield self._read(self._files.database, at, self.size).ljust(self.size, b"\0")
        for at in self._stale.get(number, ()):
            yield self._read(self._files.log, at, self.size).ljust(self.size, b"\0")

    def form(self, number: int, age: int) -> bytes:
        """Return a page in its newest form, or in an earlier one, or the earliest there is."""
        page = b""
        for index, form in enumerate(self.forms(number)):
            page = form
            if index == age:
                break
        if not page:
            raise DamagedPageError("a page is missing")
        return page

    def is_cut(self) -> bool:
        """Return whether pages are missing that the database says it has.

        A process that died while it copied its log leaves a short file too; the log has the rest.
        """
        missing = range(self.in_file + 1, self.count + 1)
        torn = _size(self._files.database) % self.size
        if self.count and torn and self.in_file not in self.in_log:
            return True
        return any(number not in self.in_log for number in missing)

    def free(self) -> set[int]:
        """Return the pages that the database does not use, as far as their list can be read."""
        found: set[int] = set()
        try:
            trunk = int.from_bytes(self.form(1, 0)[32:36], "big")
            while trunk and trunk not in found:
                found.add(trunk)
                page = self.form(trunk, 0)
                trunk, count = struct.unpack_from(">2I", page)
                found.update(struct.unpack_from(f">{min(count, self.size // 4 - 2)}I", page, 8))
        except DamagedPageError:
            pass
        return found


def missing_frames(path: Path, log_bytes: int) -> bool:
    """Return whether the shared index of a log knows more frames than the log has.

    A log that was cut looks like a shorter one, but a killed process leaves its index. The index
    must be closed before SQLite opens it, so this is for the start only.
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
    page = 65536 if size == 1 else size
    return bool(frames and log_bytes < _LOG_HEADER + frames * (_FRAME_HEADER + page))


def save_runs(files: Files, target: Path, running: frozenset[str] = frozenset()) -> Saved:
    """Write each finished run that is on any page into a database of its own, and count them.

    A run without its end is left out: its begin says that it failed, which its lost end may not.
    What ``target`` has stays, so this can be repeated after it was interrupted.

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
            for age, page in enumerate(pages.forms(number)):
                for cell in _cells(page):
                    _save_cell(pages, page, cell, rescue, is_live=age == 0 and number not in free)
        (runs,) = rescue.execute("SELECT count(*) FROM runs").fetchone()
        lost = rescue.execute(
            "SELECT run_id FROM known WHERE run_id NOT IN (SELECT run_id FROM runs)"
        )
        return Saved(runs, sum(run_id not in running for (run_id,) in lost))


def _save_cell(
    pages: Pages, page: bytes, cell: int, rescue: sqlite3.Connection, *, is_live: bool
) -> None:
    """Write the row of a cell if it is a finished run, and its id if at least that is readable."""
    try:
        run_id = _run_id(page, cell)
        if is_live:
            rescue.execute("INSERT OR IGNORE INTO known VALUES (?)", (run_id,))
    except DamagedPageError:
        pass
    for age in range(_FORMS):
        try:
            row = _columns(_payload(pages, page, cell, age))
        except DamagedPageError:
            continue
        if len(row) != _RUN_COLUMNS:
            return
        name, workload, device, outcome, in_flight, started_wall_ns, report = row
        if is_report(name, workload, device, outcome, started_wall_ns, report):
            if not in_flight:
                texts = map(_text, (name, workload, device, outcome))
                values = (*texts, 0, started_wall_ns, _text(report))
                rescue.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            return


def _text(column: int | bytes | None) -> str:
    assert isinstance(column, bytes)  # is_report has looked
    return column.decode()


def _cells(page: bytes) -> Iterator[int]:
    """Yield where the cells of a page of an index tree begin, after the number of a lower page."""
    kind = page[0]
    if kind not in (_INTERIOR, _LEAF):
        return
    head, skip = (12, 4) if kind == _INTERIOR else (8, 0)
    count = int.from_bytes(page[3:5], "big")
    for at in range(head, min(head + 2 * count, len(page) - 1), 2):
        cell = int.from_bytes(page[at : at + 2], "big") + skip
        if head + skip <= cell < len(page):
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
    """Return the whole row of a cell, with what is on further pages."""
    length, at = _number(page, cell)
    if length > _LONGEST_ROW:
        raise DamagedPageError("a length is out of range")
    usable = pages.size
    most = (usable - 12) * 64 // 255 - 23
    if length <= most:
        return page[at : at + length]
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (usable - 4)
    if local > most:
        local = least
    parts = [page[at : at + local]]
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    missing = length - local
    while missing > 0:
        if not following:
            raise DamagedPageError("a row ends too early")
        further = pages.form(following, age)
        following = int.from_bytes(further[:4], "big")
        parts.append(further[4 : 4 + missing])
        missing -= usable - 4
    return b"".join(parts)


def _columns(payload: bytes, most: int = _RUN_COLUMNS + 1) -> list[int | bytes | None]:
    """Return the columns of a row; a text is bytes."""
    end, at = _number(payload, 0)
    kinds = []
    while at < end:
        kind, at = _number(payload, at)
        kinds.append(kind)
        if len(kinds) > most:
            raise DamagedPageError("a row has too many columns")
    columns: list[int | bytes | None] = []
    at = end
    for kind in kinds:
        if kind == 0:
            columns.append(None)
            continue
        if kind in (8, 9):
            columns.append(kind - 8)
            continue
        if kind in (7, 10, 11):
            raise DamagedPageError("runs have no such column")
        length = _INTEGER_BYTES[kind] if kind < 7 else (kind - 12) // 2
        data = payload[at : at + length]
        at += length
        if len(data) < length:
            raise DamagedPageError("a column is cut")
        columns.append(int.from_bytes(data, "big", signed=True) if kind < 7 else data)
    return columns


def _run_id(page: bytes, cell: int) -> str:
    """Return the id in a row of runs or of the index of their starts, also if the rest is lost."""
    length, at = _number(page, cell)
    payload = page[at : at + min(length, len(page))]
    end, at = _number(payload, 0)
    kinds = []
    while at < min(end, len(payload)):
        kind, at = _number(payload, at)
        kinds.append(kind)
    if len(kinds) == _RUN_COLUMNS:
        before, text = 0, kinds[0]
    elif len(kinds) == 2 and 1 <= kinds[0] <= 6:
        before, text = _INTEGER_BYTES[kinds[0]], kinds[1]
    else:
        raise DamagedPageError("it is not a row of runs")
    if text < 13 or text % 2 == 0:
        raise DamagedPageError("its id is not a text")
    begin = end + before
    data = payload[begin : begin + (text - 13) // 2]
    try:
        run_id = data.decode("ascii")
    except UnicodeDecodeError:
        raise DamagedPageError("its id is not a text") from None
    if len(data) < (text - 13) // 2 or not run_id.isprintable():
        raise DamagedPageError("its id is cut")
    return run_id
