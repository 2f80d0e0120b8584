"""``tegrascope service install|remove``."""

import argparse
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from ...parsers.errors import UserError
from ..service.systemd import (
    SETTINGS,
    STATE,
    check_visible,
    drop_ins,
    installed_files,
    own_program,
    sysusers_file,
    units_present,
)
from . import Commands, add_command

_PACKAGED = ("/lib/systemd/system/tegrascope.service", "/usr/lib/systemd/system/tegrascope.service")


class _Root:
    """Prints each change to a root directory and makes it, unless this is a dry run."""

    def __init__(self, path: Path, *, is_dry: bool) -> None:
        self.path = path
        self.is_dry = is_dry
        # The root of an image has no running systemd.
        self.is_live = path == Path("/") and Path("/run/systemd/system").is_dir()

    def at(self, path: str) -> Path:
        return self.path / path.lstrip("/")

    def write(self, path: Path, text: str) -> None:
        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)

        self._do(f"write {path}", write)

    def delete(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            self._do(f"delete {path} and all in it", lambda: shutil.rmtree(path))
        elif path.exists():
            self._do(f"delete {path}", path.unlink)

    def run(self, *argv: str, may_fail: bool = False) -> None:
        def run() -> None:
            try:
                done = subprocess.run(argv, capture_output=True, text=True, check=False)
            except FileNotFoundError:
                raise UserError(f"{argv[0]} was not found", "apt install systemd") from None
            if done.returncode and not may_fail:
                problem = " ".join(done.stderr.split()) or f"status {done.returncode}"
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


def _open_root(arguments: argparse.Namespace) -> _Root:
    root = _Root(arguments.root, is_dry=arguments.dry_run)
    if not root.is_dry and root.path == Path("/") and os.geteuid() != 0:
        raise UserError("this changes /etc", f"sudo {own_program()} service {arguments.action}")
    for path in _PACKAGED:
        if root.at(path).exists():
            raise UserError(f"{root.at(path)} came with a package", "leave it to apt")
    return root


def install(arguments: argparse.Namespace) -> int:
    """Write the units, the user and missing settings; start and enable nothing."""
    root = _open_root(arguments)
    program = arguments.program or own_program()
    if root.path == Path("/"):
        check_visible(arguments.program)
    for file in installed_files(program):
        path = root.at(file.path)
        if file.is_setting and path.exists():
            print(f"keep {path}")
        else:
            root.write(path, file.text)
    if root.is_live:
        root.run("systemd-sysusers", str(sysusers_file(root.path)))
        root.run("systemctl", "daemon-reload")
    else:
        print(f"systemd is not reloaded: {root.path} is not the root of a running system")
    print("next: systemctl enable --now tegrascope")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Stop the service and delete its files; with ``--purge`` also settings and runs."""
    root = _open_root(arguments)
    units = units_present(root.path)
    if root.is_live and units:
        names = [path.name for path in units if "@" not in path.name]
        root.run("systemctl", "disable", "--now", *names)
        root.run("systemctl", "stop", "tegrascope*")  # instances that a socket started
    for path in units:
        root.delete(path)
    root.delete(sysusers_file(root.path))
    root.delete(root.at("/run/tegrascope"))
    if root.is_live:
        root.run("systemctl", "daemon-reload")
    left = [*drop_ins(root.path), *(root.at(path) for path in (*SETTINGS, *STATE))]
    left = [path for path in left if path.exists()]
    if arguments.purge:
        for path in left:
            root.delete(path)
        if root.is_live:
            root.run("userdel", "tegrascope", may_fail=True)
            root.run("groupdel", "tegrascope", may_fail=True)  # usually removed with its user
    elif left:
        print(f"kept: {', '.join(map(str, left))} (--purge deletes settings and all runs)")
    return 0


def add(commands: Commands) -> None:
    """Add the command."""
    example = "tegrascope service install --dry-run\n  sudo tegrascope service install"
    actions = add_command(commands, "service", None, example).actions()
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
