"""Three boards under one Prometheus, so that every metric is exported by some of them.

A simulated AGX Orin runs one model on its GPU and on its DLA, which are simulated too. A second one
has what the simulator lacks: the kernel's files, NVML beside its lines, the trace of the DLA's
driver, an engine that tells where its layers run, a schedule, runs that fail. The third is a
desktop GPU. A fourth never answers.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemons import Daemon
from tests.fakes.board_tree import AGX_ORIN, sensor, set_powered, write_board
from tests.fakes.memory_worlds import BOARDS, make_world, write_world
from tests.fakes.tracefs import tracing
from tests.monitoring.prometheus import Monitoring, Prometheus, scrape_config, wait_for

ROOT = Path(__file__).parents[2]
FAKES = ROOT / "tests/fakes"
RULES = sorted((ROOT / "grafana/prometheus/rules").glob("*.yml"))
HERTZ = 31_250_000

# Long enough for an energy of one inference: 10 s, 100 samples, 200 inferences.
DURATION_MS = 10_500
SIMULATED = """
telemetry:
  {source: simulator, interval: 60ms, processes: {top: 3},
   simulator: {board: agx-orin-64gb, seed: 1}}
workloads:
- &run {name: resnet50-gpu, model: resnet50, backend: simulated, device: gpu,
   unit: frame, warm_up: 100ms, baseline: 1s, duration: DURATIONms, deadline: 0.1ms}
- {<<: *run, name: resnet50-dla0, device: dla0}
- {name: counted, unit: token, device: external, baseline: 0s, duration: DURATIONms,
   command: [sh, -c, "sleep 0.7; echo tegrascope: inferences=300; echo tegrascope: tokens=900"]}
""".replace("DURATION", str(DURATION_MS))


@dataclass(frozen=True)
class Fleet:
    """What the dashboards are asked of.

    Attributes:
        prometheus: It scrapes all of them each second, and evaluates the shipped rules.
        simulated: ``instance`` of the board with the DLA and GPU runs.
        equipped: ``instance`` of the board with all the rest.
        desktop: ``instance`` of the desktop GPU.
        lost: ``instance`` of the target that does not answer.
        run_ids: Of the good runs.
    """

    prometheus: Prometheus
    simulated: str
    equipped: str
    desktop: str
    lost: str
    run_ids: frozenset[str]


def _equipped(folder: Path, traced: Path) -> str:
    """Write what a fully equipped board has; return its configuration."""
    tree = write_board(folder / "board", {**AGX_ORIN, **sensor("orin-nano")})
    battery = tree / "sys/class/power_supply/BAT0"
    battery.mkdir(parents=True)
    (battery / "type").write_text("Battery\n")
    (battery / "capacity").write_text("80\n")
    trtexec = folder / "trtexec"
    trtexec.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKES / "trtexec_fake.py"} 10.3 "$@"\n')
    trtexec.chmod(0o755)
    noisy = f'echo "no line of tegrastats"; exec {sys.executable} -m tegrascope simulate "$@"'
    reader = [sys.executable, "-m", "tegrascope.collectors.dla.reader", "--root", str(traced)]
    write_world(make_world(BOARDS[-3], seed=1), folder / "memory")
    memory = [
        *(sys.executable, "-m", "tegrascope.collectors.processes.memory_reader"),
        *("--root", str(folder / "memory")),
    ]
    placed: dict[str, Any] = {
        "model": "builtin:mobilenet", "backend": "trtexec", "trtexec": str(trtexec),
        "warm_up": "50ms", "baseline": "200ms", "duration": "500ms", "every": "4s",
    }  # fmt: skip
    settings = {
        "telemetry": {
            "interval": "103ms",
            "tegrastats": {"command": ["sh", "-c", noisy, "sh"]},
            "sysfs": str(tree),
            "dla_trace": {"command": reader},
            "memory": {"command": memory},
            "processes": {"top": 3},
            "nvml": {"beside": True},
        },
        "limits": {"power_watts": 40, "dla_busy_ratio": {"dla0": 0.2}},
        "workloads": [
            {"name": "placed-gpu", "device": "gpu", "precision": "fp16", **placed},
            {"name": "placed-dla0", "device": "dla0", **placed},
            {"name": "crowded", "device": "dla0", "overlap": "skip", **placed, "offset": "100ms"},
            {"name": "fails", "command": "false", "device": "cpu", "baseline": "0s", "every": "5s"},
        ],
    }
    return yaml.safe_dump(settings)


@contextlib.contextmanager
def _living(tree: Path) -> Iterator[None]:
    """Let the kernel's counters of a board go on: powered time, and a throttling now and then."""
    ended = threading.Event()
    events = tree / "sys/class/hwmon/hwmon3/oc1_event_cnt"

    def live() -> None:
        for moment in range(10**9):
            if ended.wait(0.2):
                return
            for core in (0, 1):
                set_powered(tree, core, 100 * moment)
            if moment % 10 == 0:
                events.write_text(f"{moment // 10}\n")

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def _run_with_energy(daemon: Daemon, state: Path, workload: str) -> None:
    """Run a workload until its energy is told.

    A machine that is too busy has it withheld: too few samples came in the time, or they kept step
    with the inferences. So each further run is longer, until the samples that are needed come.
    """
    milliseconds = DURATION_MS
    for number in range(1, 8):
        run = _run_now(daemon, state, workload, number)
        assert run["outcome"] == "ok", run
        if (run.get("energy") or {}).get("gross_joules_per_inference") is not None:
            return
        milliseconds = milliseconds * 3 // 2
        daemon.config.write_text(SIMULATED.replace(f"{DURATION_MS}ms", f"{milliseconds}ms"))
        known = len(daemon.log)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(lambda known=known: any("reloaded" in line for line in daemon.log[known:]))
    raise AssertionError(run["quality"])


def _run_now(daemon: Daemon, state: Path, workload: str, number: int) -> dict[str, Any]:
    """Run a workload, and return the record of its so many-th run."""
    token = wait_for(lambda: (state / "token").exists() and (state / "token").read_text().strip())
    request = urllib.request.Request(
        daemon.url + "api/v1/runs",
        json.dumps({"workload": workload}).encode(),
        {"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 202
    done = daemon.wait_for(
        lambda: (found := daemon.runs(workload=workload))[number - 1 :] and found, 400
    )
    return dict(done[0])


@contextlib.contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """Start all of it, and wait until there is something to be seen of everything."""
    with contextlib.ExitStack() as held:

        def start(name: str, config: str, **environment: str) -> Daemon:
            (folder / name / "state").mkdir(parents=True, exist_ok=True)
            path = folder / name / "tegrascope.yaml"
            path.write_text(config)
            with pytest.MonkeyPatch.context() as patch:
                for key, value in environment.items():
                    patch.setenv(key, value)
                made = Daemon(path, folder / name / "state")
            held.callback(made.stop, 9)
            return made

        traced = held.enter_context(tracing(folder / "traced", 0.1, 0.06, HERTZ, loses=True))
        (folder / "equipped").mkdir()
        equipment = _equipped(folder / "equipped", traced)
        held.enter_context(_living(folder / "equipped/board"))
        paths = os.pathsep.join((str(FAKES), str(ROOT)))
        throttled = json.dumps({"events": ([0] * 7 + [0x48] * 3) * 2000})
        desktop = start(
            "desktop",
            "telemetry: {source: nvml, interval: 103ms}",
            PYTHONPATH=paths,
            FAKE_NVML=throttled,
        )
        used = json.dumps({"processes": {str(os.getpid()): 1 << 30}})
        equipped = start("equipped", equipment, PYTHONPATH=paths, FAKE_NVML=used)
        simulated = start("simulated", SIMULATED)
        # It is held, so that nobody else gets its port, and does not listen.
        closed = held.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))
        lost = f"127.0.0.1:{closed.getsockname()[1]}"
        monitoring = Monitoring(folder / "monitoring")
        held.callback(monitoring.stop)
        daemons = (simulated, equipped, desktop)
        config = scrape_config(
            *(daemon.address for daemon in daemons),
            lost,
            rule_files=[str(path) for path in _hasty(folder)],
        )
        config["scrape_configs"][0]["static_configs"][0]["labels"] = {"site": "hall-1"}
        prometheus = monitoring.prometheus(config)
        state = folder / "simulated/state"
        for name in ("resnet50-gpu", "resnet50-dla0", "counted"):
            _run_with_energy(simulated, state, name)
        for name in ("placed-gpu", "placed-dla0"):
            equipped.wait_for(lambda name=name: equipped.runs(workload=name, outcome="ok"))
        wait_for(lambda: _has_seen_all(prometheus))
        yield Fleet(
            prometheus,
            *(daemon.address for daemon in daemons),
            lost,
            frozenset(run["run_id"] for daemon in daemons for run in daemon.runs()),
        )


def _hasty(folder: Path) -> list[Path]:
    """Return the shipped rules, evaluated each second in place of each minute."""
    copies = []
    for path in RULES:
        rules = yaml.safe_load(path.read_text(encoding="utf-8"))
        for group in rules["groups"]:
            group.pop("interval", None)
        copies.append(folder / path.name)
        copies[-1].write_text(yaml.safe_dump(rules), encoding="utf-8")
    return copies


def _has_seen_all(prometheus: Prometheus) -> bool:
    """Say whether both runs and what came after them have been scraped, twice at least."""
    return all(
        prometheus.query(query)
        for query in (
            "count(count_over_time(tegra_inference_last_run_energy_joules_per_inference"
            '{workload=~"resnet50-.*",kind="gross"}[30s]) >= 3) == 2',
            'count(count_over_time(tegra_inference_layers{placement="dla"}[30s]) >= 3) >= 2',
            "instance_workload:tegra_inference_energy_joules_per_unit:rate1h > 0",
            "increase(tegra_throttle_events_total[1m]) > 0",
            'increase(tegra_inference_runs_total{outcome="failed"}[1h]) > 0',
            "increase(tegrascope_runs_skipped_total[1h]) >= 0",
            'tegrascope_source_up{source="ftrace"} == 1',
        )
    )
