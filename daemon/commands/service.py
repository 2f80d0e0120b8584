"""``tegrascope service install|remove``."""

import argparse
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from ...parsers.errors import Mendable
from ..service.units import (
    SETTINGS,
    STATE,
    check_visible,
    drop_ins,
    installed_files,
    own_program,
    sysusers_file,
    units_present,
)
from .common import Commands, add_command

_PACKAGED = ("/lib/systemd/system/tegrascope.service", "/usr/lib/systemd/system/tegrascope.service")


class _Hand:
    """Does things to a root, or only says which."""

    def __init__(self, root: Path, *, is_dry: bool) -> None:
        self.root = root
        self.is_dry = is_dry
        # A root that is not this machine's has no systemd that could be told.
        self.is_live = root == Path("/") and Path("/run/systemd/system").is_dir()

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: Path, text: str) -> None:
        self._do(f"write {path}", lambda: self._write(path, text))

    def delete(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            self._do(f"delete {path} and all in it", lambda: shutil.rmtree(path))
        elif path.exists():
            self._do(f"delete {path}", path.unlink)

    def run(self, *argv: str, may_fail: bool = False) -> None:
        self._do(f"run {' '.join(argv)}", lambda: _run(argv, may_fail))

    def _do(self, words: str, act: Callable[[], object]) -> None:
        print(words)
        if not self.is_dry:
            try:
                act()
            except OSError as error:
                raise Mendable(f"{words}: {error.strerror}", "use sudo, or name a --root") from None

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)


def _run(argv: tuple[str, ...], may_fail: bool) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Mendable(f"{argv[0]} was not found", "apt install systemd") from None
    if done.returncode and not may_fail:
        said = " ".join(done.stderr.split()) or f"status {done.returncode}"
        raise Mendable(f"{' '.join(argv)}: {said}", "mend that, and run it again")


def _hand_of(arguments: argparse.Namespace) -> _Hand:
    hand = _Hand(arguments.root, is_dry=arguments.dry_run)
    if not hand.is_dry and hand.root == Path("/") and os.geteuid() != 0:
        raise Mendable("this changes /etc", f"sudo {own_program()} service {arguments.action}")
    for path in _PACKAGED:
        if hand.at(path).exists():
            raise Mendable(f"{hand.at(path)} came with a package", "leave it to apt")
    return hand


def install(arguments: argparse.Namespace) -> int:
    """Write the units, the user and what settings are missing; start and enable nothing."""
    hand = _hand_of(arguments)
    program = arguments.program or own_program()
    if hand.root == Path("/"):
        check_visible(arguments.program)
    for file in installed_files(program):
        path = hand.at(file.path)
        if file.is_setting and path.exists():
            print(f"keep {path}")
        else:
            hand.write(path, file.text)
    if hand.is_live:
        hand.run("systemd-sysusers", str(sysusers_file(hand.root)))
        hand.run("systemctl", "daemon-reload")
    else:
        print(f"no systemd was told of it: {hand.root} is not a running system's root")
    print("next: systemctl enable --now tegrascope")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """End the service and delete what ``install`` wrote; runs and settings only if asked to."""
    hand = _hand_of(arguments)
    units = units_present(hand.root)
    if hand.is_live and units:
        names = [path.name for path in units if "@" not in path.name]
        hand.run("systemctl", "disable", "--now", *names)
        hand.run("systemctl", "stop", "tegrascope*")  # what the socket started
    for path in units:
        hand.delete(path)
    hand.delete(sysusers_file(hand.root))
    hand.delete(hand.at("/run/tegrascope"))
    if hand.is_live:
        hand.run("systemctl", "daemon-reload")
    left = [*drop_ins(hand.root), *(hand.at(path) for path in (*SETTINGS, *STATE))]
    left = [path for path in left if path.exists()]
    if arguments.purge:
        for path in left:
            hand.delete(path)
        if hand.is_live:
            hand.run("userdel", "tegrascope", may_fail=True)
            hand.run("groupdel", "tegrascope", may_fail=True)  # gone with its user, most often
    elif left:
        print(f"kept: {', '.join(map(str, left))} (--purge deletes settings and all runs)")
    return 0


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "service",
        "tegrascope service install --dry-run\n  sudo tegrascope service install",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    installing = add_command(
        actions,
        "install",
        "tegrascope service install --dry-run\n"
        "  sudo tegrascope service install && sudo systemctl enable --now tegrascope",
        "write units, user and settings; nothing is started or enabled",
    )
    installing.add_argument(
        "--program", metavar="COMMAND", help="what the unit runs (default: this installation)"
    )
    removing = add_command(
        actions,
        "remove",
        "tegrascope service remove --dry-run\n  sudo tegrascope service remove --purge",
        "stop the service and take its units away; runs and settings stay",
    )
    removing.add_argument(
        "--purge", action="store_true", help="delete settings, runs and the user as well"
    )
    for name, action, command in (
        ("install", installing, install),
        ("remove", removing, remove),
    ):
        action.add_argument(
            "--root", type=Path, default=Path("/"), metavar="DIR", help="of an image (default: /)"
        )
        action.add_argument(
            "--dry-run", action="store_true", help="say what would be done, and do nothing"
        )
        action.set_defaults(command=command, action=name)
