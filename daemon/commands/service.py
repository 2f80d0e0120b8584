"""``tegrascope service install|remove``."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from ...collectors.children.bounded import run_bounded
from ...collectors.files import write_atomic
from ...collectors.paths import exists, is_directory, is_file
from ...parsers.errors import UserError
from . import Options, add_command

_PACKAGED = ("/lib/systemd/system/tegrascope.service", "/usr/lib/systemd/system/tegrascope.service")
_MARK = "# Written by `tegrascope service install`; `systemctl edit` adds to it and survives.\n"
_STATE = ("/var/lib/tegrascope", "/var/cache/tegrascope")
# They belong to the user and are never overwritten.
_SETTINGS = {
    "/etc/tegrascope.yaml": "tegrascope.yaml",
    "/etc/default/tegrascope": "tegrascope.default",
}
# Programs of root's units, by their modules.
_HELPERS = {
    "tegrascope-dla-trace": "collectors.dla.reader",
    "tegrascope-gpu-trace": "collectors.gpu.switch_reader",
    "tegrascope-memory": "collectors.processes.memory_reader",
    "tegrascope-power": "collectors.board.power",
}
_PROGRAM_SECONDS = 120.0
_UNITS = "/etc/systemd/system"
_SYSUSERS = "/etc/sysusers.d/tegrascope.conf"
# The sandbox hides these directories from the service, for any mode.
_HIDDEN = ("/home", "/root", "/run/user")


class _Root:
    """Prints each change to a root directory and makes it, unless this is a dry run."""

    def __init__(self, path: Path, *, is_dry: bool) -> None:
        self.path = path
        self.is_dry = is_dry
        # The root of an image has no running systemd.
        self.is_live = path == Path("/") and is_directory(Path("/run/systemd/system"))

    def at(self, path: str) -> Path:
        return self.path / path.lstrip("/")

    def write(self, path: Path, text: str) -> None:
        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path.resolve(), text.encode())
            path.chmod(0o644)

        self._do(f"write {path}", write)

    def delete(self, path: Path) -> None:
        if is_directory(path) and not path.is_symlink():
            self._do(f"delete {path} and all in it", lambda: shutil.rmtree(path))
        elif exists(path):
            self._do(f"delete {path}", path.unlink)

    def run(self, *argv: str, may_fail: bool = False) -> None:
        def run() -> None:
            try:
                done = run_bounded(argv, _PROGRAM_SECONDS)
            except FileNotFoundError:
                raise UserError(f"{argv[0]} was not found", "apt install systemd") from None
            except subprocess.TimeoutExpired as error:
                raise UserError(str(error), f"run {' '.join(argv)} by hand") from None
            if done.returncode and not may_fail:
                errors = done.stderr.decode("utf-8", "replace")
                problem = " ".join(errors.split()) or f"status {done.returncode}"
                remedy = "fix this, and run the command again"
                raise UserError(f"{' '.join(argv)}: {problem}", remedy)

        self._do(f"run {' '.join(argv)}", run)

    def _do(self, words: str, act: Callable[[], object]) -> None:
        print(words)
        if not self.is_dry:
            try:
                act()
            except OSError as error:
                problem = f"{words}: {error.strerror}"
                raise UserError(problem, "use sudo, or name a --root") from None


def own_program() -> str:
    """Return the path of the installed tegrascope command."""
    program = Path(sys.executable).with_name("tegrascope")
    return str(program) if is_file(program) else f"{sys.executable} -m tegrascope"


def check_visible(program: str | None) -> None:
    """Raise if the sandbox or a mode hides a program (default: ours) from the service's user."""
    remedy = (
        "install it for all, in a checkout:"
        " sudo python3 -m venv --system-site-packages /opt/tegrascope && "
        "sudo /opt/tegrascope/bin/pip install . && "
        "sudo /opt/tegrascope/bin/tegrascope service install"
    )
    path = Path((program or sys.executable).split()[0])
    for place in sorted({path.absolute(), path.resolve()}):
        for hidden in _HIDDEN:
            if place.is_relative_to(hidden):
                raise UserError(f"{place}: the service may not look into {hidden}", remedy)
        for parent in place.parents:
            if exists(parent) and not parent.stat().st_mode & 0o001:
                raise UserError(f"{place}: only some users may enter {parent}", remedy)


def installed_files(program: str) -> dict[str, str]:
    """Return the text of all files of the service, by path."""
    source = files(__package__.partition(".")[0]) / "systemd"
    tegrastats = shutil.which("tegrastats") or "/usr/bin/tegrastats"
    programs = {"tegrascope": program, "tegrastats": tegrastats}
    for name, module in _HELPERS.items():
        # In a checkout a helper is a module.
        is_module = program.endswith(" -m tegrascope")
        beside = str(Path(program).with_name(name))
        programs[name] = f"{program}.{module}" if is_module else beside
    texts = {}
    for entry in sorted(source.iterdir(), key=lambda file: file.name):
        if entry.name.endswith((".service", ".socket")):
            text = entry.read_text(encoding="utf-8")
            # The page is part of the Debian package only.
            text = re.sub(r"^Documentation=.*\n", "", text, flags=re.M)
            for name, path in programs.items():
                pattern = rf"^((?:Exec|Condition)\w+=.*?)/usr/bin/{name}(?![\w-])"
                text = re.sub(pattern, rf"\1{path}", text, flags=re.M)
            texts[f"{_UNITS}/{entry.name}"] = _MARK + text
    texts[_SYSUSERS] = _MARK + (source / "tegrascope.sysusers").read_text("utf-8")
    for path, name in _SETTINGS.items():
        texts[path] = (source / name).read_text("utf-8")
    return texts


def _open_root(arguments: argparse.Namespace) -> _Root:
    root = _Root(arguments.root, is_dry=arguments.dry_run)
    if not root.is_dry and root.path == Path("/") and os.geteuid() != 0:
        raise UserError("this changes /etc", f"sudo {own_program()} service {arguments.action}")
    for path in _PACKAGED:
        if exists(root.at(path)):
            raise UserError(f"{root.at(path)} came with a package", "leave it to apt")
    return root


def install(arguments: argparse.Namespace) -> int:
    """Write the units, the user and missing settings; start and enable nothing."""
    root = _open_root(arguments)
    program = arguments.program or own_program()
    if root.path == Path("/"):
        check_visible(arguments.program)
    for name, text in installed_files(program).items():
        path = root.at(name)
        if name in _SETTINGS and exists(path):
            print(f"keep {path}")
        else:
            root.write(path, text)
    if root.is_live:
        root.run("systemd-sysusers", str(root.at(_SYSUSERS)))
        root.run("systemctl", "daemon-reload")
    else:
        print(f"systemd is not reloaded: {root.path} is not the root of a running system")
    print("next: systemctl enable --now tegrascope")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Stop the service and delete its files; with ``--purge`` also settings and runs."""
    root = _open_root(arguments)
    directory = root.at(_UNITS)
    units = [
        path
        for path in sorted(directory.glob("tegrascope*"))
        if is_file(path) and path.read_text("utf-8").startswith(_MARK)
    ]
    if root.is_live and units:
        names = [path.name for path in units if "@" not in path.name]
        root.run("systemctl", "disable", "--now", *names)
        root.run("systemctl", "stop", "tegrascope*")  # instances that a socket started
    for path in units:
        root.delete(path)
    root.delete(root.at(_SYSUSERS))
    root.delete(root.at("/run/tegrascope"))
    if root.is_live:
        root.run("systemctl", "daemon-reload")
    left = sorted(directory.glob("tegrascope*.d"))
    for name in (*_SETTINGS, *_STATE):
        if exists(root.at(name)):
            left.append(root.at(name))
    if arguments.purge:
        for path in left:
            root.delete(path)
        if root.is_live:
            root.run("userdel", "tegrascope", may_fail=True)
            root.run("groupdel", "tegrascope", may_fail=True)  # usually removed with its user
    elif left:
        print(f"kept: {', '.join(map(str, left))} (--purge deletes settings and all runs)")
    return 0


EXAMPLE = "tegrascope service install --dry-run\n  sudo tegrascope service install"


def add(option: Options) -> None:
    """Add the actions."""
    actions = option.actions()
    installing = add_command(
        actions,
        "install",
        install,
        "tegrascope service install --dry-run\n"
        "  sudo tegrascope service install && sudo systemctl enable --now tegrascope",
        "write units, user and settings; nothing is started or enabled",
    )
    installing("--program COMMAND", "program of the unit (default: this installation)")
    removing = add_command(
        actions,
        "remove",
        remove,
        "tegrascope service remove --dry-run\n  sudo tegrascope service remove --purge",
        "stop the service and remove its units; runs and settings stay",
    )
    removing("--purge", "delete settings, runs and the user as well")
    for action in (installing, removing):
        action("--root DIR", "of an image (default: /)", default=Path("/"))
        action("--dry-run", "print the steps, and do nothing")
