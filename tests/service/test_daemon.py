"""The whole daemon, as its users meet it: real processes, a real model, real signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import tegrascope
from tegrascope.parsers.errors import UserError
from tests.daemons import MORE_MIB, until_measured
from tests.export.test_otlp import series_of
from tests.fakes.otlp_receiver import Receiver, points
from tests.fakes.processes import is_running

SIMULATED = """
telemetry: {source: simulator, interval: 103ms, simulator: {seed: 3}}
workloads:
- {name: on-gpu, model: resnet50, backend: simulated, device: gpu,
   warm_up: 200ms, baseline: 500ms, duration: 2s, every: 6s}
- {name: on-dla, model: resnet50, backend: simulated, device: dla0,
   warm_up: 200ms, baseline: 500ms, duration: 2s, every: 6s}
"""
GST_PROGRAM = Path(__file__).parents[1] / "fakes/gst_program.py"
# The simulated board stands where the tegrastats program would: a child that prints lines.
TEGRASTATS = f"""
telemetry:
  source: tegrastats
  interval: 200ms
  tegrastats: {{command: ["{sys.executable}", "-m", "tegrascope", "simulate"]}}
workloads:
- {{name: cpu, model: "builtin:mobilenet", device: cpu, threads: 1, warm_up: 100ms,
   baseline: 200ms, duration: DURATION, every: 3s}}
"""


# Beside a run that does not end by itself, these do.
QUICK = """
- {name: quick, command: "true", device: external, baseline: 0s, warm_up: 0s, every: 1s}
"""


def short(seconds: int = 1) -> str:
    return TEGRASTATS.replace("DURATION", f"{seconds}s")


def test_two_lanes_run_and_are_paired(start):
    """Two workloads on two lanes have good runs with energy, and every figure says simulated."""
    daemon = start(SIMULATED)
    for workload, device in (("on-gpu", "gpu"), ("on-dla", "dla0")):
        # A busy machine loses samples; then the energy of a run is withheld under its flag.
        run = daemon.wait_for(lambda w=workload: measured_run(daemon, w))
        assert run["device"] == device
        assert run["energy"]["gross_joules"] > 1
        assert "simulated" in run["quality"]
        assert "insufficient_samples" in run["quality"]
        assert "gross_joules_per_inference" not in run["energy"]
        steady = run["phases"]["steady"]
        seconds = (steady["end_ns"] - steady["begin_ns"]) / 1e9
        # It ends with the inference that is in flight after two seconds.
        assert 2 <= seconds < 2.2 + run["latency"]["max_seconds"]
        assert run["inferences"] == run["latency"]["count"] > 1
        assert 2 <= run["telemetry"]["samples"] <= seconds / 0.103 + 3
    page = daemon.get("metrics")
    figures = [line for line in page.splitlines() if line.startswith("tegra_")]
    assert figures
    assert all('simulated="true"' in line for line in figures)
    # The last one ran on the DLA.
    assert run["telemetry"]["utilization"]["dla0:tegrastats"]["mean_ratio"] > 0.5
    daemon.wait_for(lambda: daemon.get("readyz") == "ready\n")
    assert daemon.stop() < 3


def measured_run(daemon, workload):
    """Return a good run with energy; one without has the flag of missing samples."""
    runs = daemon.runs(workload=workload, outcome="ok")
    measured = [run for run in runs if "gross_joules" in run.get("energy", {})]
    assert all("telemetry_gap" in run["quality"] for run in runs if run not in measured)
    return measured and measured[0]


@pytest.mark.parametrize(
    ("processes", "otlp", "most_mib"),
    [("", False, 56), ("", True, 57), (", processes: {top: 10}", False, 56)],
)
def test_parent_is_light(start, processes, otlp, most_mib):
    """The daemon itself loads no heavy library and stays under 57 MiB, with its page open too.

    OTLP is sent by a child, which costs the parent about 0.7 MiB. Python 3.14 itself takes more.
    """
    receiver = Receiver()
    more = f"otlp: {{endpoint: '{receiver.url}', interval: 1s}}\n" if otlp else ""
    daemon = start(SIMULATED.replace("{seed: 3}", "{seed: 3}" + processes) + more)
    daemon.wait_for(lambda: daemon.runs(outcome="ok"))
    daemon.wait_for(lambda: receiver.spans() or not otlp)
    receiver.stop()
    daemon.wait_for(lambda: daemon.json("api/v1/status")["processes"] or not processes)
    daemon.json("api/v1/samples")
    for path in ("", "api/v1/status", "api/v1/series", "api/v1/summaries"):
        assert daemon.get(path, **{"Accept-Encoding": "identity"})
    with Path(f"/proc/{daemon.process.pid}/maps").open() as maps:
        mapped = maps.read()
    heavy = ("pandas", "numpy", "onnx", "pyarrow", "tensorrt", "libcuda", "cuda/bindings")
    # The last ones are of OTLP, and of passwords, which need a web configuration.
    for library in (*heavy, "google/_upb", "charset_normalizer", "/bcrypt/", "/psutil/"):
        assert library not in mapped
    with Path(f"/proc/{daemon.process.pid}/status").open() as status:
        fields = dict(line.split(":", 1) for line in status)
    assert int(fields["VmRSS"].split()[0]) < (most_mib + MORE_MIB) * 1024


def test_metrics_and_runs_arrive_by_otlp(start):
    """A page has the values that a scrape of the same sample has; each run is a span."""
    receiver = Receiver()
    more = f"otlp: {{endpoint: '{receiver.url}', interval: 1s, instance: robot7}}\n"
    daemon = start(SIMULATED.replace("103ms", "1009ms") + more)
    scraped: dict[float, dict[object, float]] = {}

    def same() -> bool:
        """Return whether a page was scraped and sent with the same number of samples and runs."""
        page = series_of(daemon.get("metrics"))
        scraped[moment(page)] = page
        return any(moment(points(one)) in scraped for one in receiver.pages()[5:])

    def moment(page: dict[object, float]) -> object:
        names = ("tegrascope_samples_total", "tegra_inferences_total", "tegra_inference_run_active")
        return frozenset((key, page[key]) for key in page if key[0] in names)

    daemon.wait_for(lambda: daemon.runs(outcome="ok"))
    daemon.wait_for(same)
    got = next(one for one in map(points, receiver.pages()[5:]) if moment(one) in scraped)
    wanted = scraped[moment(got)]
    changing = ("process_", "python_", "tegrascope_otlp_", "tegrascope_store_free_bytes")
    kept = {key for key in {*got, *wanted} if not key[0].startswith(changing)}
    assert len(kept) > 100
    assert {key: got.get(key) for key in kept} == {key: wanted.get(key) for key in kept}
    runs = {run["run_id"].replace("-", "") for run in daemon.runs()}
    daemon.wait_for(lambda: runs <= {span.trace_id.hex() for span in receiver.spans()})
    assert daemon.metric('tegrascope_source_up{source="otlp"}') == 1
    assert daemon.stop() < 3
    cancelled = {span.trace_id.hex() for span in receiver.spans()} - runs
    receiver.stop()
    assert len(cancelled) <= 4  # in flight at the end


def test_without_a_receiver_the_daemon_works_and_ends_in_time(start):
    daemon = start(short(3) + "otlp: {endpoint: 'http://127.0.0.1:9', interval: 1s}\n")
    daemon.wait_for(lambda: daemon.metric('tegrascope_source_up{source="otlp"}') == 0)
    daemon.wait_for(lambda: any("127.0.0.1:9 cannot be reached" in line for line in daemon.log))
    daemon.wait_for(lambda: daemon.runs(outcome="ok"))
    assert daemon.stop() < 3
    assert any("were not sent" in line for line in daemon.log)


def test_killed_tegrastats_comes_back(start):
    """SIGKILL of tegrastats during a run: telemetry is back by itself, and the run goes on."""
    daemon = start(short(3))
    daemon.wait_for(lambda: daemon.json("api/v1/runs")["active"])
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)
    # On a busy machine its first line may come too late, and it has been restarted once already.
    victim = daemon.wait_for(lambda: daemon.child("simulate"))
    restarts = daemon.metric("tegrascope_source_restarts_total")
    os.kill(victim, signal.SIGKILL)
    daemon.wait_for(lambda: daemon.child("simulate") not in (None, victim))
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_restarts_total") > restarts)
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)
    (run, *_) = daemon.wait_for(lambda: daemon.runs(outcome="ok"))
    assert run["inferences"] > 0


def test_killed_worker_fails_its_run_only(start):
    """SIGKILL of a worker during a run: that run is failed, and the next one is good."""
    daemon = start(short(2))
    daemon.wait_for(lambda: daemon.runs(outcome="ok"))

    def kill_worker() -> "list[dict[str, object]]":
        """Return the run whose worker was killed; a run that ended meanwhile takes no harm."""
        if not daemon.runs(outcome="failed") and daemon.json("api/v1/runs")["active"]:
            worker = daemon.child("worker")
            if worker is not None:
                os.kill(worker, signal.SIGKILL)
        return daemon.runs(outcome="failed")

    failed = daemon.wait_for(kill_worker)[0]
    assert "signal 9" in failed["reason"]

    def is_followed_by_a_good_one() -> bool:
        runs = daemon.runs()
        after = runs[: [run["run_id"] for run in runs].index(failed["run_id"])]
        return "ok" in {run["outcome"] for run in after}

    daemon.wait_for(is_followed_by_a_good_one)


def test_killed_daemon_loses_no_run(start):
    """SIGKILL of the daemon during a run: the next one has every earlier run, and that one too."""
    config = short(600) + QUICK
    first = start(config)
    first.wait_for(lambda: len(first.runs(outcome="ok")) >= 2)
    before = {run["run_id"] for run in first.runs(outcome="ok")}
    active = first.wait_for(lambda: first.json("api/v1/runs")["active"].get("cpu"))
    orphans = first.wait_for(
        lambda: None not in (both := [first.child("worker"), first.child("simulate")]) and both
    )
    first.stop(signal.SIGKILL)
    second = start(config)
    runs = {run["run_id"]: run for run in second.wait_for(second.runs)}
    assert before <= set(runs)
    assert runs[active]["outcome"] == "failed"
    assert "daemon ended" in runs[active]["reason"]
    assert all(runs[run_id]["outcome"] == "ok" for run_id in before)
    # A worker ends with its input, and tegrastats without a reader: both are gone.
    second.wait_for(lambda: not any(map(is_running, orphans)))


def test_sigterm_cancels_the_run_in_flight(start):
    """SIGTERM ends in under three seconds; the run in flight is recorded as cancelled."""
    config = short(600).replace("every: 3s", "every: 1h")  # no second run waits behind it
    daemon = start(config)
    active = daemon.wait_for(lambda: daemon.json("api/v1/runs")["active"])["cpu"]
    daemon.wait_for(lambda: daemon.metric("tegra_inferences_total"))
    children = list(daemon.children().values())
    assert daemon.stop() < 3
    assert daemon.process.returncode == 0
    assert not any(map(is_running, children))
    again = start(config)
    (run,) = again.wait_for(again.runs)
    assert (run["run_id"], run["outcome"]) == (active, "cancelled")
    assert run["inferences"] > 0


def test_wedged_source_never_blocks_a_scrape(start, tmp_path):
    """With tegrastats frozen the page still answers, says so, and shows no stale value."""
    program, frozen = tmp_path / "tegrastats", tmp_path / "frozen"
    program.write_text(
        f"#!/bin/sh\nwhile [ -e {frozen} ]; do sleep 0.1; done\n"
        f'exec {sys.executable} -m tegrascope simulate "$@"\n'
    )
    program.chmod(0o755)
    daemon = start(f"telemetry: {{interval: 500ms, tegrastats: {{command: {program}}}}}")
    daemon.wait_for(lambda: daemon.metric("tegra_rail_power_watts"))
    frozen.touch()  # for those that are started in its place
    if (victim := daemon.child("simulate")) is not None:
        os.kill(victim, signal.SIGSTOP)
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 0)
    assert daemon.metric("tegra_rail_power_watts") is None
    assert "no fresh sample from tegrastats" in daemon.get("readyz")


def test_missing_tegrastats_is_reported_and_waited_for(start):
    """Without tegrastats the daemon serves all the same and says what to do."""
    daemon = start("telemetry: {tegrastats: {command: /nonexistent/tegrastats}}")
    assert daemon.get("healthz") == "ok\n"
    ready = daemon.wait_for(lambda: "not found" in (told := daemon.get("readyz")) and told)
    assert "/nonexistent/tegrastats" in ready
    assert daemon.metric("tegrascope_source_up") == 0


def test_missing_backend_is_unavailable_and_telemetry_goes_on(start):
    """A lane whose library is missing has a run that says so, and nothing else stops."""
    daemon = start(
        "telemetry: {source: simulator, interval: 100ms}\n"
        "workloads: [{name: a, model: 'builtin:mobilenet', device: dla0, every: 60s}]"
    )
    (run,) = daemon.wait_for(daemon.runs)
    assert run["outcome"] == "skipped"
    assert (run["skip_reason"], bool(run["reason"])) == ("unavailable", True)
    assert daemon.metric('tegrascope_runs_skipped_total{reason="unavailable"}') == 1
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)


def test_reload_takes_a_good_file_and_refuses_a_bad_one(start):
    """SIGHUP with a bad file changes nothing and says why; a good one comes into force."""
    daemon = start("telemetry: {source: simulator, interval: 100ms}")
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up"))
    daemon.config.write_text("telemetry: {source: simulatr}")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for(lambda: any("reload refused" in line for line in daemon.log))
    daemon.wait_for(lambda: any("tegrascope.yaml:1" in line for line in daemon.log))
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)
    daemon.config.write_text(
        "telemetry: {source: simulator, interval: 100ms}\n"
        "workloads: [{name: new, model: 'builtin:mobilenet', device: cpu, count: 5, baseline: 0s,"
        " warm_up: 0s, every: 60s}]"
    )
    daemon.process.send_signal(signal.SIGHUP)
    (run,) = daemon.wait_for(lambda: daemon.runs(workload="new"))
    assert run["inferences"] == 5


def test_run_on_demand_needs_the_token(start, tmp_path):
    """A workload without a schedule runs when it is asked for by someone who may."""
    daemon = start(
        "telemetry: {source: simulator, interval: 100ms}\n"
        "workloads: [{name: asked, model: 'builtin:mobilenet', device: cpu, count: 5,"
        " baseline: 0s, warm_up: 0s}]"
    )

    def post(token: str, document: object) -> "tuple[int, dict[str, str]]":
        request = urllib.request.Request(
            daemon.url + "api/v1/runs",
            json.dumps(document).encode(),
            {"Authorization": f"Bearer {token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    assert post("wrong", {"workload": "asked"})[0] == 401
    path = tmp_path / "state" / "token"
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text().strip()
    assert post(token, ["asked"])[0] == 400
    status, answer = post(token, {"workload": "none"})
    assert status == 404
    assert "configured are: asked" in answer["error"]
    status, answer = post(token, {"workload": "asked"})
    assert status == 202
    run = daemon.wait_for(
        lambda: "error" not in (one := daemon.json(f"api/v1/runs/{answer['run_id']}")) and one
    )
    assert run["outcome"] == "ok"


def test_samples_are_served_in_pages(start):
    """The API gives samples oldest first, and goes on from the last one's time."""
    daemon = start("telemetry: {source: simulator, interval: 50ms}")
    daemon.wait_for(lambda: (daemon.metric("tegrascope_samples_total") or 0) > 20)
    first = daemon.json("api/v1/samples?limit=5")["samples"]
    times = [sample["time"] for sample in first]
    assert len(times) == 5
    assert times == sorted(times)
    assert first[0]["values"]["rails.VDD_GPU_SOC.instant_watts"] > 0
    more = daemon.json(f"api/v1/samples?since={times[-1]:.6f}&limit=5")["samples"]
    assert more[0]["time"] >= times[-1]
    assert "limit is a number" in daemon.json("api/v1/samples?limit=x")["error"]
    assert daemon.json("api/v1/runs/none")["error"].startswith("no finished run ")


def test_taken_port_is_one_line(start, tmp_path):
    """A second daemon on the same address ends with one line, and no traceback."""
    first = start("telemetry: {source: simulator}")
    address = first.url.removeprefix("http://").rstrip("/")
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "tegrascope",
            "run",
            "--demo",
            "--listen",
            address,
            "--state-dir",
            str(tmp_path / "other"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 1
    assert told.stderr.count("\n") == 1
    assert "--listen HOST:PORT" in told.stderr


def test_application_marks_its_own_inference(start, tmp_path):
    """A window of the Python client is a run like any other: paired, stored, counted, shown."""
    daemon = start(
        "telemetry: {source: simulator, interval: 103ms}\n"
        "workloads: [{name: detector, backend: window, device: dla0}]\n"
    )
    daemon.wait_for(lambda: daemon.get("readyz") == "ready\n")
    where = {"url": daemon.url, "token_file": tmp_path / "state" / "token"}
    done = 0

    def mark() -> "dict[str, object]":
        nonlocal done
        with tegrascope.window("detector", device="dla0", strict=True, **where) as marks:
            daemon.wait_for(lambda: daemon.json("api/v1/runs")["active"])
            for _ in range(20):
                with marks.inference():
                    time.sleep(0.02)
        done += 1
        (run, *_) = daemon.wait_for(
            lambda: len(found := daemon.runs(workload="detector")) == done and found
        )
        assert (run["outcome"], run["inferences"], run["latency"]["count"]) == ("ok", 20, 20)
        assert run["latency"]["p50_seconds"] >= 0.02
        return run

    assert until_measured(mark)["energy"]["gross_joules"] > 0
    # The metrics follow the record of a run.
    total = 'tegra_inferences_total{device="dla0"'
    daemon.wait_for(lambda: daemon.metric(total) == 20 * done)
    assert daemon.metric('tegra_inference_latency_seconds_count{device="dla0"') == 20 * done
    with pytest.raises(UserError, match="configured for dla0"):
        tegrascope.window("detector", device="gpu", strict=True, **where).start()


def test_window_of_a_dead_daemon_is_failed_and_the_next_daemon_takes_over(start, tmp_path):
    """SIGKILL of the daemon inside a block: that window is failed, and later ones are good."""
    config = (
        "telemetry: {source: simulator, interval: 103ms}\n"
        "workloads: [{name: detector, backend: window, device: dla0}]\n"
    )
    first = start(config)
    where = {"url": first.url, "token_file": tmp_path / "state" / "token"}
    with tegrascope.window("detector", period=0.3, **where) as marks:
        active = first.wait_for(lambda: first.json("api/v1/runs")["active"])["detector"]
        first.stop(signal.SIGKILL)
        marks.count()
    second = start(config)
    (run,) = second.wait_for(lambda: second.runs(workload="detector"))
    assert (run["run_id"], run["outcome"]) == (active, "failed")
    assert "daemon ended" in run["reason"]


def test_exec_is_measured_by_the_daemon(start, tmp_path):
    """A program in front of a daemon is a run of it; one that it does not know is measured here."""
    daemon = start(
        "telemetry: {source: simulator, interval: 103ms}\n"
        "workloads: [{name: job, backend: window, device: dla0, batch: 2}]\n"
    )
    daemon.wait_for(lambda: daemon.get("readyz") == "ready\n")

    def execute(workload: str, *argv: str) -> "subprocess.CompletedProcess[str]":
        where = ("--url", daemon.url, "--token-file", str(tmp_path / "state" / "token"))
        command = (sys.executable, "-m", "tegrascope", "exec", "--workload", workload, *where)
        return subprocess.run(
            [*command, *argv], capture_output=True, text=True, check=False, timeout=180
        )

    def sleep() -> "dict[str, object]":
        told = execute("job", "--inferences", "7", "--", "sh", "-c", "sleep 0.5; exit 5")
        assert told.returncode == 5
        run = daemon.runs(workload="job")[0]
        assert run["run_id"] in told.stderr
        assert (run["outcome"], run["inferences"], run["batch"]) == ("failed", 0, 2)
        assert "measured here" not in told.stderr
        return run

    assert until_measured(sleep)["energy"]["gross_joules"] > 0
    assert re.search(r"^tegra_inferences_total\{.*\} 0\.0$", daemon.get("metrics"), re.MULTILINE)

    known = len(daemon.runs(workload="job"))
    told = execute("job", "--", "no-such-program")
    assert (told.returncode, len(told.stderr.splitlines())) == (127, 1)
    missing = daemon.wait_for(lambda: daemon.runs(workload="job")[known:] and daemon.runs()[0])
    assert "was not found" in missing["reason"]

    noted = tmp_path / "noted.json"
    program = (sys.executable, str(GST_PROGRAM), str(noted), "25000", "0.5")
    told = execute("job", "--gst", "nv", "--", *program)
    assert told.returncode == 0, told.stderr
    assert re.search(r"inferences +25000\n", told.stderr), told.stderr
    run = daemon.runs(workload="job")[0]
    # The daemon takes at most 10,000 times per window: every third is sent.
    assert (run["inferences"], run["latency"]["count"]) == (25000, 8334)
    begin_ns = run["phases"]["steady"]["begin_ns"]
    assert 0 <= begin_ns - json.loads(noted.read_text())[0] < 20_000_000

    told = execute("ghost", "--", "true")
    assert told.returncode == 0
    assert "configured are: job" in told.stderr

    told = execute("job", "--", "sh", "-c", f"kill -9 {daemon.process.pid}; sleep 0.2; exit 6")
    assert told.returncode == 6
    assert "job is not measured: no tegrascope daemon answers" in told.stderr


def test_program_of_a_workload_is_run_and_counted(start, tmp_path):
    """A program as a workload: run by its lane, counted by its own word, failed by its status."""
    program = tmp_path / "infer"
    program.write_text("#!/bin/sh\necho tegrascope: inferences=250\nsleep 0.5\nexit $1\n")
    program.chmod(0o755)
    daemon = start(
        "telemetry: {source: simulator, interval: 103ms}\n"
        "workloads:\n"
        f"- {{name: good, command: {program} 0, device: dla0, count: 500, baseline: 0,"
        " every: 3s}\n"
        f"- {{name: bad, command: {program} 9, device: external, baseline: 0, every: 1h}}\n"
    )
    run = daemon.wait_for(lambda: measured_run(daemon, "good"))
    assert (run["outcome"], run["backend"], run["inferences"]) == ("ok", "command", 500)
    assert "model" not in run
    assert run["energy"]["gross_joules"] > 0
    assert daemon.metric('tegra_inferences_total{device="dla0"') % 500 == 0
    (run,) = daemon.wait_for(lambda: daemon.runs(workload="bad"))
    assert (run["outcome"], run["device"]) == ("failed", "external")
    assert "ended with status 9" in run["reason"]


def test_less_than_root_sees_is_said_and_never_zero(start):
    """Tegrastats without root: ready, with a note and a metric, and no series for what is lost."""
    program = f'["{sys.executable}", "-m", "tegrascope", "simulate", "--unprivileged"]'
    daemon = start(f"telemetry: {{interval: 100ms, tegrastats: {{command: {program}}}}}")
    told = daemon.wait_for(lambda: (said := daemon.get("readyz")).startswith("ready") and said)
    assert "tegrastats shows no DLA, EMC and engines" in told
    missing = 'tegrascope_root_fields_missing{source="tegrastats"} 1.0'
    page = daemon.wait_for(lambda: missing in (said := daemon.get("metrics")) and said)
    assert not any(name in page for name in ("tegra_dla_active{", "tegra_emc_frequency_hertz{"))
