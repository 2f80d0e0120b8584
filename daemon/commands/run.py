"""``tegrascope run``."""

import argparse
import logging
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ...collectors.base import SYSTEM_CLOCK
from ...parsers.errors import UsageError, UserError
from ..session.process_signals import Signals
from ..terminal import BAD_CONFIG
from . import Commands, add_command

if TYPE_CHECKING:
    from ..service.service import Service
    from ..settings.config import Config

_LOG = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon until a process signal ends it; return 78 for a file with an error."""
    if arguments.demo and arguments.config:
        raise UsageError("--demo has its own configuration", "leave out -c, or --demo")
    signals = Signals()
    from ..service.systemd import notify_systemd
    from ..settings.file import ConfigError
    from ..web.web_config import WebRules

    try:
        config = _load(arguments)
        web_file = config.http.web_config_file
        rules = None if web_file is None else WebRules(web_file)
    except ConfigError as error:
        print(*(f"tegrascope: {one}" for one in error.problems), sep="\n", file=sys.stderr)
        notify_systemd(f"STATUS={' '.join(error.problems[0].split())}")
        return BAD_CONFIG
    from ..service.console import Console
    from ..service.service import Service
    from ..web.server import bind

    console = Console(level=arguments.log_level, as_json=arguments.log_format == "json")
    with bind(config.http.listen) as listener:
        service = Service(config, arguments.state_dir, listener, rules=rules)
        if arguments.config:
            service.load_config = lambda: _load(arguments)
        stopping = threading.Event()
        watcher = threading.Thread(
            target=console.follow, args=(service, stopping, SYSTEM_CLOCK), daemon=True
        )
        try:
            service.start(lambda: _greet(service, arguments.state_dir))
            watcher.start()
            service.run(signals)
        finally:
            stopping.set()
            if watcher.is_alive():
                watcher.join(1.0)
            console.close()
            service.stop()
    return 0


def _greet(service: "Service", state_dir: Path) -> None:
    from ..service.console import first_screen

    for line in first_screen(service, state_dir):
        _LOG.info("%s", line)
    for line in service.config.advice():
        _LOG.warning("%s", line)


def _load(arguments: argparse.Namespace) -> "Config":
    from ..settings.config import Config, Http
    from ..settings.file import load_config

    path = Path(__file__).with_name("demo.yaml") if arguments.demo else arguments.config
    config = load_config(path) if path else Config()
    given = {"web_config_file": arguments.web_config_file, "listen": arguments.listen}
    changed = {key: value for key, value in given.items() if value}
    try:
        http = Http.model_validate({**config.http.model_dump(), **changed})
    except ValueError:
        raise UserError(f"--listen {arguments.listen}", "give HOST:PORT") from None
    return config.model_copy(update={"http": http})


def add(commands: Commands) -> None:
    """Add the command."""
    option = add_command(
        commands, "run", run, "tegrascope run --demo\n  tegrascope run -c /etc/tegrascope.yaml"
    )
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
    option("--demo", "a simulated board and real models on the CPU")
