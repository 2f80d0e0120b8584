"""``tegrascope check-config``."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...parsers.records import Record
from ...parsers.values import printable
from ..terminal import CHECK_SAYS_NO, GOOD, standard_output
from . import DATABASE, Options, find_state_dir

if TYPE_CHECKING:
    from ..settings.config import Config


EXAMPLE = (
    "tegrascope check-config /etc/tegrascope.yaml\n"
    "  tegrascope check-config --web.config.file /etc/tegrascope-web.yml"
)


class ConfigCheck(Record):
    """The answer of the command: a line for each good file, each problem and each note."""

    ok: bool
    good: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


def add(option: Options) -> None:
    """Add the options."""
    option("file FILE", nargs="?")
    option(
        "--web.config.file WEB_FILE",
        "the file of TLS and users (default: the one that FILE names)",
        dest="web_config_file",
        type=Path,
    )
    option("--json", "print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print that the files are good, or each error; return 3 if there is one."""
    found = _check(arguments)
    if arguments.json:
        print(found.model_dump_json(), file=standard_output())
    else:
        for line in (*found.good, *(f"note: {printable(note)}" for note in found.notes)):
            print(printable(line))
        for problem in found.problems:
            print(printable(problem, 2000), file=sys.stderr)
    return GOOD if found.ok else CHECK_SAYS_NO


def _check(arguments: argparse.Namespace) -> ConfigCheck:
    from ..settings.file import ConfigError, load_config

    path, web_path = arguments.file, arguments.web_config_file
    if path is None and web_path is None:
        arguments.misuse("give FILE, or --web.config.file WEB_FILE")
    good: list[str] = []
    notes: list[str] = []
    workloads: list[str] = []
    problems: tuple[str, ...] = ()
    try:
        if path is not None:
            config = load_config(path)
            web_path = web_path or config.http.web_config_file
            workloads += [workload.name for workload in config.workloads]
            good.append(f"{path}: good, {len(workloads)} workload(s)")
            notes += [*config.advice(), *_missing_models(config)]
        if web_path is not None:
            from ..web.web_config import WebRules

            web = WebRules(web_path).current()
            tls = "TLS" if web.has_tls else "no TLS"
            good.append(f"{web_path}: good, {tls}, {len(web.basic_auth_users)} user(s)")
    except ConfigError as error:
        problems = error.problems
    return ConfigCheck(
        ok=not problems,
        good=tuple(good),
        problems=problems,
        notes=tuple(notes),
        workloads=tuple(workloads),
    )


def _missing_models(config: "Config") -> Iterator[str]:
    """Yield a note for each model that this user cannot read; another one may."""
    directory = find_state_dir(DATABASE)
    for workload in config.workloads:
        model = workload.model or "builtin:"
        path = directory / Path(model).expanduser()
        if not model.startswith("builtin:") and not os.access(path, os.R_OK):
            yield f"{workload.name}: there is no {path} that this user can read"
