"""Many logs become one dataset, on a cluster whose workers end as in one process."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta

import pytest

pandas = pytest.importorskip("pandas")
distributed = pytest.importorskip("distributed")

from tegrascope import frames  # noqa: E402
from tegrascope.parsers.errors import UserError  # noqa: E402
from tegrascope.workbench.cli import main  # noqa: E402

LOGS = 100
LOG_BYTES = 1_000_000
KILLED_AFTER = 20
TAILS = (
    "SWAP 86/31420MB (cached 0MB) CPU [14%@2188,5%@2112,8%@2035,off] EMC_FREQ 3%@2133 "
    "GR3D_FREQ 0%@[0,0] NVDLA0 off cpu@52.562C tj@{tj}C VDD_GPU_SOC 2412mW/2412mW "
    "VDD_CPU_CV 1607mW/1607mW VIN_SYS_5V0 4707mW/4707mW",
    "CPU [4%@1190,6%@1190] EMC_FREQ 2%@2133 GR3D_FREQ 7%@921 PLL@40.5C thermal@{tj}C "
    "VDD_IN 5139mW/4890mW VDD_CPU_GPU_CV 812mW/790mW VDD_SOC 1504mW/1500mW",
)
# Makes a worker end that opens such a log, as one does that is out of memory.
DEADLY = """
import os, fsspec
class Deadly(fsspec.AbstractFileSystem):
    protocol = "deadly"
    def _open(self, *_, **__):
        os._exit(9)
fsspec.register_implementation("deadly", Deadly, clobber=True)
"""


def text_of(number, size=LOG_BYTES):
    """Return a log from ten minutes before midnight on, and how many records it has.

    The used memory is the number of the record, so that the sum is known without a parser.
    """
    begin = datetime(2026, 5, 1 + number % 9, 23, 50)
    lines, length = [], 0
    while length < size:
        at = begin + timedelta(seconds=len(lines))
        tail = TAILS[number % 2].format(tj=f"{40 + len(lines) % 97 / 8:.3f}")
        lines.append(f"{at:%m-%d-%Y %H:%M:%S} RAM {len(lines)}/62841MB (lfb 4x4MB) {tail}\n")
        length += len(lines[-1])
    return "".join(lines), len(lines)


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder, workers=2, options=(), **environment):
        self.folder = folder
        self._environment = {**os.environ, **environment}
        self._file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--scheduler-file", self._file, "--port", "0")
        until = time.monotonic() + 60
        # The scheduler creates the file first, and writes it then.
        while not (self._file.exists() and self._file.read_text().endswith("\n}")):
            assert time.monotonic() < until, "the scheduler does not start"
            time.sleep(0.1)
        self.address = json.loads(self._file.read_text())["address"]
        self.workers = [
            self._start("worker", self.address, "--nthreads", "1", *options) for _ in range(workers)
        ]

    def _start(self, kind, *arguments):
        with (self.folder / f"{kind}.err").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", kind, "--no-dashboard", *map(str, arguments)],
                cwd=self.folder,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (*self.workers, self.scheduler):
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def bucket():
    """A bucket of an S3 server, with the environment that names the server."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("s3fs")
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3").mkdir("robots")
        yield "s3://robots"
    server.stop()


def rows_of(dataset):
    """Return a dataset in the order of logs and lines, without the order of its files."""
    table = pandas.read_parquet(dataset)
    for name in ("log", "board", "date"):
        table[name] = table[name].astype("str")
    return table.sort_values(["log", "line"], ignore_index=True)


def ask_duckdb(query):
    """Return the rows of a query, from a process of its own: DuckDB writes to it when it ends."""
    pytest.importorskip("duckdb")
    program = f"import duckdb, json; print(json.dumps(duckdb.sql({query!r}).fetchall()))"
    return json.loads(subprocess.check_output([sys.executable, "-c", program], stderr=-3))


def test_a_lost_worker_costs_no_row_and_doubles_none(bucket, tmp_path):
    """100 logs of S3 to S3, on two workers of which one is killed: as one process writes them."""
    import fsspec

    files = fsspec.filesystem("s3")
    texts = [text_of(number) for number in range(LOGS)]
    for number, (text, _) in enumerate(texts):
        files.pipe(f"{bucket}/logs/{number:03}.log", text.encode())
    with Cluster(tmp_path, options=("--no-nanny",)) as cluster:

        def kill_one(log, done, total):
            assert total == LOGS
            assert log.records == texts[int(log.log[-7:-4])][1]
            if done == KILLED_AFTER:
                cluster.workers[0].send_signal(signal.SIGKILL)

        failed = frames.read_logs(
            f"{bucket}/logs/*.log", f"{bucket}/tables", cluster=cluster.address, finished=kill_one
        )
        assert cluster.workers[0].wait(30) == -signal.SIGKILL
        assert failed == []
    assert frames.read_logs(f"{bucket}/logs/*.log", tmp_path / "alone") == []
    files.get(f"{bucket}/tables", str(tmp_path / "together"), recursive=True)
    together = rows_of(tmp_path / "together")
    pandas.testing.assert_frame_equal(together, rows_of(tmp_path / "alone"))

    pattern = f"{tmp_path}/together/**/*.parquet"
    assert ask_duckdb(
        'SELECT log, count(*), CAST(sum("ram.used_bytes") AS BIGINT), min(date), max(date), '
        f"min(board) FROM read_parquet('{pattern}', union_by_name=true) GROUP BY log ORDER BY log"
    ) == [
        [
            f"{bucket}/logs/{number:03}.log",
            count,
            sum(range(count)) << 20,
            f"2026-05-{1 + number % 9:02}",
            f"2026-05-{2 + number % 9:02}",
            ("agx-orin", "orin-nx-orin-nano-or-xavier-nx")[number % 2],
        ]
        for number, (_, count) in enumerate(texts)
    ]


def test_a_log_that_ends_its_workers_stops_no_other(tmp_path):
    """It is listed, its neighbour is read, and nothing unfinished is left."""
    (tmp_path / "deadly.py").write_text(DEADLY)
    good = tmp_path / "good.log"
    good.write_text(text_of(0, 9000)[0])
    environment = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    output = tmp_path / "dataset"
    options = ("--preload", tmp_path / "deadly.py")
    with Cluster(tmp_path, workers=1, options=options, **environment) as cluster:
        names = ["deadly://a.log", str(good)]
        (problem,) = frames.read_logs(names, output, cluster=cluster.address)
    assert str(problem).startswith("deadly://a.log cannot be read (it ended its workers, one after")
    assert "deadly://a.log" in (output / "_unreadable.csv").read_text()
    found = rows_of(output)
    assert set(found["log"]) == {str(good)}
    assert not list(output.glob(".*"))


@pytest.fixture
def logs(tmp_path):
    """Two logs of different boards."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.log").write_text(text_of(number, 300_000)[0])
    return sorted(folder.iterdir())


def test_a_dataset_has_the_rows_and_types_of_the_logs(logs, tmp_path):
    assert frames.read_logs(logs, tmp_path / "dataset") == []
    found, whole = rows_of(tmp_path / "dataset"), frames.read_log(logs)
    assert set(found) == {*whole, "board", "date"}
    whole["log"] = whole["log"].astype("str")
    whole["time"] = whole["time"].astype(found["time"].dtype)
    pandas.testing.assert_frame_equal(found[list(whole)], whole, check_freq=False)
    assert (found["date"] == found["time"].dt.strftime("%Y-%m-%d")).all()


def test_runs_are_paired_with_a_dataset_as_with_its_log(logs, tmp_path):
    frames.read_logs(logs, tmp_path / "dataset")
    runs = pandas.DataFrame(
        {"name": ["a"], "start": ["2026-05-01T23:55"], "end": ["2026-05-02T00:01"]}
    )
    part = pandas.read_parquet(tmp_path / "dataset", filters=[("log", "==", str(logs[0]))])
    part = part.sort_values("line", ignore_index=True)
    found, expected = frames.correlate(part, runs), frames.correlate(logs[0], runs)
    assert found["outcome"].tolist() == ["ok"]
    pandas.testing.assert_frame_equal(found, expected)


def test_reading_again_replaces_the_rows_of_a_log(logs, tmp_path):
    """Those too of dates that it no longer has; other logs stay, and one that is gone too."""
    dataset = tmp_path / "dataset"
    frames.read_logs(logs, dataset)
    before = rows_of(dataset)
    lines = logs[0].read_text().splitlines(keepends=True)
    logs[0].write_text("".join(lines[:5]))
    frames.read_logs(logs[0], dataset)
    found = rows_of(dataset)
    assert (found["log"] == str(logs[0])).sum() == 5
    assert (found["log"] == str(logs[1])).sum() == (before["log"] == str(logs[1])).sum()
    assert list(found) == list(before)
    logs[0].unlink()
    assert len(frames.read_logs(logs[0], dataset)) == 1
    assert rows_of(dataset).equals(found)


def test_records_without_time_have_the_date_before_them(tmp_path):
    log = tmp_path / "a.log"
    text, _ = text_of(0, 9000)
    first, second, third, *_ = text.splitlines(keepends=True)
    bare = second[second.index("RAM") :]
    log.write_text(bare + first + bare + third.replace("05-01", "05-02"))
    frames.read_logs(log, tmp_path / "timed")
    assert rows_of(tmp_path / "timed")["date"].tolist() == ["2026-05-01"] * 3 + ["2026-05-02"]
    log.write_text(bare)
    frames.read_logs(log, tmp_path / "untimed")
    assert rows_of(tmp_path / "untimed")["date"].tolist() == ["-"]


def test_a_log_that_is_named_twice_is_read_once(logs, tmp_path, monkeypatch):
    monkeypatch.chdir(logs[0].parent)
    frames.read_logs([logs[0].name, str(logs[0])], tmp_path / "dataset")
    found = rows_of(tmp_path / "dataset")
    assert len(found) == len(frames.read_log(logs[0]))
    assert set(found["log"]) == {str(logs[0])}


def test_a_file_system_with_file_in_its_name_is_not_local(logs, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.get_filesystem_class("memory")
    profile = type("Profile", (memory,), {"protocol": "profile", "store": {}})
    fsspec.register_implementation("profile", profile, clobber=True)
    frames.read_logs(logs[0], f"profile://{tmp_path}/dataset")
    assert not (tmp_path / "dataset").exists()
    assert any(name.endswith("0-columns.parquet") for name in profile.store)


def test_the_command_lists_what_cannot_be_read(logs, tmp_path, capsys):
    dataset = tmp_path / "dataset"
    names = [*map(str, logs), str(tmp_path / "none.log"), f"memory://{tmp_path}/none.log"]
    assert main(["parse", "-f", "dataset", "-o", str(dataset), *names]) == 1
    *problems, counts = capsys.readouterr().err.splitlines()
    assert [problem.split()[1] for problem in problems] == names[2:]
    records = sum(len(log.read_text().splitlines()) for log in logs)
    assert counts.startswith(f"{records} lines: {records} records")
    assert len(rows_of(dataset)) == records
    assert len((dataset / "_unreadable.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "dataset", "a.log"], "a dataset needs -o"),
        (["--cluster", "tcp://127.0.0.1:9", "-f", "csv", "a.log"], "--cluster writes a dataset"),
    ],
)
def test_a_command_line_without_meaning_is_misuse(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["parse", *arguments])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{logs}", "-o", "{folder}/logs"], "has files, and is not a dataset"),
        (["{folder}/*.nothing", "-o", "{folder}/out"], "no log has a name like"),
        (["{logs}", "-o", "none://out"], "none://out: Protocol not known"),
        (["{logs}", "-o", "{logs}/out"], "/out: Not a directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments, message, logs, tmp_path, capsys):
    words = [word.format(logs=logs[0], folder=tmp_path) for word in arguments]
    assert main(["parse", "-f", "dataset", *words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_without_a_cluster_is_one_line(logs, tmp_path):
    with pytest.raises(UserError, match="there is no Dask scheduler"):
        frames.read_logs(logs, tmp_path / "dataset", engine="dask")


def test_a_url_is_read_as_its_file(logs, tmp_path, capsys):
    import gzip

    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(logs[0].read_bytes()))
    assert main(["parse", str(logs[0])]) == 0
    expected = capsys.readouterr()
    for url in (logs[0].as_uri(), packed.as_uri()):
        assert main(["parse", url]) == 0
        assert capsys.readouterr() == expected
        assert frames.read_log(url).equals(
            frames.read_log(logs[0]).assign(
                log=pandas.Categorical([url] * len(frames.read_log(url)))
            )
        )
