"""Hostile configurations at a reload, and hostile files at a start."""

import os
import random
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from .daemon import Daemon
from .kinds import Act, Kind, answers, is_quiet, nothing, pause, runs_again, stays_small

_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
_TELEMETRY = "telemetry: {source: simulator, interval: %s}\n"
TEXTS: Mapping[str, str] = {
    "cut": "telemetry: [",
    "an unknown key": "telemetri: {}",
    "of control characters": "\0\1\2",
    "of a number": "workloads: 3",
    "a YAML bomb": _BOMB,
    "a duration of 20,000 digits": _TELEMETRY % f'"{"1" * 20_000}x"',
    "a number of 20,000 digits": _TELEMETRY % ("1" * 20_000),
    "a share of 20,000 digits": f'workloads: [{{name: w, guards: {{duty: "{"1" * 20_000}y"}}}}]',
    "surrogates": 'workloads: [{name: "\\ud800", model: x, device: cpu}]',
    "deep lists": "workloads: " + "[" * 20_000,
    "of 2 MB": "# " + "x" * (2 << 20),
    "20,000 workloads": "workloads:\n"
    + "".join(f"- {{name: w{n}, command: 'x', device: external}}\n" for n in range(20_000)),
    "NaN": _TELEMETRY % ".nan",
}
PLACES: Mapping[str, Callable[[Path], object]] = {
    "missing": lambda _: None,
    "a directory": Path.mkdir,
    "a FIFO": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a loop of links": lambda path: path.symlink_to(path.name),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe\xff" * 100),
}


def clear(path: Path) -> None:
    """Remove what is there, whatever it is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def reload(make: Callable[[Path], object]) -> Act:
    """Return what lets the daemon reload a bad configuration, and the good one after it."""

    def act(daemon: Daemon, _: random.Random) -> None:
        clear(daemon.config)
        make(daemon.config)
        daemon.process.send_signal(signal.SIGHUP)
        pause(daemon, 3)
        clear(daemon.config)
        daemon.config.write_text(daemon.good_config)
        daemon.process.send_signal(signal.SIGHUP)

    return act


def _writes(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


_RULES = (answers, is_quiet, stays_small, runs_again)
KINDS = (
    *(Kind(f"reload {what}", reload(_writes(text)), _RULES) for what, text in TEXTS.items()),
    *(Kind(f"reload {what}", reload(make), _RULES) for what, make in PLACES.items()),
    Kind("start: FIFO as token", nothing, store="mkfifo token", is_refused=True),
    Kind("start: directory as token", nothing, store="mkdir token", is_refused=True),
    Kind("start: endless device as token", nothing, store="ln -s /dev/zero token", is_refused=True),
    Kind("start: FIFO as lock", nothing, store="mkfifo tegrascope.db.lock", stays_unready=True),
)
