"""``tegrascope prove``: checks of this board, and the file that is sent."""

import argparse
import sys
import time
from pathlib import Path

from ...collectors.board.machine import Machine
from ...daemon.commands import Options
from ...daemon.outputs import check_output, open_output
from ...daemon.terminal import GOOD
from ...parsers.errors import UserError
from ...parsers.values import printable
from ..doctor.findings import read_board
from ..prove.belief import beliefs
from ..prove.probes import BoardAccess, probes
from ..prove.report import (
    Document,
    as_lines,
    boards_page,
    captures,
    counts,
    read,
    verdict_line,
    write,
)
from ..prove.runner import (
    CHECKS,
    SavedEvidence,
    ask_sudo,
    gather,
    lacks_time,
    root_list,
    verdicts,
)
from ..prove.scrub import private_words

EXAMPLE = (
    "tegrascope prove --quick\n  tegrascope prove -o board.zip\n  tegrascope prove --show board.zip"
)
_FILE = Path("tegrascope-prove.zip")


def add(option: Options) -> None:
    """Add the options."""
    option("--quick", "what takes at most three minutes")
    option("--allow-changes", "also checks that change the board for a while; all is restored")
    option("--no-sudo", "leave out what only root may do")
    option("--anyway", "go on where nothing of a Jetson is found")
    option("-o, --output FILE", f"the file to send (default: {_FILE}); with --report, the page")
    reading = option.one_of()
    reading("--show FILE", "print all that is in a file")
    reading("--report FILE", "merge files into one page", nargs="+", type=Path)
    option("--captures DIR", "with --report: write their lines of tegrastats for make golden")
    option.state_dir("where the evidence so far is kept")


def run(arguments: argparse.Namespace) -> int:
    """Examine the board and write the file; or show a file, or merge some."""
    if arguments.show is not None:
        with open_output(arguments.output) as output:
            for line in as_lines(read(arguments.show)):
                print(printable(line), file=output)
        return GOOD
    if arguments.report:
        return _report(arguments, [read(path) for path in arguments.report])
    state = arguments.state_dir / "prove"
    return examine(arguments, BoardAccess(Machine(), state / "work"), state)


def _report(arguments: argparse.Namespace, documents: list[Document]) -> int:
    with open_output(arguments.output) as output:
        output.write(boards_page(documents))
    if arguments.captures is not None:
        for name, lines in captures(documents).items():
            path = arguments.captures / name
            with open_output(path, "--captures") as output:
                output.writelines(f"{line}\n" for line in lines)
            print(f"{path}: {len(lines)} lines; make golden", file=sys.stderr)
    return GOOD


def examine(
    arguments: argparse.Namespace, board: BoardAccess, state: Path, seconds: float | None = None
) -> int:
    """Gather evidence, in so many seconds if given; print the verdicts, and write the file."""
    path = arguments.output or _FILE
    check_output(path)
    if not arguments.anyway and not read_board(board.machine).may_be_jetson:
        raise UserError(
            "this machine is not a Jetson, and the assumptions are about Jetsons",
            "run prove on a board; --anyway tries what is possible here",
        )
    board.without_root = arguments.no_sudo
    if not arguments.no_sudo:
        _allow_root(board, arguments.quick)
    model = board.machine.text("/proc/device-tree/model") or "unknown"
    memory = SavedEvidence(state, f"{model}, user {board.machine.uid}")
    if memory.found:
        print(f"goes on after {len(memory.found)} of {len(probes())} steps", file=sys.stderr)
    begin, printed = time.monotonic(), set[str]()
    quick, changes = arguments.quick, arguments.allow_changes
    steps = gather(board, memory, quick=quick, changes=changes, seconds=seconds)
    for name in steps:
        _print_new_verdicts(memory, printed)
        number = list(probes()).index(name) + 1
        spent = time.monotonic() - begin
        about = probes()[name].about
        print(f"[{spent:5.0f} s] step {number} of {len(probes())}: {about} …", file=sys.stderr)
    found = verdicts(memory.found)
    for name in CHECKS:
        print(verdict_line(beliefs()[name], found[name]))
    by_hand = len(found) - len(CHECKS)
    print(f"{by_hand} more are checked by hand, with the commands of docs/on-a-board.md")
    write(path, memory.found, private_words(board.machine))
    if not lacks_time(memory.found):
        memory.forget()
    totals = [f"{count} {state}" for state, count in counts(found.values()).items()]
    print(
        f"{', '.join(totals)}; see all of {path}: tegrascope prove --show {path}", file=sys.stderr
    )
    return GOOD


def _allow_root(board: BoardAccess, quick: bool) -> None:
    """Print what root is used for, and ask for the password once."""
    if board.machine.uid != 0:
        print("Root is used for:", file=sys.stderr)
        for about in dict.fromkeys(root_list(quick)):
            print(f"  {about}", file=sys.stderr)
    board.sudo = ask_sudo(board)


def _print_new_verdicts(memory: SavedEvidence, printed: set[str]) -> None:
    """Print each verdict that evidence has just decided."""
    for name, verdict in verdicts(memory.found).items():
        if verdict.state in ("proved", "refuted") and name not in printed:
            printed.add(name)
            print(f"  {verdict.state}: {beliefs()[name].belief}", file=sys.stderr)
