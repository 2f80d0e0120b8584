"""systemd hears that the daemon lives for as long as a restart could remedy nothing."""

import os
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from tegrascope.daemon.service.service import Watchdog, watchdog_seconds

S = 1_000_000_000


class Manager:
    """What systemd would have heard of a daemon with a limit of ten seconds, second by second."""

    def __init__(self, seconds: "float | None" = 10.0) -> None:
        self.heard: list[tuple[int, str]] = []
        self.now = 0
        self._watchdog = Watchdog(seconds, lambda *words: self.heard.append((self.now, *words)))

    def live(
        self, seconds: int, telemetry: "str | None" = None, *, status: str = ""
    ) -> "list[int]":
        """Let time go by; return the times at which it was fed."""
        begin = self.now
        for self.now in range(begin, begin + seconds):
            self._watchdog.look(self.now * S, telemetry=telemetry, status=status)
        self.now += 1
        return [at for at, word in self.heard if word == "WATCHDOG=1" and at >= begin]


def test_fed_at_half_its_time_while_all_is_well():
    """Twice within the limit, so that one word may be late."""
    assert Manager().live(21) == [0, 5, 10, 15, 20]


def test_starved_once_telemetry_is_gone():
    """Samples came and then no more: it is restarted."""
    manager = Manager()
    manager.live(10)
    assert manager.live(30, "no fresh sample") == []
    assert manager.live(10) == [40, 45]


def test_board_that_never_gave_a_sample_is_left_in_peace():
    """Without tegrastats a restart does not help: it would be repeated every minute."""
    assert len(Manager().live(3600, "no fresh sample")) == 720


def test_status_is_sent_when_it_changes():
    """Not each second."""
    manager = Manager(None)
    manager.live(5, status="serving")
    manager.live(5, status="no disk")
    assert manager.heard == [(0, "STATUS=serving"), (5, "STATUS=no disk")]


@pytest.mark.parametrize(
    ("usec", "whose", "seconds"),
    [
        ("60000000", None, 60.0),
        pytest.param("4000000", str(os.getpid()), 4.0, id="ours"),
        ("4000000", "1", None),  # meant for another process
        ("0", None, None),
        ("soon", None, None),
        (None, None, None),
    ],
)
def test_limit_is_what_systemd_says(monkeypatch, usec, whose, seconds):
    """Of the environment, and only if it is meant for this process."""
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", whose)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert watchdog_seconds() == seconds


def test_bad_configuration_has_a_status_of_its_own(tmp_path):
    """78 ends the daemon for good under systemd; the reason is in its status and the last line."""
    config = tmp_path / "tegrascope.yaml"
    config.write_text("telemetry:\n  intervall: 1s\n")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        done = subprocess.run(
            [sys.executable, "-m", "tegrascope", "run", "-c", str(config)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
        problem = f"{config}:2: telemetry.intervall: unknown key; did you mean interval?"
        assert (done.returncode, done.stderr) == (78, f"tegrascope: {problem}\n")
        assert manager.recv(4096).decode() == f"STATUS={problem}"
