"""Is a path there: a denied path and a failing disk are not the same as a missing one."""

import errno
import os
import re
from pathlib import Path

import pytest

from tegrascope.collectors.paths import exists, is_directory, is_file

ROOT = Path(__file__).parents[2]
ASKS = (exists, is_file, is_directory)
# What `pathlib` answers depends on the version of Python if a path is denied.
PATHLIB = re.compile(
    r"\w\.(exists|is_file|is_dir|is_socket|is_fifo|is_mount)\(\)|os\.path\.(exists|isfile|isdir)\("
)


class FailingPath(type(Path())):
    """A path that the system refuses to look at."""

    reason = errno.EACCES

    def stat(self, **_):
        raise OSError(self.reason, os.strerror(self.reason), str(self))


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("reason", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_path_that_cannot_be_known_raises(ask, reason):
    path = FailingPath("/denied/file")
    path.reason = reason
    with pytest.raises(OSError, match=os.strerror(reason)):
        ask(path)


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("name", ["missing", "file/below", "circle", "x" * 300, "a\0b"])
def test_path_that_cannot_be_there_is_absent(ask, name, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    assert ask(tmp_path / name) is False


def test_file_directory_and_others_differ(tmp_path):
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.touch()
    os.mkfifo(pipe)
    assert [ask(file) for ask in ASKS] == [True, True, False]
    assert [ask(tmp_path) for ask in ASKS] == [True, False, True]
    assert [ask(pipe) for ask in ASKS] == [True, False, False]


def test_product_asks_no_path_itself():
    """Python 3.14 answers for a denied path as for a missing one."""
    found = []
    for room in ("parsers", "collectors", "daemon", "workbench"):
        for file in sorted((ROOT / room).rglob("*.py")):
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                if PATHLIB.search(line):
                    found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
