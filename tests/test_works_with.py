"""The files of docs/works-with, with a real daemon and with planted pages.

They are for programs of others. ros2top is that of the package index. AIPerf takes 1 GB, so its
three classes have stand-ins here, unless it is installed.
"""

import asyncio
import base64
import contextlib
import http.server
import importlib.util
import json
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemons import Daemon, start
from tests.pages import ROOT

__all__ = ["start"]

FILES = ROOT / "docs/works-with"
SIMULATED = "telemetry: {source: simulator, interval: 250ms}\n"
USER = f"Basic {base64.b64encode(b'prometheus:se@cret').decode()}"
EVENTS = 'tegra_throttle_events_total{{kind="{kind}"}} {count}\n'
ACTIVE = 'tegra_throttle_active{{kind="{kind}"}} {active}\n'


class Pages:
    """A server of planted pages: their texts by path; a path that is not there is a 503."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.headers: list[str | None] = []
        pages = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pages.headers.append(self.headers.get("Authorization"))
                text = pages.texts.get(self.path.partition("?")[0])
                self.send_response(503 if text is None else 200)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    served = Pages()
    monkeypatch.setenv("TEGRASCOPE_URL", f"http://{served.address}")
    yield served
    served.stop()


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Any]]:
    """Import a module from a folder of docs/works-with, only for one test."""
    before = set(sys.modules)

    def bring(folder: str, module: str) -> Any:
        monkeypatch.syspath_prepend(str(FILES / folder))
        return importlib.import_module(module)

    yield bring
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("clock_watch", "tegrascope_aiperf", "ros2top_tegrascope"):
            del sys.modules[name]


@pytest.fixture
def daemon(start: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """A daemon of a simulated board, which the adapters find by their variable."""
    started = start(SIMULATED)
    started.wait_for(lambda: started.get("readyz").startswith("ready"))
    monkeypatch.setenv("TEGRASCOPE_URL", started.url.rstrip("/"))
    return started


# --- single_artifact_benchmarking -----------------------------------------------------------------


def show(pages: Pages, count: int = 0, active: int = 0, kind: str = "oc1") -> None:
    """Plant the page of a board with these counters."""
    pages.texts["/readyz"] = "ready\n"
    pages.texts["/metrics"] = EVENTS.format(kind=kind, count=count) + ACTIVE.format(
        kind=kind, active=active
    )
    pages.texts.setdefault("/api/v1/series", json.dumps({"parts": []}))


def test_pass_in_which_the_kernel_counted_an_event_is_throttled(pages, load, capsys, monkeypatch):
    monkeypatch.setenv("TEGRASCOPE_URL", f"http://prometheus:se%40cret@{pages.address}")
    watch = load("single-artifact-benchmarking", "clock_watch")
    show(pages, count=3)
    with watch.ThrottleMonitor() as monitor:
        assert not monitor.did_throttle()
        show(pages, count=4)
        assert monitor.did_throttle()
    assert "throttled: oc1" in capsys.readouterr().out
    assert set(pages.headers) == {USER}


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 1)])
def test_pass_with_a_limit_in_force_is_throttled(pages, load, before, after):
    """A limit that holds all the time counts no event."""
    watch = load("single-artifact-benchmarking", "clock_watch")
    show(pages, active=before, kind="tj_thermal")
    with watch.ThrottleMonitor() as monitor:
        show(pages, active=after, kind="tj_thermal")
        assert monitor.did_throttle()


@pytest.mark.parametrize("gone", ["/metrics", "/readyz"])
def test_pass_without_a_watcher_is_never_called_clean(pages, load, gone):
    watch = load("single-artifact-benchmarking", "clock_watch")
    show(pages)
    with watch.ThrottleMonitor() as monitor:
        del pages.texts[gone]
        with pytest.raises(OSError, match="503"):
            monitor.did_throttle()


def test_board_without_counters_cannot_be_watched(pages, load):
    watch = load("single-artifact-benchmarking", "clock_watch")
    show(pages)
    pages.texts["/metrics"] = "tegra_gpu_utilization_ratio 0.5\n"
    with pytest.raises(ValueError, match="sysfs: true"), watch.ThrottleMonitor():
        pass


def test_idle_clock_is_no_clock_of_the_pass(pages, load, capsys):
    watch = load("single-artifact-benchmarking", "clock_watch")
    show(pages)
    rows = [[0, [0.1, 3e8], [0.2, 4e8]], [2, [0.9, 1.2e9], [1, 1.3e9]], [4, [0.8, 9e8], [1, 1e9]]]
    part = {"columns": ["ratio/gpu", "hertz/gpu"], "rows": rows}
    pages.texts["/api/v1/series"] = json.dumps({"parts": [part]})
    with watch.ThrottleMonitor(1300) as monitor:
        assert monitor.busy_clocks() == (900, 1200)
        assert not monitor.did_throttle()
    assert "GPU clock 900 to 1200 MHz, wanted 1300" in capsys.readouterr().out


def test_real_daemon_has_what_the_clock_watcher_reads(daemon, load, monkeypatch):
    watch = load("single-artifact-benchmarking", "clock_watch")
    monkeypatch.setattr(watch, "BUSY_RATIO", 0.0)
    with watch.ThrottleMonitor() as monitor:
        lowest, highest = daemon.wait_for(monitor.busy_clocks)
        assert not monitor.did_throttle()
    assert 100 < lowest <= highest < 2000


# --- AIPerf ---------------------------------------------------------------------------------------


def stand_in_for_aiperf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the three classes of aiperf.common.models, with the names of release 0.13."""

    class Values(types.SimpleNamespace):
        nvidia_power_usage = None

        @classmethod
        def from_exception(cls, error: Exception) -> "Values":
            return cls(message=str(error))

    models = types.ModuleType("aiperf.common.models")
    for name in ("ErrorDetails", "TelemetryMetrics", "TelemetryRecord"):
        setattr(models, name, Values)
    for name in ("aiperf", "aiperf.common"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "aiperf.common.models", models)


@pytest.fixture
def collector(load, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Make a collector as AIPerf does; records and errors go to its lists."""
    if importlib.util.find_spec("aiperf") is None:
        stand_in_for_aiperf(monkeypatch)
    module = load("aiperf", "tegrascope_aiperf.collector")

    def make() -> Any:
        async def on_records(records: list[Any], collector_id: str) -> None:
            made.records.extend(records)
            assert collector_id == "tegrascope_collector"

        async def on_error(error: Any, collector_id: str) -> None:
            made.errors.append(error.message)
            assert collector_id == "tegrascope_collector"

        made = module.TegrascopeCollector(
            collection_interval=0.05,
            record_callback=on_records,
            error_callback=on_error,
            collector_id="tegrascope_collector",
        )
        made.records, made.errors = [], []
        return made

    return make


def energy(joules: float, seconds: float) -> str:
    """Return the page of a board with this energy so far."""
    return (
        'tegra_info{board="orin"} 1\n'
        f"tegra_module_energy_joules_total {joules}\n"
        f"tegra_module_energy_observed_seconds_total {seconds}\n"
    )


def test_power_for_aiperf_is_the_mean_between_two_readings(pages, collector, monkeypatch):
    monkeypatch.setenv("TEGRASCOPE_URL", f"http://prometheus:se%40cret@{pages.address}")
    made = collector()
    for joules, seconds in ((5000.0, 100.0), (5030.0, 102.0), (5030.0, 102.0)):
        pages.texts["/metrics"] = energy(joules, seconds)
        asyncio.run(made.collect_and_process_metrics())
    assert made.errors == []
    data = [record.telemetry_data for record in made.records]
    assert [one.nvidia_power_usage for one in data] == [None, 15.0, None]
    assert [one.nvidia_energy_consumption for one in data] == pytest.approx(
        [0.005, 0.00503, 0.00503]
    )
    assert made.records[0].gpu_model_name == "orin (whole module)"
    assert made.records[0].telemetry_source_url == f"http://{pages.address}"
    assert pages.headers[0] == USER


def test_what_the_board_cannot_say_is_an_error_for_aiperf(pages, collector, monkeypatch):
    """A page without energy, a counter that stands still, and no daemon."""
    made = collector()
    module = sys.modules[type(made).__module__]
    monkeypatch.setattr(module, "STALE_SECONDS", -1.0)
    for page in ("tegra_info 1\n", energy(1.0, 1.0), energy(1.0, 1.0)):
        pages.texts["/metrics"] = page
        asyncio.run(made.collect_and_process_metrics())
    del pages.texts["/metrics"]
    asyncio.run(made.collect_and_process_metrics())
    assert len(made.records) == 1
    told = ("no energy of the module", "no new sample", "503")
    assert all(part in error for part, error in zip(told, made.errors, strict=True))


def test_aiperf_gets_records_of_a_real_daemon_until_it_stops(daemon, collector):
    made = collector()

    async def benchmark() -> None:
        type(made).validate_environment()
        assert await made.is_url_reachable()
        await made.initialize()
        await made.start()
        while not any(one.telemetry_data.nvidia_power_usage for one in made.records):
            await asyncio.sleep(0.05)
        await made.stop()

    asyncio.run(asyncio.wait_for(benchmark(), 60))
    powers = [one.telemetry_data.nvidia_power_usage for one in made.records]
    assert all(5 < watts < 60 for watts in filter(None, powers))
    assert made.errors == []
    daemon.stop()
    assert not asyncio.run(made.is_url_reachable())


def test_manifest_for_aiperf_names_the_collector(collector):
    manifest = yaml.safe_load((FILES / "aiperf/tegrascope_aiperf/plugins.yaml").read_text())
    entry = manifest["gpu_telemetry_collector"]["tegrascope"]
    module, _, name = entry["class"].partition(":")
    assert getattr(sys.modules[module], name) is type(collector())
    assert entry["metadata"] == {"is_local": True}


# --- ros2top --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ros2top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real ros2top, in a folder of its own; psutil is there."""
    folder = tmp_path_factory.mktemp("ros2top")
    command = (sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", str(folder))
    done = subprocess.run([*command, "ros2top==0.4.0"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"ros2top cannot be had: {done.stderr.strip()[-200:]}")
    return folder


@pytest.fixture
def nodes(ros2top: Path, load, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Its monitor with ours, of two nodes: of this process, and of one that sleeps."""
    monkeypatch.setenv("TEGRASCOPE_URL", f"http://{pages.address}")
    monkeypatch.syspath_prepend(str(ros2top))
    ours = load("ros2top", "ros2top_tegrascope")
    monitor = ours.DlaNodes(ours.Status(), auto_discovery=False)
    with subprocess.Popen(["sleep", "600"]) as other:
        import psutil

        monitor.processes = {
            f"/camera:{os.getpid()}": psutil.Process(),
            f"/planner:{other.pid}": psutil.Process(other.pid),
        }
        yield monitor
        with contextlib.suppress(OSError):
            other.kill()
    monitor.cleanup()


def test_node_of_ros2top_has_the_load_of_its_dla_behind_its_name(nodes, pages):
    dla = {"name": "detector.service/sleep", "dla": {"1": 0.25, "0": 0.5}}
    pages.texts["/api/v1/status"] = json.dumps({"processes": [dla, {"name": "python"}]})
    names = {node.name for node in nodes.get_node_info_list()}
    assert names == {"/camera", "/planner  [DLA0 50% DLA1 25%]"}


def test_gpu_of_a_jetson_in_ros2top_is_that_of_the_board_and_of_no_node(nodes, pages):
    pages.texts["/api/v1/status"] = json.dumps({"vital": {"gpu_ratio": 0.31}})
    assert nodes.get_gpu_count() == 1
    assert nodes.gpu_monitor.get_gpu_info(0)["utilization_gpu"] == pytest.approx(31)
    assert {node.gpu_device_id for node in nodes.get_node_info_list()} == {-1}


def test_ros2top_goes_on_without_a_daemon_and_ends_a_node_by_its_marked_name(nodes):
    assert {node.name for node in nodes.get_node_info_list()} == {"/camera", "/planner"}
    assert not nodes.is_gpu_available()
    planner = next(one for one in nodes.get_node_info_list() if one.name == "/planner")
    assert nodes.kill_process("/planner  [DLA0 50%]", planner.pid)


def test_real_daemon_has_what_ros2top_shows(daemon):
    status = daemon.json("api/v1/status")
    assert 0 <= status["vital"]["gpu_ratio"] <= 1
    assert isinstance(status["processes"], list)
