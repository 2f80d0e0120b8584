"""Many logs as one Parquet dataset, written by this process or by the workers of a Dask cluster.

Each log has files of its own, which are named by the digest of its address. A log that is read
again, because its worker ended or because it changed, replaces them.
"""

import csv
import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow.parquet

from ... import __version__
from ...collectors.board.boards import find_rail_rule
from ...collectors.lines.replay import log_path
from ...daemon.outputs import unwritable
from ...parsers.errors import PIP_INSTALL, UserError
from ...parsers.signals import RAIL_POWER
from ...parsers.tegrastats.bulk import Batch
from .data_frames import empty_frame, frame_of, pandas, write_parquet
from .log_tables import Paths, log_names, read_tables

UNKNOWN = "-"
# The first file in the order of names: readers take the columns of the dataset from it.
COLUMNS_FILE = f"board={UNKNOWN}/date={UNKNOWN}/0-columns.parquet"
UNREADABLE_FILE = "_unreadable.csv"  # readers of datasets skip names with this prefix
FIRST_WORKER_SECONDS = 60
# Logs that the scheduler has at once, per thread: it never knows a million of them.
_PER_THREAD = 4

_RETRIES = 2  # of a task that raised, such as for a store that was not reached
_START = "start one (dask scheduler, dask worker), and name its address as tcp://HOST:8786"
_INSTALL = f"{PIP_INSTALL} dask distributed fsspec pyarrow"


@dataclass
class ParsedLog:
    """Counts of one log, and its files in the dataset.

    Attributes:
        log: As the person named it.
        problem: Why it could not be read, or not to its end; the files have what could be read.
        files: Relative to the dataset.
        columns: Those of all files.
    """

    log: str
    problem: UserError | None = None
    files: list[str] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    lines: int = 0
    records: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    unparsed_words: int = 0

    def add(self, batch: Batch, *_: int) -> None:
        """Count a batch of lines."""
        self.lines += batch.lines
        self.records += len(batch.line)
        self.skipped += batch.skipped
        self.unparsed_words += batch.unparsed_words

    def fail(self, problem: UserError) -> None:
        """Note why the log cannot be read."""
        self.problem = problem


class LogTask(NamedTuple):
    """One log; ``url`` is the same on every machine, and ``run`` names what is written together."""

    log: str
    url: str
    dataset: str
    run: str
    interval_seconds: float
    version: str = __version__

    @property
    def digest(self) -> str:
        """The beginning of the names of its files."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:32]


def read_logs(
    paths: Paths,
    dataset: str | Path,
    *,
    engine: Literal["dask"] | None = None,
    cluster: str | None = None,
    interval_seconds: float = 1.0,
    finished: Callable[[ParsedLog, int, int], None] = lambda *_: None,
) -> list[UserError]:
    """Read many logs into a Parquet dataset with the partitions ``board`` and ``date``.

    The rows are those of ``read_log``. Logs that the dataset has already are replaced.

    Args:
        paths: Files, URLs that fsspec can open, and patterns of both, such as ``s3://logs/*.gz``.
        dataset: A directory or a URL; new, empty, or a dataset of before.
        engine: ``None`` is this process. ``"dask"`` is the present Dask client, one task per log.
        cluster: Address of a Dask scheduler, instead of the present client.
        interval_seconds: Time between two records of a log without times.
        finished: Called after each log, with the number of finished logs and of all.

    Returns:
        Why a log could not be read, or not to its end, for each such log. The file
        ``_unreadable.csv`` of the dataset has the same.

    Raises:
        UserError: There is no log, the dataset cannot be written, or the cluster fails.
    """
    files, root = _open_dataset(str(dataset))
    logs: dict[str, str] = {}  # by address
    for name in log_names(paths):
        for given_name, url in _find_logs(name):
            logs[url] = given_name
    if not logs:
        raise UserError("there is no log to read", "name one")
    address, run = files.unstrip_protocol(root), uuid.uuid4().hex
    tasks = [LogTask(log, url, address, run, interval_seconds) for url, log in logs.items()]
    parsed: Iterator[ParsedLog] = map(write_log, tasks)
    if engine == "dask" or cluster is not None:
        parsed = _on_cluster(tasks, cluster)
    columns = _add_columns(files, root, set())
    written: set[str] = set()
    problems: dict[str, UserError] = {}
    unread: set[str] = set()
    try:
        for done, log in enumerate(parsed, 1):
            if not columns.issuperset(log.columns):
                columns = _add_columns(files, root, log.columns)
            written.update(log.files)
            if log.problem is not None:
                problems[log.log] = log.problem
                if not log.files:
                    unread.add(log.log)
            finished(log, done, len(tasks))
    finally:
        if _is_local(files):
            for scratch in Path(root).glob(f".{run}*"):  # of workers that ended
                shutil.rmtree(scratch, ignore_errors=True)
    # A log that was not reached now keeps the rows of before.
    _remove_old(files, root, {task.digest for task in tasks if task.log not in unread}, written)
    _write_problems(files, root, problems)
    return list(problems.values())


def _write_problems(files: Any, root: str, problems: Mapping[str, UserError]) -> None:
    """Write the file of the dataset that names the logs which cannot be read, and why."""
    with _scratch(files, root) as folder:
        listed = folder / UNREADABLE_FILE
        with listed.open("w", encoding="utf-8", newline="") as output:
            writer = csv.writer(output, lineterminator="\n")
            writer.writerow(("log", "problem"))
            writer.writerows(problems.items())
        _put(files, listed, f"{root}/{UNREADABLE_FILE}")


def write_log(task: LogTask) -> ParsedLog:
    """Write one log to the dataset; a worker of the cluster runs this.

    Raises:
        UserError: The dataset cannot be written, or the worker has another version.
    """
    if task.version != __version__:
        raise UserError(
            f"a worker has tegrascope {__version__}, and this is {task.version}",
            "install the same version on every worker",
        )
    parsed = ParsedLog(task.log)
    files, root = _fsspec().url_to_fs(task.dataset)
    tables = read_tables(
        [log_path(task.url)],
        [task.log],
        counted=parsed.add,
        failed=parsed.fail,
        interval_seconds=task.interval_seconds,
        cores=1,
    )
    with _scratch(files, root, task.run) as folder:
        for number, (day, parts) in enumerate(
            groupby(_by_day(map(frame_of, tables)), key=itemgetter(0))
        ):
            inside = folder / str(number)
            inside.mkdir()
            whole = write_parquet((table for _, table in parts), inside)
            columns = pyarrow.parquet.read_schema(whole).names
            target = f"board={_board(columns)}/date={day}/{task.digest}-{number}.parquet"
            _put(files, whole, f"{root}/{target}")
            parsed.files.append(target)
            parsed.columns.update(columns)
            shutil.rmtree(inside)
    return parsed


def _on_cluster(tasks: Sequence[LogTask], cluster: str | None) -> Iterator[ParsedLog]:
    """Yield the logs as they are finished; the scheduler gives a lost worker's tasks to others."""
    try:
        from distributed import Client, get_client
    except ImportError:
        raise UserError("dask is not installed", _INSTALL) from None
    with ExitStack() as stack:
        try:
            if cluster is None:
                client = get_client()
            else:
                client = stack.enter_context(Client(cluster, set_as_default=False))
            client.wait_for_workers(1, timeout=FIRST_WORKER_SECONDS)
        except TimeoutError:
            raise UserError(f"the Dask cluster {cluster or ''} has no worker", _START) from None
        except (OSError, ValueError) as error:
            raise UserError(f"there is no Dask scheduler ({error})", _START) from None
        lost: list[LogTask] = []
        for task, log in _submit(client, tasks, _PER_THREAD * sum(client.nthreads().values())):
            if log is None:
                lost.append(task)
            else:
                yield log
        # A log that ends its workers has its neighbours lost too: now one has no neighbour.
        for task, log in _submit(client, lost, 1):
            problem = f"{task.log} cannot be read (it ended its workers, one after another)"
            yield log or ParsedLog(task.log, UserError(problem, "see if they ran out of memory"))


def _submit(
    client: Any, tasks: Sequence[LogTask], at_once: int
) -> Iterator[tuple[LogTask, ParsedLog | None]]:
    """Yield tasks as they are finished, so many at once; None is one whose workers all ended."""
    from distributed import KilledWorker, as_completed

    waiting, given = iter(tasks), dict[str, LogTask]()

    def submit(count: int) -> Iterator[Any]:
        for task in islice(waiting, count):
            key = f"tegrascope-{uuid.uuid4().hex}"
            given[key] = task
            yield client.submit(write_log, task, key=key, retries=_RETRIES)

    futures = as_completed(submit(at_once), loop=client.loop)
    for future in futures:
        task = given.pop(future.key)
        try:
            yield task, future.result()
        except KilledWorker:
            yield task, None
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"the Dask cluster failed ({error!r})",
                f"look at the logs of scheduler and workers; each worker needs {_INSTALL}",
            ) from error
        futures.update(submit(1))


def _by_day(tables: Iterable[pandas.DataFrame]) -> Iterator[tuple[str, pandas.DataFrame]]:
    """Cut tables by the date of their records; a record without time has that of one before it."""
    last: Any = pandas.NaT
    for table in tables:
        shown = table["time"].fillna(table["received"].dt.tz_localize(None))
        days = pandas.Series(shown.to_numpy("datetime64[D]")).ffill().fillna(last).bfill()
        codes, found = pandas.factorize(days.to_numpy("datetime64[D]"))
        if len(found) == 0 and len(table):
            yield UNKNOWN, table
        for code, day in enumerate(found):
            yield str(day), table if len(found) == 1 else table[codes == code]
        if len(table):
            last = days.iloc[-1]


def _board(columns: Sequence[str]) -> str:
    """Return the name of a board's rail rule, as a part of a path."""
    rule = find_rail_rule(RAIL_POWER.by_label(dict.fromkeys(columns)))
    return UNKNOWN if rule is None else re.sub(r"\W+", "-", rule.name).lower()


def _find_logs(name: str) -> list[tuple[str, str]]:
    """Return the name and the address of each log that a name or a pattern means."""
    if "*" not in name:
        if "://" in name:
            return [(name, name)]
        return [(name, os.path.abspath(name))]  # noqa: PTH100 - no Path
    try:
        files, pattern = _fsspec().url_to_fs(name)
        paths = sorted(files.glob(pattern))
    except Exception as error:
        raise UserError(f"{name} cannot be listed ({error})", "check the address") from None
    if not paths:
        raise UserError(f"no log has a name like {name}", "check the pattern")
    found = paths if _is_local(files) else map(files.unstrip_protocol, paths)
    return [(path, path) for path in found]


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError:
        raise UserError("fsspec is not installed", _INSTALL) from None
    return fsspec


def _is_local(files: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(files, LocalFileSystem)


def _open_dataset(dataset: str) -> tuple[Any, str]:
    """Return the file system and the path of a dataset, which exists if that is on this machine."""
    opener = _fsspec()
    try:
        files, root = opener.url_to_fs(dataset)
        if _is_local(files):
            Path(root).mkdir(parents=True, exist_ok=True)
        elif not files.exists(root):
            return files, root
        is_strange = files.ls(root, detail=False) and not files.exists(f"{root}/{COLUMNS_FILE}")
    except Exception as error:
        raise unwritable(dataset, error) from None
    if is_strange:
        raise UserError(
            f"{dataset} has files, and is not a dataset that tegrascope wrote", "name a new one"
        )
    return files, root


@contextmanager
def _scratch(files: Any, root: str, run: str = "scratch") -> Iterator[Path]:
    """Yield a directory for files that are not whole, beside the dataset's own if that is local."""
    place = root if _is_local(files) else None
    with tempfile.TemporaryDirectory(prefix=f".{run}-", dir=place) as folder:
        yield Path(folder)


def _put(files: Any, path: Path, target: str) -> None:
    """Move a file into the dataset, whole or not at all."""
    try:
        if _is_local(files):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        else:
            files.put_file(str(path), target)
    except Exception as error:  # each file system has its own
        raise unwritable(target, error) from None


def _add_columns(files: Any, root: str, columns: set[str]) -> set[str]:
    """Add to the columns that the first file of the dataset has, and return all."""
    target = f"{root}/{COLUMNS_FILE}"
    if files.exists(target):
        with files.open(target, "rb") as file:
            columns = columns | set(pyarrow.parquet.read_schema(file).names)
    with _scratch(files, root) as folder:
        _put(files, write_parquet([empty_frame(columns)], folder), target)
    return columns


def _remove_old(files: Any, root: str, digests: set[str], written: set[str]) -> None:
    """Remove what is not of this reading of the logs."""
    files.invalidate_cache()
    for path in files.find(root):
        inside = str(path)[len(root) :].lstrip("/")
        digest = inside.rpartition("/")[2].partition("-")[0]
        if digest in digests and inside not in written:
            files.rm_file(path)
