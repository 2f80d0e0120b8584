"""Which source the settings mean."""

import os

import pytest

from tegrascope.collectors.base import SYSTEM_CLOCK
from tegrascope.collectors.lines.program import ProcessSource, SocketSource
from tegrascope.collectors.simulator.physics import LoadBoard
from tegrascope.daemon.session.telemetry import open_telemetry
from tegrascope.daemon.settings.config import Telemetry


@pytest.fixture
def opened(monkeypatch):
    """Open what is meant, as a user or as root; nothing begins yet."""

    def make(tegrastats: "dict[str, object]", *, user: int = 1000, **settings: object):
        monkeypatch.setattr(os, "geteuid", lambda: user)
        telemetry = Telemetry.model_validate({"tegrastats": tegrastats, **settings})
        return open_telemetry(telemetry, LoadBoard(), SYSTEM_CLOCK).source

    return make


@pytest.mark.parametrize(
    ("tegrastats", "user", "asks"),
    [
        ({}, 1000, True),
        ({}, 0, False),  # root needs nobody's help
        ({"command": "sudo tegrastats"}, 1000, False),  # who names a program means it
        ({"command": "sudo tegrastats", "socket": "/run/s"}, 1000, True),
        ({"socket": None}, 1000, False),
    ],
)
def test_socket_is_asked_unless_something_else_is_meant(opened, tegrastats, user, asks):
    """A user's daemon asks it, root's has no need to, and a command of one's own stands."""
    assert isinstance(opened(tegrastats, user=user), SocketSource) == asks
    assert isinstance(opened(tegrastats, user=user), ProcessSource)


def test_interval_of_the_socket_is_that_of_its_unit(opened, monkeypatch, caplog):
    """Both units read one file; a different interval in the settings is not hidden."""
    monkeypatch.setenv("TEGRASTATS_INTERVAL_MS", "103")
    assert opened({}).socket_interval_seconds == 0.103
    assert caplog.text == ""
    assert opened({}, interval="500ms").socket_interval_seconds == 0.103
    words = "is 500 ms, but root's tegrastats prints every 103 ms: that is set by TEGRASTATS_INTER"
    assert words in caplog.text
    caplog.clear()
    monkeypatch.setenv("TEGRASTATS_INTERVAL_MS", "1009")
    for same in ("1009ms", 1.009, "1.009s", 1009 * 0.001):
        assert opened({}, interval=same).socket_interval_seconds == 1.009
    assert caplog.text == ""
    monkeypatch.setenv("TEGRASTATS_INTERVAL_MS", "soon")
    assert opened({}).socket_interval_seconds == 1.009
