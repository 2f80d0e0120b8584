"""How busy the CPU is, by a made /proc."""

import threading

import pytest

from tegrascope.collectors.board.readers import cpu_busy_ratio


class Later:
    """A clock whose wait is when the kernel goes on counting."""

    def __init__(self, path, line):
        self.path, self.line = path, line

    def monotonic_ns(self):
        return 0

    def wait(self, _event, _until_ns):
        self.path.write_text(self.line)
        return False


@pytest.mark.parametrize(
    ("after", "ratio"),
    [
        ("cpu  150 0 50 1100 0 0 0 0 0 0\n", 0.5),
        ("cpu  100 0 0 1000 900 0 0 0 0 0\n", 0.0),
        ("cpu  100 0 0 1000 0 0 0 0 0 0\n", None),
        ("", None),
        ("what is this\n", None),
    ],
    ids=["half", "waiting-for-disks", "no-time", "empty", "strange"],
)
def test_share_is_of_the_ticks_between(tmp_path, after, ratio):
    """Busy over all, of what was counted meanwhile; what is not known is not 0."""
    path = tmp_path / "stat"
    path.write_text("cpu  100 0 0 1000 0 0 0 0 0 0\ncpu0 1 2 3\n")
    found = cpu_busy_ratio(1.0, threading.Event(), root=tmp_path, clock=Later(path, after))
    assert found == ratio


def test_machine_that_does_not_tell(tmp_path):
    """Without /proc there is no figure."""
    clock = Later(tmp_path / "other", "")
    assert cpu_busy_ratio(1.0, threading.Event(), root=tmp_path, clock=clock) is None
