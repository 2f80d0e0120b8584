"""The tables of a notebook: logs, runs of a store or a daemon, and both paired."""

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

import tegrascope
from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.errors import UserError

pandas = pytest.importorskip("pandas")

from tegrascope import frames  # noqa: E402
from tegrascope.workbench.tables.log_tables import CLOCK_COLUMNS  # noqa: E402

S = 1_000_000_000
R36 = (
    "06-25-2025 15:43:{second} RAM 1024/7620MB (lfb 2x4MB) CPU [5%@729,off] GR3D_FREQ 50%@[900]"
    " NVDLA0 off tj@48.5C VDD_IN {now}mW/{mean}mW"
)
LINES = (
    "1750866199.3488::" + R36.format(second=19, now=5000, mean=5000),
    "Killed",
    "1750866199.8488::" + R36.format(second=19, now=6000, mean=5500),
    "1750866200.3488::" + R36.format(second=20, now=4000, mean=4000),
)


@pytest.fixture
def log(tmp_path):
    """Three records and a word of something else."""
    path = tmp_path / "robot.log"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.fixture
def plain(tmp_path):
    """Two records of an old release: no time, no rails; gzip."""
    path = tmp_path / "old.log.gz"
    path.write_bytes(gzip.compress(b"RAM 1/2MB (lfb 1x4MB) GR3D_FREQ 7%\n" * 2))
    return path


def test_frames_is_reached_as_a_name_of_the_package():
    """``tegrascope.frames`` and ``from tegrascope import frames`` are the same module."""
    assert tegrascope.frames is frames
    assert tegrascope.frames.read_log is frames.read_log
    assert "frames" not in tegrascope.__all__


def test_a_log_is_a_row_a_record(log):
    """The time of each record stands before its numbers, and every column has its type."""
    frame = frames.read_log(log)
    assert tuple(frame.columns[: len(CLOCK_COLUMNS)]) == CLOCK_COLUMNS
    assert frame["line"].tolist() == [1, 3, 4]
    assert frame["time"].tolist()[0] == pandas.Timestamp("2025-06-25T15:43:19")
    assert frame["received"].tolist()[0] == pandas.Timestamp("2025-06-25T15:43:19.3488Z")
    assert frame["elapsed_seconds"].tolist() == [0, 0.5, 1]
    assert frame["elapsed_error_seconds"].tolist() == [0, 0, 0]
    assert frame["clock_step_seconds"].isna().all()
    assert frame["restarted"].tolist() == [False, False, True]
    assert frame["rails.VDD_IN.instant_watts"].tolist() == [5, 6, 4]
    types = {name: str(dtype) for name, dtype in frame.dtypes.items()}
    assert [types[name] for name in CLOCK_COLUMNS] == [
        "category",
        "int64",
        "datetime64[s]",
        "datetime64[ns, UTC]",
        "float64",
        "float64",
        "float64",
        "boolean",
    ]
    for name, dtype in (
        ("ram.used_bytes", "Int64"),
        ("ram.largest_free_block_count", "Int64"),
        ("gpu.frequency_hertz.0", "Int64"),
        ("cpu.1.online", "boolean"),
        ("dla.0.on", "boolean"),
        ("gpu.utilization_ratio", "float64"),
        ("temperatures_celsius.tj", "float64"),
    ):
        assert types[name] == dtype, name


def test_logs_stand_behind_each_other(log, plain):
    """Each log has its own time; what one does not say is absent, not zero."""
    frame = frames.read_log([log, str(plain)], interval_seconds=0.5)
    assert frame.index.tolist() == list(range(5))
    assert frame["log"].tolist() == [str(log)] * 3 + [str(plain)] * 2
    assert frame["log"].dtype == "category"
    assert frame["elapsed_seconds"].tolist()[3:] == [0, 0.5]
    assert frame["elapsed_error_seconds"].isna().tolist() == [False] * 3 + [True] * 2
    assert frame["restarted"].isna().tolist() == [False] * 3 + [True] * 2
    assert frame["received"].isna().tolist() == [False] * 3 + [True] * 2
    assert frame["cpu.1.online"].isna().tolist() == [False] * 3 + [True] * 2


def test_what_cannot_be_read_is_told(tmp_path):
    """A log that is not there, and no log at all, are told in a line."""
    with pytest.raises(UserError, match="is not there"):
        frames.read_log(tmp_path / "none.log")
    with pytest.raises(UserError, match="no log"):
        frames.read_log([])


def report(number):
    return RunReport(
        run_id=f"0193a{number:04}",
        workload="resnet50",
        backend="onnxruntime",
        device="gpu",
        outcome="ok",
        started_wall_ns=(1_750_866_199 + number) * S,
        started_ns=1,
        ended_ns=2,
        quality=("simulated", "not_steady"),
    )


def test_runs_of_a_store_are_a_table(tmp_path):
    """A state directory, and the database in it, give the runs, newest first."""
    store = Store(tmp_path / "tegrascope.db")
    for number in range(2):
        store.finish(report(number))
    store.close()
    for path in (tmp_path, str(tmp_path / "tegrascope.db")):
        frame = frames.runs(path)
        assert frame["run_id"].tolist() == ["0193a0001", "0193a0000"]
        assert frame["quality"].tolist() == ["simulated not_steady"] * 2
        assert frame["started"][1] == pandas.Timestamp(1_750_866_199, unit="s", tz="UTC")


def test_what_is_no_store_is_told(tmp_path):
    """Neither a missing store nor a file of something else is a traceback of SQLite."""
    with pytest.raises(UserError, match="no run store"):
        frames.runs(tmp_path)
    (tmp_path / "tegrascope.db").write_text("something else, and long enough to be a header " * 9)
    with pytest.raises(UserError, match="cannot be read"):
        frames.runs(tmp_path)


@pytest.fixture
def daemon():
    """Serve 2500 runs, a second apart, as the daemon serves them."""
    documents = [report(number).model_dump(mode="json") for number in reversed(range(2500))]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            address = urlsplit(self.path)
            asked = {name: float(value) for name, (value,) in parse_qs(address.query).items()}
            before = int(asked.get("before", 4e9) * S)
            found = [run for run in documents if run["started_wall_ns"] < before]
            answer = {"runs": found[: int(asked["limit"])], "active": {}}
            found_it = address.path == "/api/v1/runs"
            self.send_response(200 if found_it else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer if found_it else {}).encode())

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_runs_of_a_daemon_are_a_table(daemon):
    """A daemon is asked page by page, until it has told all."""
    frame = frames.runs(f"{daemon}/")
    assert frame["run_id"].is_unique
    assert len(frame) == 2500
    assert frame["workload"].unique().tolist() == ["resnet50"]


def test_a_daemon_that_does_not_answer_is_told(daemon):
    """Another server, or none, is told in a line."""
    with pytest.raises(UserError, match="returns no runs"):
        frames.runs(f"{daemon}/other")
    with pytest.raises(UserError, match="returns no runs"):
        frames.runs("http://127.0.0.1:9")
