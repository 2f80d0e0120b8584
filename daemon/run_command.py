"""``tegrascope run``."""

import argparse
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ..collectors.base import SYSTEM_CLOCK
from ..parsers.errors import Mendable
from .lean import keep_lean
from .memory import share_one_heap
from .signals import Signals

if TYPE_CHECKING:
    from .config import Config
    from .service import Service

_LOG = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon until it is told to end."""
    if arguments.demo and arguments.config:
        raise Mendable("--demo has its own configuration", "leave out -c, or --demo")
    signals = Signals()
    share_one_heap()
    keep_lean(tls=False)
    from .console import Console
    from .server import bind
    from .service import Service

    config = _load(arguments)
    console = Console()
    with bind(config.http.listen) as listener:
        service = Service(config, arguments.state_dir, listener)
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
    from .console import first_screen

    for line in first_screen(service, state_dir):
        _LOG.info("%s", line)
    for line in service.config.advice():
        _LOG.warning("%s", line)


def _load(arguments: argparse.Namespace) -> "Config":
    from .config import Config, Http
    from .config_file import load_config

    if arguments.demo:
        config = load_config(Path(__file__).with_name("demo.yaml"))
    elif arguments.config:
        config = load_config(arguments.config)
    else:
        config = Config()
    if arguments.listen:
        try:
            http = Http(listen=arguments.listen, token_file=config.http.token_file)
        except ValueError:
            raise Mendable(f"--listen {arguments.listen}", "give HOST:PORT") from None
        config = config.model_copy(update={"http": http})
    return config
