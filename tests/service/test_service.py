"""The wiring, without a process of its own: start, reload, stop, and a store in trouble."""

import resource
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tegrascope.collectors.base import SYSTEM_CLOCK
from tegrascope.daemon.commands.run import first_screen, without_missing_packages
from tegrascope.daemon.measure.timeline import SealedBlock
from tegrascope.daemon.service.service import Periods, Service
from tegrascope.daemon.session.telemetry import board_root, open_companions
from tegrascope.daemon.settings.config import Config, Telemetry
from tegrascope.daemon.settings.file import load_config
from tegrascope.daemon.store.history import History
from tegrascope.daemon.web.server import bind
from tegrascope.parsers.errors import PIP_INSTALL, UserError
from tests.fakes.board_tree import set_powered, write_board
from tests.fakes.processes import Stopwatch, until

BOARD = {"name": "mine", "rails": ["VDD_IN"], "total": ["VDD_IN"], "step": {"default": 0.04}}
SIMULATED = {"telemetry": {"source": "simulator", "interval": 0.05}}


def wait_for(what: Callable[[], object]) -> None:
    assert until(what)


def telemetry_threads() -> int:
    return sum(thread.name == "telemetry" for thread in threading.enumerate())


PERIODS = Periods(tick_ns=50_000_000, retry_ns=100_000_000, facts_ns=0)


@pytest.fixture
def service_of(tmp_path: Path):
    """Make services on one state directory, in haste; what was started is stopped."""
    made: list[Service] = []

    def make(
        settings: "dict[str, object]", directory: str = "state", **arguments: object
    ) -> Service:
        listener = arguments.pop("listener", None) or bind("127.0.0.1:0")
        arguments = {"periods": PERIODS, **arguments}
        try:
            config = Config.model_validate(settings)
            service = Service(config, tmp_path / directory, listener, **arguments)
        except UserError:
            listener.close()
            raise
        made.append(service)
        return service

    yield make
    for service in made:
        service.stop()


def running(service: Service) -> Service:
    service.start()
    wait_for(lambda: service.problem() is None)
    return service


def samples(service: Service) -> int:
    return sum(source.samples for source in service.live.snapshot.sources)


def reload(service: Service, settings: "dict[str, object]") -> None:
    service.load_config = lambda: Config.model_validate(settings)
    service.reload()


def workload(name: str, **settings: object) -> "dict[str, object]":
    return {"name": name, "model": "none.onnx", "device": "cpu", "baseline": 0, **settings}


def test_one_daemon_for_one_store(service_of):
    """A second daemon is refused in one line and harms nothing; after the first it may start."""
    first = running(service_of(SIMULATED))
    with pytest.raises(UserError, match="in use by another tegrascope") as told:
        service_of(SIMULATED)
    assert "\n" not in str(told.value)
    service_of(SIMULATED, "other")
    first.stop()
    running(service_of(SIMULATED))


def test_start_that_fails_leaves_nothing(service_of, tmp_path):
    """Without its log a replay does not start: no thread stays, the port and the store are free."""
    before = threading.active_count()
    broken = {"telemetry": {"source": "replay", "replay": {"path": str(tmp_path / "none.log")}}}
    service = service_of(broken)
    with pytest.raises(UserError, match=r"none\.log"):
        service.start()
    service.stop()
    assert threading.active_count() == before
    with socket.socket() as caller:
        port = int(service.url.rpartition(":")[2].strip("/"))
        assert caller.connect_ex(("127.0.0.1", port)) != 0
    running(service_of(SIMULATED))


@pytest.mark.parametrize("text", ["", "\n", "\xff\xfe"])
def test_token_file_without_a_token_is_refused(service_of, tmp_path, text):
    """An empty secret would be known to everybody; the daemon says how to get another."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "token").write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match="holds no token"):
        service_of(SIMULATED)


def test_reload_is_taken_whole_or_not_at_all(service_of, tmp_path, caplog):
    """A source that does not open refuses the file; the old source and workloads stay in force."""
    service = running(service_of(SIMULATED))
    replay = {"source": "replay", "replay": {"path": str(tmp_path / "none.log")}}
    reload(service, {"telemetry": replay, "workloads": [workload("new", every=1000)]})
    assert "none.log" in caplog.text
    assert "reload refused" in caplog.text
    assert service.config.telemetry.source == "simulator"
    assert service.planned() == []
    assert telemetry_threads() == 1
    seen = samples(service)
    wait_for(lambda: samples(service) > seen)


def test_limits_follow_a_reload(service_of):
    """What alerts hold the board to is what the file in force says."""
    service = service_of(SIMULATED | {"limits": {"power_watts": 30}})
    assert service.live.snapshot.limits.power_watts == 30
    running(service)
    reload(service, SIMULATED | {"limits": {"dla_busy_ratio": {"dla0": 0.5}}})
    assert service.live.snapshot.limits.power_watts is None
    assert service.live.snapshot.limits.dla_busy_ratio == {"dla0": 0.5}


def test_source_may_change_and_change_back(service_of, tmp_path):
    """Each reload leaves one source, the one of its file, and time goes on."""
    log = tmp_path / "some.log"
    log.write_text("RAM 936/3964MB (lfb 366x4MB) VDD_IN 5mW/5mW\n" * 1000)
    replay = {"source": "replay", "interval": 0.05, "replay": {"path": str(log), "speed": 1}}
    service = running(service_of(SIMULATED))
    for telemetry in (replay, SIMULATED["telemetry"], replay, SIMULATED["telemetry"]):
        reload(service, {"telemetry": telemetry})
        assert telemetry_threads() == 1
        wait_for(lambda: samples(service) > 0)
        (source,) = service.live.snapshot.sources
        assert source.name == telemetry["source"]
    assert service.problem() is None


def test_reload_leaves_other_workloads_their_times(service_of):
    """A new period for one workload runs that one anew, and does not touch the plan of others."""
    settings = [workload("a", every=1000), workload("b", every=1000, offset=500)]
    service = running(service_of(SIMULATED | {"workloads": settings}))

    def due() -> "dict[str, int]":
        return {one.name: due_ns for one, due_ns in service.planned()}

    def runs() -> "list[str]":
        return [run["workload"] for run in History(service.session.store.path).runs()]

    wait_for(lambda: runs() == ["a"])
    before = due()
    changed = [workload("a", every=1000, warm_up=2), workload("b", every=900, offset=400)]
    changed += [workload("c", every=1000)]
    reload(service, SIMULATED | {"workloads": changed})
    assert due()["a"] == before["a"]
    assert due()["b"] < before["b"]
    wait_for(lambda: sorted(runs()) == ["a", "c"])
    service.start_run("a")
    wait_for(lambda: sorted(runs()) == ["a", "a", "c"])
    (latest,) = (one for one, _ in service.planned() if one.name == "a")
    assert latest.warm_up == 2


def test_many_reloads_at_once_are_one_after_the_other(service_of):
    """However fast SIGHUPs come, one source is left and the last file is in force."""
    service = running(service_of(SIMULATED))
    numbers = iter(range(1, 100))

    def load() -> Config:
        number = next(numbers)
        telemetry = {"source": "simulator", "interval": 0.05, "simulator": {"seed": number}}
        return Config.model_validate({"telemetry": telemetry})

    service.load_config = load
    threads = [threading.Thread(target=service.reload) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert telemetry_threads() == 1
    assert service.config.telemetry.simulator.seed == 10
    seen = samples(service)
    wait_for(lambda: samples(service) > seen)


def test_window_has_no_lane_and_is_never_due(service_of):
    """A workload that its application marks has no worker, no plan, and does not run on demand."""
    window = {"name": "w", "backend": "window", "device": "dla0"}
    service = running(service_of(SIMULATED | {"workloads": [workload("a", every=1000), window]}))
    assert {thread.name for thread in threading.enumerate()} >= {"executor-cpu"}
    assert [one.name for one, _ in service.planned()] == ["a"]
    assert service.live.snapshot.workloads["w"].device == "dla0"
    with pytest.raises(UserError, match="run by its own application"):
        service.start_run("w")


def test_windows_follow_a_reload_and_the_end(service_of):
    """A reload decides who may begin and leaves alone what has begun; the end closes that."""
    service = running(service_of(SIMULATED))
    mark = b'{"event": "begin", "workload": "w"}'
    with pytest.raises(UserError, match="no workload w"):
        service.windows.take(mark)
    reload(service, SIMULATED | {"workloads": [{"name": "w", "backend": "window"}]})
    run_id = service.windows.take(mark)["run_id"]
    reload(service, SIMULATED)
    with pytest.raises(UserError, match="no workload w"):
        service.windows.take(mark)
    assert History(service.session.store.path).run(run_id) is None
    service.stop()
    run = History(service.session.store.path).run(run_id)
    assert (run["outcome"], run["reason"]) == ("cancelled", "the daemon is stopping")


def test_window_is_closed_by_the_tick(service_of):
    """A window past its timeout is closed with no further call."""
    window = {"name": "w", "backend": "window", "timeout": 0.2}
    service = running(service_of(SIMULATED | {"workloads": [window]}))
    run_id = service.windows.take(b'{"event": "begin", "workload": "w"}')["run_id"]
    wait_for(lambda: service.live.snapshot.workloads["w"].runs == {"failed": 1})
    assert History(service.session.store.path).run(run_id)["outcome"] == "failed"


def test_nothing_is_reloaded_after_the_end(service_of):
    """A SIGHUP that comes with the SIGTERM starts nothing again."""
    service = running(service_of(SIMULATED))
    service.stop()
    reload(service, {"telemetry": {"source": "simulator", "interval": 0.2}})
    assert telemetry_threads() == 0
    assert service.config.telemetry.interval == 0.05


def test_file_that_fails_in_us_is_refused(service_of, caplog):
    """Even a fault of our own at a reload leaves the old configuration in force."""
    service = running(service_of(SIMULATED))

    def load() -> Config:
        raise RecursionError

    service.load_config = load
    service.reload()
    assert "reload failed" in caplog.text
    assert service.problem() is None


def test_file_that_is_gone_is_refused(service_of, tmp_path, caplog):
    """A configuration that was moved away is named."""
    service = running(service_of(SIMULATED))
    service.load_config = lambda: load_config(tmp_path / "moved.yaml")
    service.reload()
    assert "moved.yaml" in caplog.text
    assert service.problem() is None


def test_locked_store_delays_runs_and_loses_none(service_of):
    """While another program holds the database, samples go on; later every run is there."""
    service = running(service_of(SIMULATED | {"workloads": [workload("a")]}))
    with closing(sqlite3.connect(service.session.store.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        run_id = service.start_run("a")
        wait_for(lambda: "locked" in (service.problem() or ""))
        seen = samples(service)
        wait_for(lambda: samples(service) > seen + 5)
        wait_for(lambda: service.live.snapshot.store_write_errors > 0)
        wait_for(lambda: service.live.snapshot.workloads["a"].runs)
        other.rollback()
    wait_for(lambda: History(service.session.store.path).run(run_id) is not None)
    wait_for(lambda: service.problem() is None)


def test_locked_store_does_not_hold_up_the_end(service_of):
    """The end does not wait for a program that keeps the database to itself."""
    service = running(service_of(SIMULATED))
    with closing(sqlite3.connect(service.session.store.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        watch = Stopwatch()
        service.stop()
        assert watch.seconds < 3


def test_demo_without_onnx_runtime_has_its_simulated_workloads_and_says_how_to_add_the_real_one(
    service_of,
):
    config = Config.model_validate(
        SIMULATED
        | {
            "workloads": [
                {"name": "tool", "command": "/bin/true"},
                {"name": "real", "model": "builtin:mobilenet", "device": "cpu"},
            ]
        }
    )
    whole, limitation = without_missing_packages(config, find={"onnxruntime": "a module"}.get)
    assert (whole, limitation) == (config, None)
    lighter, limitation = without_missing_packages(config, find={}.get)
    assert [workload.name for workload in lighter.workloads] == ["tool"]
    assert f"(real): make run, or {PIP_INSTALL} onnxruntime, adds it" in limitation
    service = service_of(lighter.model_dump(), limitation=limitation)
    assert service.note() == limitation
    assert first_screen(service, Path("state"))[-1] == f"  note       {limitation}"


def test_daemon_starts_on_a_damaged_store_and_says_so(service_of, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tegrascope.db").write_bytes(b"no database" * 1000)
    service = running(service_of(SIMULATED | {"workloads": [workload("a")]}))
    assert "the store was damaged (file is not a database): it was renamed to " in service.note()
    run_id = service.start_run("a")
    wait_for(lambda: History(service.session.store.path).run(run_id) is not None)


def test_store_that_is_cut_while_open_is_reported_and_loses_nothing_of_its_log(service_of):
    service = running(service_of(SIMULATED | {"workloads": [workload("a")]}))
    path = service.session.store.path
    runs = [service.start_run("a")]
    wait_for(lambda: History(path).run(runs[0]) is not None)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    wait_for(lambda: "the file was cut" in (service.note() or ""))
    wait_for(lambda: service.problem() is None)
    service.session.store.flush()  # which waits until the new file is there
    runs.append(service.start_run("a"))
    wait_for(lambda: History(path).run(runs[1]) is not None)
    assert History(path).run(runs[0]) is not None
    assert service.problem() is None
    wait_for(lambda: service.live.snapshot.store_damages == 1)
    assert service.live.snapshot.store_runs_lost == 0


def test_daemon_works_without_a_store_until_it_can_be_opened(service_of, tmp_path, caplog):
    """Samples and runs go on, the reason is shown, and nothing is called stored that is not."""
    path = tmp_path / "state" / "tegrascope.db"
    path.mkdir(parents=True)
    service = service_of(SIMULATED | {"workloads": [workload("a")]})
    service.start()
    reason = "the store does not write: unable to open database file"
    wait_for(lambda: service.problem() == reason)
    seen = samples(service)
    wait_for(lambda: samples(service) > seen + 5)
    run_id = service.start_run("a")
    wait_for(lambda: service.session.store.waiting())
    assert [run["run_id"] for run in service.session.store.waiting()] == [run_id]
    wait_for(lambda: "not stored yet" in caplog.text)
    (line,) = (one for one in caplog.messages if f"run {run_id} · " in one)
    assert line.endswith(" · not stored yet")
    path.rmdir()
    wait_for(lambda: service.problem() is None)
    assert History(path).run(run_id) is not None


def test_size_limit_of_the_store_is_kept(service_of):
    service = running(service_of(SIMULATED | {"store": {"max_bytes": 1_000_000}}))
    store = service.session.store
    size = 20_000
    for number in range(100):
        data = b"%d" % number + b"x" * size
        store.add_block(SealedBlock("s", number, number + 1, 0, 1, 9, data))
    wait_for(lambda: len(list(History(store.path).blocks(0, 1 << 62))) <= 1_000_000 // size)


@contextmanager
def full_disk() -> Iterator[None]:
    """Let this process write no byte to any file, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_daemon_starts_on_a_full_disk_and_writes_when_there_is_room(service_of, tmp_path):
    """Nobody can know a token that was not written, so calls that change state are refused."""
    token = tmp_path / "state" / "token"
    with full_disk():
        service = service_of(SIMULATED)
        service.start()
        wait_for(lambda: "the store does not write: " in (service.problem() or ""))
        seen = samples(service)
        wait_for(lambda: samples(service) > seen + 5)
        assert not token.exists()
        refusal = f"calls that change state are refused: no token, {token}: File too large"
        assert service.note() == refusal
    wait_for(lambda: service.problem() is None and service.note() is None)
    assert len(token.read_text()) > 40
    assert token.stat().st_mode & 0o777 == 0o600
    service.session.timeline.seal()
    wait_for(lambda: list(History(service.session.store.path).blocks(0, 1 << 62)))


def test_store_that_refuses_keeps_runs_and_samples(service_of):
    """A refused run or block is counted, reported and kept; it is written when that is possible."""
    service = running(service_of(SIMULATED | {"workloads": [workload("a")]}))
    path = service.session.store.path
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        run_id = service.start_run("a")
        wait_for(lambda: service.problem() == "the store does not write: database is locked")
        service.session.timeline.seal()
        errors = service.session.store.write_errors
        wait_for(lambda: service.live.snapshot.store_write_errors > errors + 1)
        other.execute("ROLLBACK")
    wait_for(lambda: History(path).run(run_id) is not None)
    wait_for(lambda: service.problem() is None)
    assert list(History(path).blocks(0, 1 << 62))


class Notified:
    """systemd's end of the notification socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))

    def hear(self, word: str, times: int) -> None:
        """Wait until a word was said so many times from now on."""
        self.socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self.socket.recv(4096)
        self.socket.settimeout(60)
        while times:
            times -= self.socket.recv(4096).decode().splitlines().count(word)


def test_watchdog_is_fed_while_all_is_well(service_of, tmp_path, monkeypatch):
    """Also while the store cannot write, since a restart would lose what waits in memory."""
    manager = Notified(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    with closing(manager.socket):
        service = running(service_of(SIMULATED))
        manager.hear("WATCHDOG=1", 4)
        path = service.session.store.path
        path.rename(tmp_path / "away.db")
        path.mkdir()
        service.session.timeline.seal()
        wait_for(lambda: service.problem() is not None)
        manager.hear("WATCHDOG=1", 4)
        service.stop()


class FailingClock:
    """The real clock, until it raises in the thread ``fails_in``."""

    def __init__(self) -> None:
        self.fails_in = ""

    def __getattr__(self, name: str) -> object:
        if threading.current_thread().name == self.fails_in:
            raise OverflowError(f"no time for {name}")
        return getattr(SYSTEM_CLOCK, name)


class NoSignals:
    """Process signals, of which none comes."""

    def call(self, *_: object) -> None: ...
    def ignore(self) -> None: ...


def serving(service: Service) -> "tuple[threading.Thread, list[UserError]]":
    """Serve in a thread; return it, and where the error is that ends it."""
    errors: list[UserError] = []

    def serve() -> None:
        try:
            service.run(NoSignals())
        except UserError as error:
            errors.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread, errors


LONG = {"name": "long", "command": "sleep 600", "device": "external", "baseline": 0}


@pytest.mark.parametrize("name", ["scheduler", "housekeeping", "telemetry"])
def test_vital_thread_that_fails_ends_the_daemon(service_of, name):
    """The reason is shown as not ready, the process fails, and the run in flight is cancelled."""
    clock = FailingClock()
    periods = Periods(tick_ns=50_000_000, schedule_ns=50_000_000)
    settings = SIMULATED | {"workloads": [LONG]}
    service = running(service_of(settings, clock=clock, periods=periods))
    run_id = service.start_run("long")
    wait_for(lambda: service.live.snapshot.workloads["long"].active_run)
    thread, errors = serving(service)
    clock.fails_in = name
    thread.join(60)
    assert not thread.is_alive()
    reason = f"the {name} thread failed (OverflowError no time for "
    assert service.problem().startswith(reason)
    assert str(errors[0]).startswith(reason)
    service.stop()
    run = History(service.session.store.path).run(run_id)
    assert (run["outcome"], run["reason"]) == ("cancelled", "the daemon is stopping")


def test_listener_that_is_gone_ends_the_daemon(service_of):
    listener = bind("127.0.0.1:0")
    service = running(service_of(SIMULATED, listener=listener))
    thread, errors = serving(service)
    with socket.create_connection(listener.getsockname()) as caller:
        caller.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert caller.recv(12) == b"HTTP/1.1 200"
    listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert not thread.is_alive()
    assert service.problem().startswith("the HTTP thread failed (OSError")
    assert str(errors[0]).startswith("the HTTP thread failed (OSError")


def test_stop_does_not_wait_for_a_reload_that_hangs(service_of):
    service = running(service_of(SIMULATED))
    reading, released = threading.Event(), threading.Event()

    def load() -> Config:
        reading.set()
        released.wait(300)
        return Config.model_validate({"telemetry": {"source": "simulator", "interval": 0.2}})

    service.load_config = load
    thread = threading.Thread(target=service.reload, daemon=True)
    thread.start()
    assert reading.wait(60)
    watch = Stopwatch()
    service.stop()
    assert watch.seconds < 10
    released.set()
    thread.join(60)
    assert service.config.telemetry.interval == 0.05
    assert telemetry_threads() == 0


def test_unknown_lines_are_reported(service_of, tmp_path):
    """A source that prints something else is not ready, and the reason says what it prints."""
    log = tmp_path / "noise.log"
    log.write_text("Segmentation fault\n" * 50)
    settings = {"telemetry": {"source": "replay", "replay": {"path": str(log), "speed": "max"}}}
    service = service_of(settings)
    service.start()
    wait_for(lambda: "are no samples" in (service.problem() or ""))
    assert service.problem().startswith("no fresh sample from replay: ")


def test_impossible_run_is_reported(service_of):
    """Who asks for a run while another of it waits hears that, and no id."""
    service = running(service_of(SIMULATED | {"workloads": [workload("a", warm_up=100)]}))
    with pytest.raises(UserError, match="configured are: a"):
        service.start_run("b")
    service.stop()
    with pytest.raises(UserError, match="the daemon is stopping"):
        service.start_run("a")


def test_board_of_the_configuration_names_itself(service_of):
    """Who overrides what is known of the rails sees that name on the page and in the records."""
    rule = {"name": "my carrier", "rails": ["VDDX"], "total": ["VDDX"], "step": {"default": 0.1}}
    service = running(service_of({**SIMULATED, "board": rule}))
    assert service.live.snapshot.environment.board == "my carrier"
    assert service.live.snapshot.module_joules is None


def test_files_of_a_board_are_read_with_its_lines(service_of, tmp_path):
    """Facts, powered time and trips are there; a power mode that is changed shows by itself."""
    root = write_board(tmp_path / "board")
    command = [sys.executable, "-m", "tegrascope", "simulate"]
    telemetry = {"tegrastats": {"command": command}, "interval": 0.05, "sysfs": str(root)}
    service = running(service_of({"telemetry": telemetry}))
    snapshot = service.live.snapshot
    environment = snapshot.environment
    assert environment.board == "NVIDIA Jetson AGX Orin Developer Kit"
    assert (environment.l4t, environment.jetpack) == ("36.4.3", "6.2")
    assert environment.rail_sensors["1-0040.samples"] == 1
    assert environment.versions["kernel"] == "5.15.148-tegra"
    assert snapshot.trips_celsius["cpu", "passive"] == 70
    wait_for(lambda: service.live.snapshot.companions_up == {"sysfs": True, "rails": True})
    wait_for(lambda: service.live.snapshot.values.get("rails.VDD_GPU_SOC.volts") == 20.008)
    set_powered(root, 1, 2500)
    wait_for(lambda: service.live.snapshot.values.get("dla.1.powered_seconds") == 2.5)
    assert service.live.snapshot.values["throttle.oc3.events"] == 27390
    wait_for(lambda: (service.live.snapshot.store_free_bytes or 0) > 0)
    assert environment.power_mode == "MODE_30W"
    (root / "var/lib/nvpmodel/status").write_text("pmode:0000 fmode:quiet")
    wait_for(lambda: service.live.snapshot.environment.power_mode == "MAXN")
    reload(service, {"telemetry": {**telemetry, "sysfs": False}, "board": BOARD})
    wait_for(lambda: service.problem() is None)
    left = service.live.snapshot
    assert (left.environment.board, left.environment.l4t) == ("mine", None)
    assert "dla.1.powered_seconds" not in left.values
    assert (left.companions_up, left.trips_celsius) == ({}, {})


def test_the_configurations_board_wins(service_of, tmp_path):
    """A name that somebody wrote down is not overwritten by what the device tree says."""
    root = write_board(tmp_path / "board")
    command = [sys.executable, "-m", "tegrascope", "simulate"]
    telemetry = {"tegrastats": {"command": command}, "interval": 0.05, "sysfs": str(root)}
    service = running(service_of({"telemetry": telemetry, "board": BOARD}))
    environment = service.live.snapshot.environment
    assert (environment.board, environment.module) == ("mine", "p3701-0005")


@pytest.mark.parametrize("source", ["simulator", "nvml", "replay"])
def test_another_machines_lines_get_no_files_of_this_one(source):
    """Only lines of this board are paired with its files, whatever the settings say."""
    telemetry = Telemetry.model_validate(
        {"source": source, "sysfs": True, "replay": {"path": "/x.log"}}
    )
    assert board_root(telemetry) is None
    assert open_companions(telemetry, SYSTEM_CLOCK) == []
    live = telemetry.model_copy(update={"source": "stream"})
    assert board_root(live) == Path("/")
