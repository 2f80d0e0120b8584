"""Runs tools on worlds: on recorded logs at once, on live worlds in real time.

Each tool runs in an environment of its own, with the versions of ``meters.py``, and each world in
processes of its own. Live worlds need ``cc``; worlds of sysfs need ``unshare`` as well, because
their tools see a ``/sys`` of their own.
"""

import contextlib
import csv
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from . import trapezoid
from .files import SERIES, write_world
from .meters import BY_NAME, Meter
from .readings import sysfs_series
from .scoring import Answer
from .worlds import BOARDS, GPUS, Spec, World, make_world

_HERE = Path(__file__).parent
_DRIVERS, _STAND_INS = _HERE / "drivers", _HERE / "standin"
_CHECKOUT = _HERE.parents[1]
_READY_SECONDS = 120.0
_ANSWER_SECONDS = 60.0
_LOG_SECONDS = 300.0
# Environments are downloaded.
_INSTALL_SECONDS = 1800.0
# A tool prints three lines that count. One that prints more of them waits, and takes no memory.
_MOST_LINES, _LONGEST_LINE = 100, 1 << 16
_STARTS = ("ready", "marks ", "{")
# `exec` reads telemetry so long before the work may begin.
_EXEC_LEAD_SECONDS = 0.5
_POLL_SECONDS = 0.002
_LIVE_INTERVAL_MS = 100
_LONGEST_REASON = 160
_ETC = ("ld.so.cache", "passwd", "group", "hosts", "nsswitch.conf", "localtime")
_SENSOR = "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
_MILLIVOLTS = 5000
_PROGRAMS = {"sysfs": ("tegrastats", "uname"), "nvml": ("nvidia-smi",)}


class MissingError(Exception):
    """A program that live worlds need is not installed, or cannot be."""


class Workshop:
    """Where environments, stand-ins and worlds are kept, below one directory.

    >>> workshop = Workshop(Path("build/energy_truth"))  # doctest: +SKIP
    >>> workshop.prepare([BY_NAME["zeus"]], {"nvml"})  # doctest: +SKIP
    """

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder = folder.absolute()
        self._python = python

    @property
    def worlds(self) -> Path:
        """The directory of the worlds' files."""
        return self.folder / "worlds"

    @property
    def library(self) -> Path:
        """The directory of the stand-in library."""
        return self.folder / "standin"

    def python_of(self, meter: Meter) -> Path:
        """Return the interpreter of a tool's environment."""
        return self.folder / "venvs" / meter.name / "bin" / "python"

    def prepare(self, meters: Iterable[Meter], kinds: set[str]) -> None:
        """Install the tools that are not there in their version, and build the stand-ins."""
        for meter in meters:
            if kinds & set(meter.drivers):
                self._install(meter)
        if "nvml" in kinds:
            self._install(BY_NAME["trapezoid"])
        if kinds & {"sysfs", "nvml"}:
            self.build_stand_ins()
        if "sysfs" in kinds and shutil.which("unshare") is None:
            raise MissingError("worlds of sysfs need unshare (util-linux): apt install util-linux")

    def _install(self, meter: Meter) -> None:
        python = self.python_of(meter)
        stamp = python.parents[1] / "requirements.txt"
        wanted = "\n".join(meter.requirements) + "\n"
        if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
            return
        print(f"installs {', '.join(meter.requirements)}", file=sys.stderr)
        shutil.rmtree(python.parents[1], ignore_errors=True)
        _prepare([self._python, "-m", "venv", str(python.parents[1])])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _prepare([*pip, *meter.requirements])
        stamp.write_text(wanted, encoding="ascii")

    def build_stand_ins(self) -> None:
        """Compile the library of NVML and the program of the marks."""
        compiler = shutil.which("cc")
        if compiler is None:
            raise MissingError("live worlds need a C compiler: apt install gcc libc6-dev")
        self.library.mkdir(parents=True, exist_ok=True)
        shared = ["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
        library = self.library / "libnvidia-ml.so.1"
        for source, output, options in (
            ("nvml.c", library, shared),
            ("marks.c", self.library / "marks", []),
        ):
            _prepare([compiler, "-O2", *options, "-o", str(output), str(_STAND_INS / source)])

    def nvml_environment(self, world: World) -> dict[str, str]:
        """Return what makes a program see the GPU of a world."""
        return {
            "ENERGY_TRUTH_SERIES": str(self.worlds / world.spec.name / SERIES),
            "LD_LIBRARY_PATH": str(self.library),
        }

    def nvml_packages(self) -> Path:
        """Return the directory with the module ``pynvml``, for the project's own interpreter."""
        (packages,) = self.python_of(BY_NAME["trapezoid"]).parents[1].glob("lib/*/site-packages")
        return packages


def _prepare(command: list[str]) -> None:
    """Run a program that has to succeed; what it prints is seen."""
    try:
        subprocess.run(command, check=True, timeout=_INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingError(f"nothing can be measured: {error}") from None


def answer_of_log(workshop: Workshop, meter: Meter, world: World) -> Answer:
    """Run a tool on a recorded log."""
    folder, truth = workshop.worlds / world.spec.name, world.truth_joules
    try:
        if meter.name == "trapezoid":
            return Answer(truth, trapezoid.joules_of(folder))
        if meter.is_ours:
            return _correlated(folder, truth)
        script = str(_DRIVERS / meter.drivers["log"])
        done = _run([str(workshop.python_of(meter)), script, str(folder)])
        if done.returncode:
            return Answer(truth, reason=_last_line(done.stderr))
        return _answered(truth, json.loads(done.stdout))
    except _FAILURES as error:
        return _failed(truth, error)


def _run(
    command: list[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_LOG_SECONDS, env=environment
    )


# A tool that fails has no figure; the other tools go on.
_FAILURES = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError),
    subprocess.SubprocessError,
)


def _answered(truth: float, found: dict[str, Any]) -> Answer:
    """Return the answer that a driver printed."""
    joules = found.get("joules")
    if joules is not None:
        joules = float(joules)
    return Answer(truth, joules, reason=str(found.get("reason", ""))[:_LONGEST_REASON])


def _failed(truth: float, error: Exception) -> Answer:
    return Answer(truth, reason=f"{type(error).__name__}: {error}"[:_LONGEST_REASON])


def _correlated(folder: Path, truth: float) -> Answer:
    output = folder / "tegrascope.csv"
    command = [sys.executable, "-m", "tegrascope", "correlate", "-o", str(output)]
    command += ["--telemetry", str(folder / "tegrastats.log"), "--runs", str(folder / "runs.csv")]
    done = _run(command, _own_environment())
    if done.returncode:
        return Answer(truth, reason=_last_line(done.stderr))
    with output.open(encoding="utf-8") as table:
        (row,) = csv.DictReader(table)
    energy = {
        "gross_joules": row.get("energy.gross_joules"),
        "gross_joules_per_inference": row.get("energy.gross_joules_per_inference"),
        "gross_interval": {
            "low": row.get("energy.gross_interval.low"),
            "high": row.get("energy.gross_interval.high"),
        },
    }
    reason = row.get("skip_reason") or row.get("quality") or ""
    return published(truth, energy, reason)


def published(truth: float, energy: dict[str, Any] | None, reason: str) -> Answer:
    """Return the figure of our own report.

    It is published if the report has energy per inference: without that, the run has no headline,
    and the flags say why.
    """
    if not energy or not energy.get("gross_joules_per_inference"):
        return Answer(truth, reason=reason or "no energy")
    interval = energy.get("gross_interval") or {}
    low, high = interval.get("low"), interval.get("high")
    return Answer(
        truth,
        float(energy["gross_joules"]),
        float(low) if low else None,
        float(high) if high else None,
        reason,
    )


def _own_environment() -> dict[str, str]:
    """Return the environment in which ``python -m tegrascope`` is this checkout."""
    return {**os.environ, "PYTHONPATH": str(_CHECKOUT / ".dev")}


class _Program:
    """A running tool, and the lines that it has printed."""

    def __init__(self, command: Sequence[str | Path], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue(_MOST_LINES)
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in iter(partial(self.process.stdout.readline, _LONGEST_LINE), ""):
            if line.startswith(_STARTS):
                self._lines.put(line.strip())
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in iter(partial(self.process.stderr.readline, _LONGEST_LINE), ""):
            self._errors.append(line)
            del self._errors[:-50]

    def line(self, until: float, start: str) -> str | None:
        """Return the next line that begins so, or ``None`` at the end or the deadline."""
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return None
            if line is None or line.startswith(start):
                return line

    @property
    def complaint(self) -> str:
        """The last line of its errors."""
        self._readers[1].join(timeout=1)
        return _last_line("".join(self._errors))

    def end(self) -> None:
        """End it and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[-1].strip() if lines else "no output")[:_LONGEST_REASON]


class LiveWorld:
    """One live world while it is played for some tools at the same time.

    >>> LiveWorld(workshop, world).play([BY_NAME["zeus"]])  # doctest: +SKIP
    """

    def __init__(self, workshop: Workshop, world: World) -> None:
        self._workshop, self._world = workshop, world
        self._stages = workshop.folder / "stages" / world.spec.name

    def play(self, meters: Sequence[Meter]) -> dict[str, Answer]:
        """Play the world once in real time and return the answer of each tool."""
        shutil.rmtree(self._stages, ignore_errors=True)
        self._stages.mkdir(parents=True)
        origin = self._stages / "origin"
        runs = {
            meter.name: LiveRun(self._workshop, self._world, meter, self._stages / meter.name)
            for meter in meters
        }
        try:
            for run in runs.values():
                run.start(origin)
            until = time.monotonic() + _READY_SECONDS
            for run in runs.values():
                run.wait_until_ready(until)
            # All tools are set up: none of them disturbs another one from here on.
            origin_ns = time.monotonic_ns() + 200_000_000
            fresh = self._stages / "origin.new"
            fresh.write_text(str(origin_ns), encoding="ascii")
            fresh.replace(origin)
            with ThreadPoolExecutor(len(runs)) as pool:
                found = pool.map(lambda run: run.finish(origin_ns), runs.values())
                return dict(zip(runs, found, strict=True))
        finally:
            for run in runs.values():
                run.end()


class LiveRun:
    """One tool on one live world; the world waits with its work until this tool measures.

    >>> run = LiveRun(workshop, world, BY_NAME["zeus"], stage)  # doctest: +SKIP
    """

    def __init__(self, workshop: Workshop, world: World, meter: Meter, stage: Path) -> None:
        self._workshop, self._world, self._meter, self._stage = workshop, world, meter, stage
        self._release = stage / "release"
        self._sensor = stage / "sys" / _SENSOR
        self._program: _Program | None = None
        self._problem = ""

    def start(self, origin: Path) -> None:
        """Start the tool, which sets itself up; ours starts with the work."""
        (self._stage / "bin").mkdir(parents=True)
        for name in _PROGRAMS[self._world.spec.kind]:
            shutil.copy(_STAND_INS / name, self._stage / "bin" / name)
        if self._world.spec.kind == "sysfs":
            self._set_up_sysfs()
        self._environment = self._make_environment(origin)
        if self._meter.is_ours:
            return
        driver = _DRIVERS / self._meter.drivers[self._world.spec.kind]
        python = self._workshop.python_of(self._meter)
        try:
            self._program = _Program(self._inside([python, driver]), self._environment)
        except OSError as error:  # the other tools go on
            self._problem = str(error)

    def wait_until_ready(self, until: float) -> None:
        """Wait for the tool; one that ends before it is ready has no figure."""
        if self._program is not None and self._program.line(until, "ready") is None:
            self._problem = self._program.complaint

    def finish(self, origin_ns: int) -> Answer:
        """Return the answer of the tool, after the world has been played."""
        if self._problem:
            return Answer(self._world.truth_joules, reason=self._problem)
        is_over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            playing: Future[None] | None = None
            if self._world.spec.kind == "sysfs":
                playing = pool.submit(self._move_registers, origin_ns, is_over)
            try:
                answer = self._run_ours(origin_ns) if self._meter.is_ours else self._answer()
                is_over.set()
                if playing is not None:
                    # Registers that no longer moved would be a fault of the tool in its score.
                    playing.result()
                return answer
            except _FAILURES as error:
                return _failed(self._world.truth_joules, error)
            finally:
                is_over.set()

    def end(self) -> None:
        """End the tool and all that it has started."""
        if self._program is not None:
            self._program.end()

    def _make_environment(self, origin: Path) -> dict[str, str]:
        world = self._world
        environment = {
            **os.environ,
            "ENERGY_TRUTH_ORIGIN": str(origin),
            "ENERGY_TRUTH_RELEASE": str(self._release),
            "ENERGY_TRUTH_BEGIN": repr(world.begin),
            "ENERGY_TRUTH_END": repr(world.end),
            "ENERGY_TRUTH_INTERVAL_MS": str(_LIVE_INTERVAL_MS),
            "ENERGY_TRUTH_TEGRASTATS": str(self._stage / "tegrastats.pid"),
            "PATH": f"{self._stage / 'bin'}:{os.environ['PATH']}",
        }
        environment.pop("PYTHONPATH", None)
        if world.spec.kind == "nvml":
            environment |= self._workshop.nvml_environment(world)
        return environment

    def _inside(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Return a command that runs where the sensors of the world are."""
        if self._world.spec.kind == "nvml":
            return list(command)
        return ["unshare", "-Urm", "sh", _STAND_INS / "enter.sh", self._stage, *command]

    def _truth(self, begin_ns: int, end_ns: int) -> float:
        begin = self._world.begin
        return self._world.joules(begin, begin + (end_ns - begin_ns) / 1e9)

    def _answer(self) -> Answer:
        assert self._program is not None
        line = self._program.line(time.monotonic() + _ANSWER_SECONDS, "{")
        if line is None:
            return Answer(self._world.truth_joules, reason=self._program.complaint)
        found = json.loads(line)
        return _answered(self._truth(found["begin_ns"], found["end_ns"]), found)

    def _run_ours(self, origin_ns: int) -> Answer:
        """Run ``tegrascope exec`` around a program that works as long as the window is."""
        world, report = self._world, self._stage / "report.json"
        paths = [str(_CHECKOUT / ".dev")]
        source = "tegrastats"
        if world.spec.kind == "nvml":
            paths.append(str(self._workshop.nvml_packages()))
            source = "nvml"
        environment = self._environment | {"PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "tegrascope", "exec", "--workload", "truth"]
        command += ["--device", "gpu", "--inferences", str(world.inferences)]
        command += ["--telemetry", source, "--json", str(report), "--"]
        seconds = repr(world.end - world.begin)
        command += [str(self._workshop.library / "marks"), str(self._release), seconds]
        begin_ns = origin_ns + round((world.begin - _EXEC_LEAD_SECONDS) * 1e9)
        time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
        self._program = _Program(self._inside(command), environment)
        line = self._program.line(time.monotonic() + _ANSWER_SECONDS, "marks ")
        if line is None:
            return Answer(world.truth_joules, reason=self._program.complaint)
        self._program.process.wait(timeout=_ANSWER_SECONDS)
        _, first, last = line.split()
        content = json.loads(report.read_text(encoding="utf-8"))
        truth = self._truth(int(first), int(last))
        return published(truth, content["energy"], " ".join(content["quality"]))

    def _set_up_sysfs(self) -> None:
        """Make the trees that the tool sees as ``/sys`` and ``/etc``."""
        self._sensor.mkdir(parents=True)
        for directory in ("sys/devices", "sys/class/hwmon", "etc"):
            (self._stage / directory).mkdir(parents=True)
        (self._stage / "sys/class/hwmon/hwmon3").symlink_to(f"/sys/{_SENSOR}")
        files = {"name": "ina3221", "samples": "64"}
        files["update_interval"] = f"{self._world.sensor.seconds * 1000:.0f}"
        series = sysfs_series(self._world)
        for number, rail in enumerate(BOARDS[self._world.spec.board].rails, start=1):
            files[f"in{number}_label"] = rail.name
            files[f"in{number}_input"] = str(_MILLIVOLTS)
            files[f"curr{number}_input"] = str(series.values[f"curr{number}_input"][0])
        for name, content in files.items():
            (self._sensor / name).write_text(f"{content}\n", encoding="ascii")
        for name in _ETC:
            if (Path("/etc") / name).exists():
                shutil.copy(Path("/etc") / name, self._stage / "etc" / name)
        release = "# R36 (release), REVISION: 4.3\n"
        (self._stage / "etc/nv_tegra_release").write_text(release, encoding="ascii")

    def _move_registers(self, origin_ns: int, is_over: threading.Event) -> None:
        """Write each register when its time has come; at the begin of the work, wait for it."""
        series = sysfs_series(self._world)
        fresh = self._stage / "register.new"
        shown: dict[str, int] = {}
        for row, at in enumerate(series.times.tolist()):
            if at > self._world.begin and not self._wait_for_release(is_over):
                return
            start_ns = origin_ns
            if at > self._world.begin:
                released_ns = int(self._release.read_text(encoding="ascii"))
                start_ns = released_ns - round(self._world.begin * 1e9)
            wait_ns = start_ns + round(at * 1e9) - time.monotonic_ns()
            if is_over.wait(max(0.0, wait_ns / 1e9)):
                return
            for name, column in series.values.items():
                value = int(column[row])
                if shown.get(name) != value:
                    # A rename: no reader ever sees half of a number.
                    fresh.write_text(f"{value}\n", encoding="ascii")
                    fresh.replace(self._sensor / name)
                    shown[name] = value

    def _wait_for_release(self, is_over: threading.Event) -> bool:
        while not self._release.exists():
            if is_over.wait(_POLL_SECONDS):
                return False
        return True


def run_worlds(
    workshop: Workshop,
    chosen: Sequence[Spec],
    meters: Sequence[Meter],
    sums: dict[str, str],
    together: int = 2,
) -> dict[str, dict[str, Answer]]:
    """Run tools on worlds and return the answers by tool and world.

    Args:
        chosen: The worlds.
        meters: The tools; one that cannot read a kind of world is not run on it.
        sums: The manifest that the worlds' files have to agree with.
        together: How many worlds are played at the same time.
    """
    found: dict[str, dict[str, Answer]] = {meter.name: {} for meter in meters}

    def run(spec: Spec) -> tuple[str, dict[str, Answer]]:
        world = make_world(spec)
        write_world(world, workshop.worlds, sums)
        able = [meter for meter in meters if can_read_world(meter, spec)]
        if spec.kind == "log":
            return spec.name, {one.name: answer_of_log(workshop, one, world) for one in able}
        answers: dict[str, Answer] = {}
        for together_on_it in _rounds(spec, able):
            answers |= LiveWorld(workshop, world).play(together_on_it)
        return spec.name, answers

    with ThreadPoolExecutor(together) as pool:
        for name, answers in pool.map(run, chosen):
            print(f"{name}: {', '.join(_brief(*one) for one in answers.items())}", file=sys.stderr)
            for tool, answer in answers.items():
                found[tool][name] = answer
    return found


def _rounds(spec: Spec, meters: Sequence[Meter]) -> list[list[Meter]]:
    """Return the tools that may measure at the same time, one list after the other."""
    apart: list[Meter] = []
    if spec.kind == "nvml" and GPUS[spec.gpu].counter_seconds is None:
        apart = [meter for meter in meters if meter.polls_without_pause]
    others = [meter for meter in meters if meter not in apart]
    return [one for one in (others, apart) if one]


def can_read_world(meter: Meter, spec: Spec) -> bool:
    """Return whether a tool is run on a world."""
    if meter.is_ours or (meter.name == "trapezoid" and spec.kind == "log"):
        return True
    return spec.kind in meter.drivers


def _brief(tool: str, answer: Answer) -> str:
    if answer.error is None:
        return f"{tool} –"
    return f"{tool} {answer.error:+.1%}"
