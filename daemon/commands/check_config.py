"""``tegrascope check-config``."""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...parsers.records import Record
from ...parsers.values import printable, some_of
from ..outputs import standard_output
from ..terminal import CHECK_SAYS_NO, GOOD
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
    check = _check(arguments)
    if arguments.json:
        print(check.model_dump_json(), file=standard_output())
    else:
        for line in check.good:
            print(printable(line))
        for note in check.notes:
            print(printable(f"note: {printable(note)}"))
        for problem in check.problems:
            print(printable(problem, 2000), file=sys.stderr)
    return GOOD if check.ok else CHECK_SAYS_NO


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
            notes += [*config.advice(), *_missing(config)]
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


def _missing(config: "Config") -> Iterator[str]:
    """Yield a note for each model and program that this user has not; another one may have it."""
    users: dict[str, list[str]] = {}
    for workload in config.workloads:
        for problem in (_model_problem(workload.model), _program_problem(workload.command)):
            if problem is not None:
                users.setdefault(problem, []).append(workload.name)
    telemetry = config.telemetry
    sections = {
        telemetry.source: telemetry.settings,
        "dla_trace": telemetry.dla_trace,
        "gpu_trace": telemetry.gpu_trace,
        "memory": telemetry.memory,
    }
    for name, settings in sections.items():
        # The file may be for another machine: only a program that it names is looked for.
        if "command" in settings.model_fields_set:
            problem = _program_problem(getattr(settings, "command", None))
            if problem is not None:
                users.setdefault(problem, []).append(f"telemetry.{name}")
    for problem, names in users.items():
        yield f"{some_of(names)}: {problem}"


def _model_problem(model: str | None) -> str | None:
    from ...collectors.models.files import BUILTIN_MODELS, BUILTIN_PREFIX

    if model is None:
        return None
    if model.startswith(BUILTIN_PREFIX):
        known = ", ".join(BUILTIN_PREFIX + name for name in BUILTIN_MODELS)
        is_known = model.removeprefix(BUILTIN_PREFIX) in BUILTIN_MODELS
        return None if is_known else f"there is no {model}; use {known}"
    path = find_state_dir(DATABASE) / Path(model).expanduser()
    if os.access(path, os.R_OK):
        return None
    return f"there is no {path} that this user can read"


def _program_problem(command: Sequence[str] | None) -> str | None:
    if not command or shutil.which(os.path.expanduser(command[0])) is not None:  # noqa: PTH111
        return None
    return f"there is no program {command[0]} that this user can run"
