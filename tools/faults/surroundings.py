"""Odd surroundings: how the daemon is started, and which other processes run beside it."""

import ctypes
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .daemon import Daemon
from .kinds import Act, Kind, is_quiet, loses_nothing, runs_again, sees_processes

# Statements of a Python program that then becomes the daemon.
STARTS: Mapping[str, str] = {
    "umask 000": "os.umask(0)",
    "umask 777": "os.umask(0o777)",
    "no standard input": "os.close(0)",
    "no standard output": "os.close(1)",
    "full standard output": "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)",
    "all signals blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
    "SIGTERM ignored": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "SIGCHLD ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "64 descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    "2 GB of addresses": "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))",
    "500 inherited descriptors": "[os.set_inheritable(os.dup(2), True) for _ in range(500)]",
    "no environment": "os.environ.clear()",
    "no home": "os.environ.update(HOME='/nonexistent')",
    "odd language": "os.environ.update(LANG='xx_YY.nonsense', LC_ALL='xx')",
    "odd time zone": "os.environ.update(TZ='No/Such\\xff')",
    "a notify socket that is gone": "os.environ.update(NOTIFY_SOCKET='/nonexistent/notify')",
    "an odd watchdog": "os.environ.update(WATCHDOG_USEC='soon', WATCHDOG_PID='x')",
    "a proxy": "os.environ.update(http_proxy='http://127.0.0.1:1', HTTP_PROXY='http://127.0.0.1:1')",
    "lowest priority": "os.nice(19)",
    "a directory that is gone": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
}
# Entered by the process itself, since another one around it would not pass signals on.
_NAMESPACE = """
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x80) == 0
open('/proc/self/timens_offsets', 'w').write('monotonic {0} 0\\nboottime {0} 0\\n')
"""
NAMES: Mapping[str, bytes] = {
    "a tab": b"\t",
    "a blank": b" ",
    "a line feed": b"\n",
    "a no-break space": "\N{NO-BREAK SPACE}".encode(),
    "nothing": b"",
    "no UTF-8": b"\xff\xfe",
    "quotes": b'"} 1\ntegra_fake{a="',
    "HTML": b"<script>alert(1)</script>",
    "5,000 characters": b"x" * 5000,
    "an escape": b"\x1b]0;x\x07",
    "right to left": "\N{RIGHT-TO-LEFT OVERRIDE}txt".encode(),
    "only slashes": b"///",
}


def _become(statements: str) -> list[str]:
    modules = "import ctypes, os, resource, signal, sys"
    return [sys.executable, "-c", f"{modules}\n{statements}\nos.execv(sys.argv[1], sys.argv[1:])"]


def start_in(statements: str) -> Act:
    """Return what starts the daemon in odd surroundings, waits for a run, and ends it."""

    def act(daemon: Daemon, _: random.Random) -> str | None:
        daemon.end()
        daemon.start(within=_become(statements))
        has_come = daemon.recovery() is not None
        has_run = has_come and daemon.wait_for_runs(1)
        has_ended = daemon.process.poll() is not None or daemon.end()
        last = daemon.log[-1][:200] if daemon.log else ""
        daemon.clock_seconds = 0.0
        daemon.start()
        if not has_come:
            return f"it was not ready there: {last}"
        if not has_run:
            return "no run ended there"
        return None if has_ended else "SIGTERM did not end it in 20 s"

    return act


def uptime(seconds: float) -> Act:
    """Return what starts the daemon on a machine that seems to be up for so long."""

    def act(daemon: Daemon, chance: random.Random) -> str | None:
        offset = int(seconds - float(Path("/proc/uptime").read_text().split()[0]))
        daemon.end()
        daemon.clock_seconds = offset
        return start_in(_NAMESPACE.format(offset))(daemon, chance)

    return act


def run_beside(name: bytes) -> Act:
    """Return what runs a busy process of a name beside the daemon."""

    def act(_: Daemon, __: random.Random) -> None:
        program = "import time; end = time.time() + 8\nwhile time.time() < end: pass"
        process = subprocess.Popen([name, "-c", program], executable=sys.executable)
        try:
            process.wait(10)
        finally:
            process.kill()

    return act


def _has_time_namespaces() -> bool:
    """Return whether a process may have clocks of its own here."""
    child = os.fork()
    if child == 0:
        os._exit(ctypes.CDLL(None).unshare(0x80) != 0)
    return os.waitpid(child, 0)[1] == 0


_RULES = (is_quiet, runs_again, loses_nothing)
KINDS = (
    *(Kind(f"start with {what}", start_in(text), _RULES) for what, text in STARTS.items()),
    *(
        Kind(f"start {words} after boot", uptime(seconds), _RULES, needs_root=True)
        for words, seconds in (("5 s", 5), ("10 minutes", 600), ("400 days", 400 * 86_400))
        if _has_time_namespaces()
    ),
    *(
        Kind(f"process named {what}", run_beside(name), (is_quiet, sees_processes))
        for what, name in NAMES.items()
    ),
)
