"""The settings. Every key has a default, and an unknown key is an error."""

import os
import shlex
import time
import uuid
from collections.abc import Collection
from datetime import datetime, timezone
from importlib.util import find_spec
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    create_model,
    field_validator,
    model_validator,
)

from ...collectors.catalog import (
    BACKENDS,
    DEFAULT_SOURCE,
    LOADABLE_BACKEND,
    SIMULATED_SOURCE,
    SOURCES,
    SUBJECTS,
    WINDOW,
    default_backend,
    find_backend,
    source_settings,
)
from ...collectors.dla.tasks import COUNTER_HERTZ
from ...collectors.lines.collector import SourceSettings
from ...collectors.simulator.paces import paced_board
from ...parsers.errors import PIP_INSTALL, UserError
from ...parsers.inference.events import InferenceSettings, UnitName
from ...parsers.inference.placement import EngineCapability
from ...parsers.inference.servers import KNOWN_COUNTERS, CounterPage, Server
from ...parsers.rails import RailRule
from ...parsers.values import (
    LABEL_NAME,
    LABEL_NAME_FORM,
    Accelerator,
    Device,
    DlaDevice,
    PositiveSeconds,
    Seconds,
    Section,
    Share,
    accelerator_of,
    some_of,
)


def new_run_id() -> str:
    """Return a UUIDv7 (RFC 9562): its first 48 bits are the wall time in milliseconds.

    Ids sort by creation time as long as the wall clock does not step.
    """
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))


def boot_id(root: Path = Path("/proc")) -> str:
    """Return the kernel's id of this boot, or an empty string."""
    try:
        return (root / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


Tool = Literal["dcgm"]
"""A tool under whose metric names a page can be served."""


class Limits(Section):
    """``limits:``: each is a metric next to the figure that it limits; none is set by default."""

    power_watts: PositiveFloat | None = None  # power budget of the module, mean of five minutes
    # Least busy share per DLA core.
    dla_busy_ratio: dict[DlaDevice, Annotated[float, Field(gt=0, le=1)]] = {}


# Keys that apply to an application that marks its own inference; the others are for our own runs.
_OF_A_WINDOW = frozenset({"name", "backend", "device", "batch", "unit", "deadline", "timeout"})
# Keys that apply to the work of others on a server; the defaults are for our own.
_OF_A_COUNTER = frozenset(
    {"name", "backend", "device", "scrape", "unit", "duration", "every", "offset", "cron"}
    | {"jitter", "timeout", "overlap", "exclusive", "missed", "guards", "process"}
)
_WITHOUT_WORK_OF_OURS = {"device": "external", "warm_up": 0.0, "baseline": 0.0}
# The telemetry in memory reaches back no further, so a longer window could not be paired.
_LONGEST_WINDOW_SECONDS = 3600.0

# A shorter steady phase has no energy per inference: docs/measurement.md.
_FEWEST_SECONDS, _FEWEST_SAMPLES = 10.0, 100
# tegrastats takes longer than its interval, so somewhat more is advised.
_MARGIN = 1.1
# With less, a phase of a hundred intervals may have 98 samples.
_LEAST_MARGIN = 1.05
_SHORT_INTERVAL_SECONDS = 0.103
# Net energy takes six readings of each idle phase, of which the begin is left out.
_IDLE_SAMPLES, _IDLE_SETTLING_SECONDS = 6.5, 0.55

OTLP_REMEDY = f"{PIP_INSTALL} opentelemetry-exporter-otlp-proto-common opentelemetry-sdk"


def _split(value: object) -> object:
    if isinstance(value, str):
        value = tuple(shlex.split(value))
    if isinstance(value, (list, tuple)) and any("\0" in str(word) for word in value):
        raise ValueError("a command has no NUL character; remove it")
    return value


def _one_of(kind: str, known: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"{name!r} is not a {kind}: use one of {', '.join(known)}")
        return name

    return AfterValidator(check)


Command = Annotated[tuple[str, ...] | None, BeforeValidator(_split)]
SourceName = Annotated[str, _one_of("source", SOURCES)]
BackendName = Annotated[str, _one_of("back-end", sorted((*BACKENDS, WINDOW)))]


class RootTrace(Section):
    """Lines of a reader that runs as root; off without ``command`` and ``socket``."""

    command: Command = Field(None, min_length=1)  # program and arguments that print them, as root
    socket: Path | None = None  # where a privileged unit prints them

    @property
    def is_asked_for(self) -> bool:
        """Whether it is on."""
        return self.command is not None or self.socket is not None

    @model_validator(mode="after")
    def _is_one_thing(self) -> "RootTrace":
        if self.command is not None and self.socket is not None:
            raise ValueError("give command or socket, not both; with neither it is off")
        return self


class DlaTrace(RootTrace):
    """``telemetry.dla_trace:``, lines of the DLA trace reader."""

    # Rate of the architectural counter.
    counter_hertz: float = Field(COUNTER_HERTZ, ge=1e6, le=1e10)


class Processes(Section):
    """``telemetry.processes:``, which processes are shown by name; off without this section."""

    top: int = Field(10, ge=0, le=100)  # the busiest
    names: tuple[str, ...] = Field((), max_length=100)  # and these, if they run


# One section per source of the catalogue, under the source's name.
if TYPE_CHECKING:
    from ...collectors.gpu.nvml import NvmlSettings

    class _Sources(Section):
        nvml: NvmlSettings = NvmlSettings()
else:
    _fields = {}
    for _name in SOURCES:
        _settings = source_settings(_name)
        _fields[_name] = (_settings, _settings())
    _Sources = create_model("_Sources", __base__=Section, **_fields)


class Telemetry(_Sources):
    """``telemetry:``, the source of lines and their interval."""

    source: SourceName = DEFAULT_SOURCE
    # Prime-like, so that periodic work does not lock to it.
    interval: PositiveSeconds = Field(1.009, ge=0.01, le=60)
    dla_trace: DlaTrace = DlaTrace()
    gpu_trace: RootTrace = RootTrace()  # time on the GPU by process; confirmed by no board
    memory: RootTrace = RootTrace()  # GPU memory and proportional set size by process
    processes: Processes | None = None  # CPU time and memory by process
    # Read kernel files with each line: auto (on a Jetson), true, false, or a directory for /.
    sysfs: bool | str = "auto"
    # Update interval of the rails' sensors; if the kernel's files have one too, the longer counts.
    averaging: PositiveSeconds | None = Field(None, ge=0.001, le=60)

    @field_validator("sysfs", mode="before")
    @classmethod
    def _is_switch_or_root(cls, value: object) -> object:
        is_text = isinstance(value, str) and (value == "auto" or value.startswith("/"))
        if not (is_text or isinstance(value, bool)):
            raise ValueError("auto, true, false, or a directory in place of /, from / on")
        return value

    @model_validator(mode="after")
    def _can_be_chosen(self) -> "Telemetry":
        if self.settings.problem is not None:
            raise ValueError(self.settings.problem)
        return self

    @property
    def settings(self) -> SourceSettings:
        """The settings of the source in force, which describe it."""
        found: SourceSettings = getattr(self, self.source)
        return found


class Guards(Section):
    """``guards:``, of one workload or of all: a run is skipped while one of them holds."""

    # By thermal zone, as tegrastats names it.
    skip_above_celsius: dict[str, Annotated[float, Field(gt=-50, le=150)]] = {}
    skip_below_battery: Share | None = None  # charge, like 30%
    duty: Share | None = None  # most of the last hour that runs may take, like 10%


class Workload(InferenceSettings, Section):
    """One entry of ``workloads:``, with the settings of inference."""

    name: str  # a label value; must be unique
    model: str | None = None  # path of an ONNX file, or builtin: and a name (docs/engines.md)
    head: str | None = None  # path of the ONNX file that continues the model (docs/engines.md)
    command: Command = Field(None, min_length=1)  # a program that infers, instead of a model
    scrape: CounterPage | None = None  # instead of a model: a counter of a server in use
    server: Server | None = None  # instead of a model: a server that gets prompts
    device: Device = "gpu"
    backend: BackendName | None = None  # default: onnxruntime on cpu and tensorrt elsewhere
    unit: UnitName | None = None  # a piece of work that is counted beside inferences, like token
    threads: PositiveInt | None = Field(None, le=1024)  # CPU threads of a CPU back-end
    engine_capability: EngineCapability = "standard"  # dla_standalone: a loadable for cuDLA
    trtexec: str | None = None  # path of trtexec; default: /usr/src/tensorrt/bin/trtexec
    warm_up: Seconds = 1.0  # least time before the measurement
    baseline: Seconds = 8.0  # idle time before and after, model loaded
    duration: PositiveSeconds | None = None  # of the steady phase; or count
    count: PositiveInt | None = Field(None, le=10**9)  # inferences of the steady phase
    deadline: PositiveSeconds | None = None  # longest latency of an inference; beyond is a miss
    every: PositiveSeconds | None = None  # period, from the start or the reload that brought it
    offset: Seconds = 0.0  # time from then to the first run of every
    cron: str | None = None  # five fields, local time
    jitter: Seconds = 0.0  # each run starts up to this much later, at random
    runs_per_start: PositiveInt = Field(1, le=100)  # each time, so many runs one after the other
    # Afterwards the worker is killed, or an open window is closed as failed.
    timeout: PositiveSeconds | None = None
    overlap: Literal["wait", "skip"] = "wait"  # when its device is busy
    exclusive: bool = False  # while it runs, no other workload loads, builds, warms up or runs
    # If its time passed: skip: leave it out; run_once: run it once, late.
    missed: Literal["skip", "run_once"] = "skip"
    guards: Guards = Guards()  # when it does not run

    @field_validator("name")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if not LABEL_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not {LABEL_NAME_FORM}")
        return value

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                next(CronSim(value, datetime.now(timezone.utc)))
            except CronSimError as error:
                raise ValueError(f"{error}; five fields are wanted, like */5 * * * *") from None
            except StopIteration:
                raise ValueError("this time never comes; like */5 * * * *") from None
        return value

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_server(cls, value: object) -> object:
        """Return the keys with the defaults of a server, or of its counter."""
        if isinstance(value, dict) and value.get("server") is not None:
            return {"unit": "token", **value}
        if not isinstance(value, dict) or value.get("scrape") is None:
            return value
        if others := sorted(value.keys() & cls.model_fields.keys() - _OF_A_COUNTER):
            raise ValueError(
                f"{', '.join(others)} cannot be set with scrape: the server runs the work, and"
                " tegrascope only reads its counter"
            )
        scrape = value["scrape"] if isinstance(value["scrape"], dict) else {}
        units = {counter.metric: counter.unit for counter in KNOWN_COUNTERS}
        metric = str(scrape.get("metric", ""))
        is_known = "metric" not in scrape or metric in units
        if not is_known and "unit" not in value:
            raise ValueError("name what it counts, like unit: token")
        return {"unit": units.get(metric, "token"), **_WITHOUT_WORK_OF_OURS, **value}

    @model_validator(mode="after")
    def _has_one_schedule(self) -> "Workload":
        if self.every is not None and self.cron is not None:
            raise ValueError("give every or cron, not both; with neither it runs on demand")
        if self.duration is not None and self.count is not None:
            raise ValueError("give duration or count, not both")
        if self.every is not None and self.jitter >= self.every:
            raise ValueError("jitter must be shorter than every")
        return self

    @model_validator(mode="after")
    def _has_only_keys_of_a_window(self) -> "Workload":
        if not self.is_window:
            return self
        others = ", ".join(sorted(self.model_fields_set - _OF_A_WINDOW))
        if others:
            raise ValueError(
                f"{others}: an application that marks its own windows decides that itself; "
                f"with backend: window, use {', '.join(sorted(_OF_A_WINDOW - {'backend'}))}"
            )
        if self.timeout_seconds > _LONGEST_WINDOW_SECONDS:
            raise ValueError("the timeout of a window is at most 1h")
        return self

    @model_validator(mode="after")
    def _has_one_subject_that_fits_its_backend(self) -> "Workload":
        if self.is_window:
            return self
        given = [key for key in ("model", *SUBJECTS) if getattr(self, key)]
        if len(given) != 1:
            raise ValueError(
                "give one of model (an ONNX file, builtin:resnet50 or builtin:mobilenet), "
                "command (a program that infers), scrape (the counter of a server) and server "
                "(one that gets prompts); or backend: window, for an application that marks its "
                "own inference"
            )
        backend = find_backend(self.backend_in_force)
        if backend.runs != given[0]:
            what = f"backend: {self.backend} goes with {backend.runs}, not with {given[0]}"
            raise ValueError(what)
        for key in ("plugins", "layer_precisions"):
            if getattr(self, key) and not backend.uses_tensorrt:
                raise ValueError(f"{key} are for TensorRT: backend: tensorrt or trtexec")
        problem = backend.memory_problem(self)
        if problem is not None:
            raise ValueError(problem)
        if self.engine_capability == "dla_standalone" and not self.runs_loadable:
            raise ValueError("engine_capability: dla_standalone goes with backend: cudla")
        if self.device == "external" and self.model is not None:
            raise ValueError("external is a device of other programs, not of a back-end of ours")
        if self.deadline is not None and self.command is not None:
            raise ValueError(
                "a command reports no latency, so it has no deadline: leave it out, or use "
                "backend: window"
            )
        return self

    @model_validator(mode="after")
    def _can_run_a_head(self) -> "Workload":
        name = self.backend_in_force
        if self.head is not None and not find_backend(name).runs_heads:
            raise ValueError(f"head: {name} runs one engine per inference: use backend: tensorrt")
        return self

    @model_validator(mode="after")
    def _can_be_calibrated(self) -> "Workload":
        if self.calibration is not None and self.precision != "int8":
            raise ValueError("calibration is for int8: set precision: int8, or leave it out")
        if self.calibration is not None and not find_backend(self.backend_in_force).uses_tensorrt:
            raise ValueError(f"calibration is for TensorRT, not for {self.backend_in_force}")
        return self

    @property
    def backend_in_force(self) -> str:
        """The configured back-end, or the default for command and device."""
        if self.backend is not None:
            return self.backend
        for subject, backend in SUBJECTS.items():
            if getattr(self, subject) is not None:
                return backend
        if self.engine_capability == "dla_standalone":
            return LOADABLE_BACKEND
        return default_backend(self.device)

    @property
    def accelerator(self) -> Accelerator:
        """The device, or those of body and head."""
        return accelerator_of(self.device, self.head)

    @property
    def runs_loadable(self) -> bool:
        """Whether a standalone loadable of a DLA runs in place of an engine."""
        return not self.is_window and find_backend(self.backend_in_force).runs_loadables

    @property
    def is_window(self) -> bool:
        """Whether an application runs it and marks its windows."""
        return self.backend == WINDOW

    @property
    def model_name(self) -> str | None:
        """The model: its file, ``builtin:`` and a name, or the name that its server has for it."""
        if self.model is None and self.server is not None:
            return self.server.model
        return self.model

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the metric page: no paths, and nothing that is not set."""
        model = self.model_name and self.model_name.rpartition("/")[2]
        given = {
            "model": model,
            "backend": self.backend_in_force,
            "precision": self.precision,
            "memory": self.memory,
            "unit": self.unit,
        }
        return {name: text for name, text in given.items() if text} | {"batch": str(self.batch)}

    @property
    def steady_seconds(self) -> float | None:
        """Length of the steady phase; ``None`` where a count decides."""
        if self.count is not None:
            return None
        return self.duration or 10.0

    @property
    def timeout_seconds(self) -> float:
        """Timeout of a run: twice its planned time, and time to build and load; of a window."""
        if self.timeout is not None:
            return self.timeout
        if self.is_window:
            return 600.0
        # Nobody knows how long a count of inferences takes.
        planned = self.warm_up + 2 * self.baseline + (self.steady_seconds or 300.0)
        return 2 * planned + 120.0


class StoreSettings(Section):
    """``store:``, the run database."""

    path: Path | None = None  # tegrascope.db in the state directory
    samples_retention: PositiveSeconds = 7 * 86400.0  # age of deletion
    runs_retention: PositiveSeconds = 365 * 86400.0  # age of deletion
    # Size: the oldest telemetry goes first, then runs.
    max_bytes: int | None = Field(None, ge=10**6, le=10**15)


class Http(Section):
    """``http:``, the address of the page and who may use it."""

    listen: str = "127.0.0.1:9754"  # HOST:PORT; [::1]:9754 for IPv6
    hosts: tuple[str, ...] = ()  # more host names under which the page is reached, without port
    compatibility: tuple[Tool, ...] = ()  # pages /metrics/TOOL with the metric names of that tool
    # Secret for calls that change state; made in the state directory.
    token_file: Path | None = None
    # TLS, users and headers, in the format of Prometheus' exporters.
    web_config_file: Path | None = None

    @field_validator("listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        split_listen(value)
        return value


class Otlp(Section):
    """``otlp:``, an OpenTelemetry receiver that metrics and runs are sent to; off without it."""

    endpoint: str  # http:// or https://; /v1/metrics and /v1/traces are added
    send: frozenset[Literal["metrics", "runs"]] = frozenset(("metrics", "runs"))
    interval: PositiveSeconds = Field(15.0, ge=1, le=3600)  # of the metrics
    headers_file: Path | None = None  # secrets: a line NAME: VALUE per header
    ca_file: Path | None = (
        None  # authorities of the receiver's certificate, in place of the system's
    )
    cert_file: Path | None = None  # own certificate, and its key, if the receiver requires one
    key_file: Path | None = None
    instance: str | None = Field(None, min_length=1)  # service.instance.id; default: host name
    attributes: dict[str, str] = {}  # further attributes of the resource
    queue_bytes: PositiveInt = Field(2 * 2**20, ge=10_000, le=2**30)  # compressed, in memory

    @field_validator("endpoint")
    @classmethod
    def _is_base_address(cls, value: str) -> str:
        parts = urlsplit(value)  # it and the port raise ValueError
        is_web = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if not is_web or parts.query or parts.fragment:
            raise ValueError("an address is like http://127.0.0.1:4318")
        if parts.username is not None or parts.password is not None:
            raise ValueError("no password here: write the header Authorization to headers_file")
        if parts.path.endswith(("/v1/metrics", "/v1/traces")):
            raise ValueError("leave out /v1/metrics and /v1/traces, which are added")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _has_pair(self) -> "Otlp":
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file goes with cert_file")
        return self


def split_listen(value: str) -> tuple[str, int]:
    """Split ``HOST:PORT``, or raise ``ValueError``.

    >>> split_listen("[::1]:9754")
    ('::1', 9754)
    """
    host, colon, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) < 6 and int(port) <= 65535
    if not colon or not is_port or host.split() != [host]:
        raise ValueError("an address is HOST:PORT, like 127.0.0.1:9754")
    return host.strip("[]"), int(port)


class Config(Section):
    """The whole file."""

    telemetry: Telemetry = Telemetry()
    workloads: tuple[Workload, ...] = ()
    store: StoreSettings = StoreSettings()
    http: Http = Http()
    limits: Limits = Limits()
    guards: Guards = Guards()  # for all workloads together
    board: RailRule | None = None  # overrides the board's rail rule
    otlp: Otlp | None = None

    @field_validator("workloads")
    @classmethod
    def _are_named_apart(cls, value: tuple[Workload, ...]) -> tuple[Workload, ...]:
        names = sorted(workload.name for workload in value)
        for name, other in pairwise(names):
            if name == other:
                raise ValueError(f"two workloads are called {name}")
        return value

    @model_validator(mode="after")
    def _can_be_carried_out(self) -> "Config":
        settings = self.telemetry.settings
        for workload in self.workloads:
            if workload.is_window or workload.model is None:
                continue
            name, backend = workload.name, find_backend(workload.backend_in_force)
            if workload.device not in backend.devices:
                devices = ", ".join(backend.devices)
                raise ValueError(
                    f"{name}: {workload.backend_in_force} runs on {devices}, not on"
                    f" {workload.device}"
                )
            if backend.is_simulated and not settings.is_simulated:
                raise ValueError(
                    f"{name}: backend: {workload.backend} computes nothing, and goes with"
                    f" telemetry.source: {SIMULATED_SOURCE} only"
                )
            if backend.is_simulated and settings.board_name != paced_board():
                raise ValueError(
                    f"{name}: paces are known of {paced_board()} only, not of"
                    f" {settings.board_name}: set simulator: {{board: {paced_board()}}}"
                )
            try:
                backend.check(workload.model, workload.device, workload)
            except UserError as error:
                raise ValueError(f"{name}: {error}") from None
        return self

    def advice(self) -> list[str]:
        """Return the remedies: of a missing package, and of energy that will be withheld."""
        settings = self.telemetry.settings
        remedies = []
        # The name of a package inside it would import what is above it.
        if self.otlp is not None and find_spec("opentelemetry") is None:
            remedies.append(f"otlp: nothing is sent without its packages: {OTLP_REMEDY}")
        if settings.is_recorded:
            return remedies
        interval = settings.interval_in_force(self.telemetry.interval)
        needed = max(_FEWEST_SECONDS, _LEAST_MARGIN * _FEWEST_SAMPLES * interval)
        enough = ceil(max(_FEWEST_SECONDS, _MARGIN * _FEWEST_SAMPLES * interval))
        shorter = ""
        if interval > _SHORT_INTERVAL_SECONDS:
            shorter = f"; or 15s, and {settings.interval_hint}"
        idle = ceil(_MARGIN * _IDLE_SAMPLES * interval + _IDLE_SETTLING_SECONDS)
        # Many workloads have the same settings: each remedy is one line with their names.
        names: dict[str, list[str]] = {}
        for workload in self.workloads:
            if workload.is_window:
                continue
            seconds, baseline = workload.steady_seconds, workload.baseline
            usable_baseline = baseline - min(_IDLE_SETTLING_SECONDS, baseline / 4)
            at = f"at an interval of {interval:g} s"
            if seconds is not None and seconds < needed:
                words = (
                    f"{seconds:g} s {at} are too few samples for the energy per inference:"
                    f" duration: {enough}s{shorter}"
                )
                names.setdefault(words, []).append(workload.name)
            elif 0 < usable_baseline < _IDLE_SAMPLES * interval:
                words = (
                    f"idle phases of {baseline:g} s {at} are too short for net energy:"
                    f" baseline: {idle}s"
                )
                names.setdefault(words, []).append(workload.name)
        for words, workloads in names.items():
            remedies.append(f"{some_of(workloads)}: {words}")
        return remedies
