"""``tegrascope run``: the daemon, and its output for a person at a terminal or for a log."""

import argparse
import contextlib
import json
import logging
import os
import resource
import stat
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ... import __version__
from ...parsers.errors import UsageError, UserError
from ...parsers.values import printable, some_of
from ..session.process_signals import Signals
from ..terminal import BAD_CONFIG, discard
from . import Options

if TYPE_CHECKING:
    from ..service.service import Service
    from ..settings.config import Config, Workload

_LOG = logging.getLogger(__name__)
# The daemon with workers, clients and an update has up to 100 open.
_DESCRIPTORS, _FEWEST_DESCRIPTORS = 1024, 64


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon until a process signal ends it; return 78 for a file with an error."""
    if arguments.demo and arguments.config:
        raise UsageError("--demo has its own configuration", "leave out -c, or --demo")
    signals = Signals()
    # Nobody else may write the files of the daemon, whatever its parent set.
    os.umask(os.umask(0o022) | 0o022)
    _allow_descriptors()
    from ..settings.file import ConfigError

    try:
        config = _load(arguments)
        limitation = None
        if arguments.demo:
            config, limitation = without_missing_packages(config)
        web_file = config.http.web_config_file
        rules = None
        if web_file is not None:
            from ..web.web_config import WebRules

            rules = WebRules(web_file)
    except ConfigError as error:
        from ..service.service import notify_systemd

        print(
            *(f"tegrascope: {printable(one)}" for one in error.problems), sep="\n", file=sys.stderr
        )
        notify_systemd(f"STATUS={' '.join(error.problems[0].split())}")
        return BAD_CONFIG
    from ..service.service import Service
    from ..web.server import bind

    Console(level=arguments.log_level, as_json=arguments.log_format == "json")
    with bind(config.http.listen) as listener:
        service = Service(config, arguments.state_dir, listener, rules=rules, limitation=limitation)
        if arguments.config:
            service.load_config = lambda: _load(arguments)
        try:
            service.start(lambda: _greet(service, arguments.state_dir))
            service.run(signals)
        finally:
            service.stop()
    return 0


def _allow_descriptors() -> None:
    """Raise the limit of open files as far as the daemon needs it, or raise ``UserError``.

    With too low a limit the daemon itself works, and each run fails.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < _FEWEST_DESCRIPTORS:
        what = f"the daemon may open {wanted} files at a time, and needs {_FEWEST_DESCRIPTORS}"
        raise UserError(what, "ulimit -n 1024, or LimitNOFILE=1024 in its unit")


def _greet(service: "Service", state_dir: Path) -> None:
    for line in first_screen(service, state_dir):
        _LOG.info("%s", line)
    for line in service.config.advice():
        _LOG.warning("%s", line)
    danger = _danger_of(state_dir)
    if danger is not None:
        _LOG.warning("%s", danger)


def _danger_of(state_dir: Path) -> str | None:
    """Return which other user can replace the files in the state directory, or ``None``."""
    try:
        status = state_dir.stat()
    except OSError:  # reported by the store
        return None
    effect = "can replace the token and the runs"
    if status.st_uid not in (0, os.geteuid()):
        return f"{state_dir}: belongs to the user {status.st_uid}, who {effect}"
    if status.st_mode & stat.S_IWOTH:
        return f"{state_dir}: everybody may write there, and {effect}: chmod o-w {state_dir}"
    return None


def _load(arguments: argparse.Namespace) -> "Config":
    from ..settings.config import Config, Http
    from ..settings.file import load_config

    config = Config()
    if arguments.demo:
        config = load_config(Path(__file__).with_name("demo.yaml"))
    elif arguments.config:
        config = load_config(arguments.config)
    http_settings = config.http.model_dump()
    if arguments.web_config_file:
        http_settings["web_config_file"] = arguments.web_config_file
    if arguments.listen:
        http_settings["listen"] = arguments.listen
    try:
        http = Http.model_validate(http_settings)
    except ValueError:
        raise UsageError(f"--listen {arguments.listen}", "give HOST:PORT") from None
    return config.model_copy(update={"http": http})


def without_missing_packages(
    config: "Config", find: Callable[[str], object] = find_spec
) -> "tuple[Config, str | None]":
    """Return the demo without the workloads whose Python package is missing, and how to add them.

    ``make run LIGHT=1`` installs no ONNX Runtime. A workload that fails at each run would look like
    an error of the product.

    Args:
        find: Returns None for the name of a package that cannot be imported.
    """
    from ...collectors.catalog import find_backend

    possible: list[Workload] = []
    left_out: list[str] = []
    remedy = ""
    for workload in config.workloads:
        backend = find_backend(workload.backend_in_force)
        if backend.packages and not any(find(package) for package in backend.packages):
            left_out.append(workload.name)
            remedy = backend.install
        else:
            possible.append(workload)
    if not left_out:
        return config, None
    limitation = (
        f"real inference on this CPU is left out ({some_of(left_out)}):"
        f" make run, or {remedy}, adds it"
    )
    return config.model_copy(update={"workloads": tuple(possible)}), limitation


class _JsonFormatter(logging.Formatter):
    """One JSON object per record, as log collectors read it."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document)


class Console(logging.Handler):
    """Prints the log of the whole process, one line per record."""

    def __init__(
        self, stream: TextIO = sys.stderr, *, level: str = "info", as_json: bool = False
    ) -> None:
        """Handle the records from a level on."""
        super().__init__(level.upper())
        self._stream = stream
        if as_json:
            self.setFormatter(_JsonFormatter())
        elif "JOURNAL_STREAM" in os.environ:  # the journal adds its own time stamps
            self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        else:
            form = "%(asctime)s %(levelname)s %(message)s"
            self.setFormatter(logging.Formatter(form, "%H:%M:%S"))
        self._as_json = as_json
        root = logging.getLogger()
        root.addHandler(self)
        root.setLevel(level.upper())

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        line = self.format(record)
        if not self._as_json:
            line = printable(line)  # a worker's output may have escapes; JSON has none
        # The reader may be gone (a pipe into head, a closed terminal); the daemon continues.
        with contextlib.suppress(OSError, ValueError):
            try:
                self._stream.write(f"{line}\n")
                self._stream.flush()
            except BrokenPipeError:  # what is left of the text would fail again at the exit
                discard(self._stream.fileno())


def first_screen(service: "Service", state_dir: Path) -> list[str]:
    """Return the first lines for a person: page, sources, workloads, and what the demo lacks."""
    config, telemetry = service.config, service.config.telemetry
    heading = f"tegrascope {__version__}"
    if service.live.snapshot.environment.simulated:
        heading += " · simulated: these figures are not from a real board"
    lines = [
        heading,
        f"  page       {service.url}",
        f"  metrics    {service.url}metrics",
        f"  runs       {service.url}api/v1/runs",
        f"  telemetry  {telemetry.settings.summary()}, every {telemetry.interval:g} s",
        f"  state      {state_dir}",
    ]
    if not config.workloads:
        lines.append("  workloads  none: telemetry only (add workloads: to the configuration)")
    for number, workload in enumerate(config.workloads):
        parts = (workload.name, workload.device, workload.backend_in_force, _start_of(workload))
        lines.append(f"  {'workloads' if number == 0 else '':10} {' · '.join(parts)}")
    if service.limitation is not None:
        lines.append(f"  note       {service.limitation}")
    return lines


def _start_of(workload: "Workload") -> str:
    times = ""
    if workload.runs_per_start > 1:
        times = f"{workload.runs_per_start} runs "
    if workload.every is not None:
        if workload.offset:
            return f"{times}every {workload.every:g} s, first after {workload.offset:g} s"
        return f"{times}every {workload.every:g} s"
    if workload.cron is not None:
        return f"{times}cron {workload.cron}"
    if workload.is_window:
        return "marked by its application"
    return "on demand"


EXAMPLE = "tegrascope run --demo\n  tegrascope run -c /etc/tegrascope.yaml"


def add(option: Options) -> None:
    """Add the options."""
    option("-c, --config FILE", "YAML; see check-config")
    option("--listen HOST:PORT", "overrides http.listen")
    option(
        "--web.config.file FILE",
        "TLS, users and headers, in the format of Prometheus' exporters",
        dest="web_config_file",
    )
    option.state_dir()
    option(
        "--log-level",
        "the least severe records that are logged (default: %(default)s)",
        choices=("debug", "info", "warning", "error"),
        default="info",
    )
    option(
        "--log-format",
        "of the records on standard error (default: %(default)s)",
        choices=("text", "json"),
        default="text",
    )
    option("--demo", "a simulated board with its accelerators, and a real model on the CPU")
