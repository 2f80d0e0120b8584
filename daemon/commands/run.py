"""``tegrascope run``."""

import argparse
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ...collectors.base import SYSTEM_CLOCK
from ...parsers.errors import UsageError, UserError
from ..session.process_signals import Signals
from . import Commands, add_command, add_state_dir

if TYPE_CHECKING:
    from ..service.service import Service
    from ..settings.config import Config

_LOG = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon until a process signal ends it."""
    if arguments.demo and arguments.config:
        raise UsageError("--demo has its own configuration", "leave out -c, or --demo")
    signals = Signals()
    config = _load(arguments)
    from ..service.console import Console
    from ..service.service import Service
    from ..web.server import bind
    from ..web.web_config import WebRules

    web_file = config.http.web_config_file
    rules = None if web_file is None else WebRules(web_file)
    console = Console()
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

    if arguments.demo:
        config = load_config(Path(__file__).with_name("demo.yaml"))
    elif arguments.config:
        config = load_config(arguments.config)
    else:
        config = Config()
    changed: dict[str, object] = {}
    if arguments.web_config_file:
        changed["web_config_file"] = arguments.web_config_file
    if arguments.listen:
        changed["listen"] = arguments.listen
    try:
        http = Http.model_validate({**config.http.model_dump(), **changed})
    except ValueError:
        raise UserError(f"--listen {arguments.listen}", "give HOST:PORT") from None
    return config.model_copy(update={"http": http})


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "run",
        "tegrascope run --demo\n  tegrascope run -c /etc/tegrascope.yaml",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="YAML; see check-config")
    parser.add_argument("--listen", metavar="HOST:PORT", help="overrides http.listen")
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS, users and headers, in the format of Prometheus' exporters",
    )
    add_state_dir(parser)
    parser.add_argument(
        "--demo", action="store_true", help="a simulated board and real models on the CPU"
    )

    parser.set_defaults(command=run)
