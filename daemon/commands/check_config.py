"""``tegrascope check-config``."""

import argparse
import sys
from pathlib import Path

from ..terminal.output import CHECK_SAYS_NO, GOOD
from . import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "check-config",
        "tegrascope check-config /etc/tegrascope.yaml\n"
        "  tegrascope check-config --web.config.file /etc/tegrascope-web.yml",
    )
    parser.add_argument("file", type=Path, metavar="FILE", nargs="?")
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="WEB_FILE",
        help="the file of TLS and users (default: the one that FILE names)",
    )

    def command(arguments: argparse.Namespace) -> int:
        if arguments.file is None and arguments.web_config_file is None:
            parser.error("give FILE, or --web.config.file WEB_FILE")
        from ..settings.file import ConfigError

        try:
            _check(arguments)
        except ConfigError as error:
            print(*error.problems, sep="\n", file=sys.stderr)
            return CHECK_SAYS_NO
        return GOOD

    parser.set_defaults(command=command)


def _check(arguments: argparse.Namespace) -> None:
    web_path = arguments.web_config_file
    if arguments.file is not None:
        from ..settings.file import load_config

        config = load_config(arguments.file)
        web_path = web_path or config.http.web_config_file
        print(f"{arguments.file}: good, {len(config.workloads)} workload(s)")
        for line in config.advice():
            print(f"note: {line}")
    if web_path is not None:
        from ..web.web_config import WebRules

        web = WebRules(web_path).config
        tls = "TLS" if web.has_tls else "no TLS"
        print(f"{web_path}: good, {tls}, {len(web.basic_auth_users)} user(s)")
