"""A short name for a process: its program or script, within its container or unit."""

import os
import re
from collections.abc import Container, Sequence
from pathlib import Path

from ...parsers.signals import OWN_PROCESS
from ..base import SYSTEM_CLOCK, Clock
from .table import UNREADABLE, ProcessEntry, ProcessTable

_KNOWN_AT_MOST = 2048
_LONGEST = 64
# A process whose arguments and whose name in the kernel are blank.
_NAMELESS = "unnamed"
_REMEMBERED_NS = 10_000_000_000
# A process begins as a copy of its parent, and has no arguments for a moment of its own start. So
# the name of a younger one is not remembered.
_YOUNG_NS = 2_000_000_000
_INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|node|java|bash|sh|dash)[0-9.]*")
# Docker, Podman, containerd and CRI-O put the 64 digits of a container into the cgroup's name.
_CONTAINER = re.compile(
    r"(?P<kind>docker|libpod|cri-containerd|crio|containerd|nerdctl)[-/:](?:[^/]{0,255}[-/:])?"
    r"(?P<id>[0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/|$)"
)
_PLAIN_ID = re.compile(r"/(?P<id>[0-9a-f]{12})[0-9a-f]{52}(?:/|$)")
_LXC = re.compile(r"/lxc(?:\.payload\.|/)(?P<name>[^/]+)")
_KINDS = {"libpod": "podman", "cri-containerd": "containerd"}


def program_of(command: Sequence[str], name: str) -> str:
    """Return the program of a command line, with the script or module of an interpreter.

    Args:
        command: The arguments, empty for a thread of the kernel.
        name: The kernel's own name of the process, at most 15 characters.

    >>> program_of(["/usr/bin/python3", "-u", "/opt/app/detect.py", "--fast"], "python3")
    'python3 detect.py'
    >>> program_of(["python3", "-m", "app.main"], "python3"), program_of([], "kworker/0:1")
    ('python3 -m app.main', 'kworker')
    >>> program_of([" "], "sleep"), program_of([" "], " ")
    ('sleep', 'unnamed')
    """
    name = name.strip() or _NAMELESS
    if not command:
        # Threads of the kernel have numbers of queues and cores behind a slash.
        return name.partition("/")[0] or name
    # A process may write anything over its own command line: ``sshd: user@pts/0``, or a blank.
    words = command[0].split()
    program = words[0] if words else ""
    if command[0].endswith(":"):
        program = command[0]
    program = program.rpartition("/")[2] or name
    if not _INTERPRETER.fullmatch(program):
        return program
    rest = iter(command[1:])
    for argument in rest:
        if argument in ("-m", "-jar"):
            return f"{program} {argument} {next(rest, '')}".rstrip()
        if argument == "-c":
            return f"{program} -c"
        if not argument.startswith("-"):
            return f"{program} {argument.rpartition('/')[2]}"
    return program


def group_of(cgroup: str) -> str | None:
    """Return the container or the system service that the text of ``/proc/PID/cgroup`` names.

    A container is named as ``docker:`` and the first 12 digits of its identifier. None for neither.

    >>> group_of("0::/system.slice/docker-" + "0123456789ab" + 52 * "c" + ".scope")
    'docker:0123456789ab'
    >>> group_of("0::/system.slice/detector.service"), group_of("0::/user.slice/session-1.scope")
    ('detector.service', None)
    """
    # A line is HIERARCHY:CONTROLLERS:PATH. From inside a container a path may begin with dots.
    paths = [line.split(":", 2)[-1] for line in cgroup.splitlines()]
    for path in paths:
        if found := _CONTAINER.search(path):
            return f"{_KINDS.get(found['kind'], found['kind'])}:{found['id']}"
        if found := _PLAIN_ID.search(path):
            return f"container:{found['id']}"
        if found := _LXC.search(path):
            return f"lxc:{found['name']}"
    for path in paths:
        parts = path.split("/")
        if "system.slice" in parts or (".." in parts and "user.slice" not in parts):
            services = [part for part in parts if part.endswith(".service")]
            if not services:
                return None
            return services[-1]
    return None


class ProcessNames:
    """Names of processes by their number, remembered while a process lives.

    Not all processes can be read: systemd's ``ProtectProc=invisible`` hides those of other users.
    """

    def __init__(
        self, root: Path = Path("/"), own: int | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Prepare; ``own`` is the process whose children count as ours, by default this one."""
        self.table = ProcessTable(root)
        self._own = os.getpid() if own is None else own
        self._clock = clock
        self._known: dict[int, tuple[int, str]] = {}
        self._asked: dict[tuple[int, str | None], str | None] = {}
        self._asked_ns = clock.monotonic_ns()

    def name(self, pid: int | None, fallback: str | None = None) -> str | None:
        """Return the name of a process; ``fallback`` if it has ended or is hidden.

        The answer is remembered for ten seconds, since a DLA takes thousands of tasks per second.
        """
        if pid is None:
            return fallback
        if self._clock.monotonic_ns() - self._asked_ns > _REMEMBERED_NS:
            self._asked.clear()
            self._asked_ns = self._clock.monotonic_ns()
        asked = pid, fallback
        if asked not in self._asked:
            try:
                self._asked[asked] = self.name_of(self.table.entry(pid))
            except UNREADABLE:
                self._asked[asked] = fallback
        return self._asked[asked]

    def name_of(self, process: ProcessEntry) -> str:
        """Return the name of a process; raises one of ``UNREADABLE`` if it has just ended."""
        known = self._known.get(process.pid)
        if known is not None and known[0] == process.started_ns:
            return known[1]
        if self._is_ours(process):
            name = OWN_PROCESS
        else:
            name = self._describe(process)
            if self._clock.boottime_ns() - process.started_ns < _YOUNG_NS:
                return name
        while len(self._known) >= _KNOWN_AT_MOST:
            del self._known[next(iter(self._known))]
        self._known[process.pid] = process.started_ns, name
        return name

    def keep(self, living: Container[int]) -> None:
        """Forget the names of processes that have ended."""
        self._known = {pid: known for pid, known in self._known.items() if pid in living}

    def _is_ours(self, process: ProcessEntry) -> bool:
        if self._own in (process.pid, process.parent_pid):
            return True
        parent = self._known.get(process.parent_pid)
        return parent is not None and parent[1] == OWN_PROCESS

    def _describe(self, process: ProcessEntry) -> str:
        try:
            command = self.table.command(process.pid)
        except PermissionError:
            command = []
        program = program_of(command, process.name)
        group = group_of(self.table.cgroup(process.pid))
        if group is not None and group != f"{program}.service":
            program = f"{group}/{program}"
        return "".join(letter if letter.isprintable() else "?" for letter in program)[:_LONGEST]
