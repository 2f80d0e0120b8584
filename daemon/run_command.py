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

if TYPE_CHECKING:
    from .config import Config

_LOG = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon until it is told to end."""
    if arguments.demo and arguments.config:
        raise Mendable("--demo has its own configuration", "leave out -c, or --demo")
    share_one_heap()
    keep_lean(tls=False)
    from .console import Console, first_screen
    from .http import bind
    from .service import Service

    config = _load(arguments)
    listener = bind(config.http.listen)
    console = Console()
    stopping = threading.Event()
    service = Service(config, arguments.state_dir, listener)
    if arguments.config:
        service.load_config = lambda: _load(arguments)
    service.start()
    for line in first_screen(service, arguments.state_dir):
        _LOG.info("%s", line)
    for line in config.advice():
        _LOG.warning("%s", line)
    watcher = threading.Thread(
        target=console.follow, args=(service, stopping, SYSTEM_CLOCK), daemon=True
    )
    watcher.start()
    try:
        service.run()
    finally:
        stopping.set()
        watcher.join(1.0)
        console.close()
        service.stop()
    return 0


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
