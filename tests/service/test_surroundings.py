"""A daemon that its parent starts with odd limits, masks and streams, or on odd files."""

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.processes import PATIENCE_SECONDS

CONFIG = "telemetry: {source: simulator, interval: 103ms}\n"


def run_daemon(
    tmp_path: Path, *within: str, config: str = CONFIG
) -> "subprocess.CompletedProcess[str]":
    """Run a daemon that is expected to end by itself."""
    (tmp_path / "config.yaml").write_text(config)
    return subprocess.run(
        [
            *within,
            *(sys.executable, "-m", "tegrascope", "run", "-c", str(tmp_path / "config.yaml")),
            *("--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "state")),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def limited(limit: str) -> tuple[str, ...]:
    return ("sh", "-c", f'ulimit {limit}; exec "$@"', "sh")


def one_line(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the only line of an error."""
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_too_few_descriptors_are_refused_with_the_limit(tmp_path):
    line = one_line(run_daemon(tmp_path, *limited("-n 16")))
    assert "may open 16 files at a time" in line
    assert "LimitNOFILE=1024" in line


def test_soft_limit_of_descriptors_is_raised(start):
    daemon = start(CONFIG, within=limited("-S -n 20"))
    daemon.wait_for(lambda: daemon.get("readyz").startswith("ready"))
    soft, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    assert soft == (1024 if hard == resource.RLIM_INFINITY else min(hard, 1024))


NO_THREADS = """
import sys, threading
def refuse(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
from tegrascope.workbench.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_machine_without_another_thread_is_one_line(tmp_path):
    """As with a limit of memory (ulimit -v), or of processes (ulimit -u, TasksMax)."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    done = subprocess.run(
        [
            *(sys.executable, "-c", NO_THREADS, "run", "-c", str(tmp_path / "config.yaml")),
            *("--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "state")),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert "no further thread can be started: raise the limits" in one_line(done)


def test_signals_that_the_parent_blocked_are_heard(start):
    block = (
        "import os, signal, sys; "
        "signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals()); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    daemon = start(CONFIG, within=(sys.executable, "-c", block))
    daemon.wait_for(lambda: daemon.get("readyz").startswith("ready"))
    daemon.stop(signal.SIGTERM)
    assert daemon.process.returncode == 0


def test_files_are_not_for_others_whatever_the_umask(start):
    daemon = start(CONFIG, within=("sh", "-c", 'umask 000; exec "$@"', "sh"))
    daemon.wait_for(lambda: daemon.get("readyz").startswith("ready"))
    daemon.wait_for(lambda: (daemon.state_dir / "tegrascope.db").exists())
    for path in (daemon.state_dir, *daemon.state_dir.iterdir()):
        assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


def test_daemon_without_standard_streams_serves(start):
    """Descriptors 0 to 2 are the null device, not a socket or the database."""
    daemon = start(CONFIG, within=("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"))
    daemon.wait_for(lambda: (daemon.state_dir / "tegrascope.db-wal").exists())
    for descriptor in range(3):
        assert Path(f"/proc/{daemon.process.pid}/fd/{descriptor}").readlink() == Path("/dev/null")
    daemon.stop(signal.SIGTERM)
    assert daemon.process.returncode == 0


def test_directory_that_everybody_may_write_is_a_warning(start, tmp_path):
    (tmp_path / "state").chmod(0o777)
    daemon = start(CONFIG)
    daemon.wait_for(lambda: any("everybody may write there" in line for line in daemon.log))


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_open_token(path: Path) -> None:
    path.write_text("a-secret\n")
    path.chmod(0o666)


def make_link(path: Path) -> None:
    (path.parent / "elsewhere").write_text("a-secret\n")
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (make_fifo, "is not a regular file"),
        (make_link, "is a symbolic link"),
        (make_open_token, "others may write it (mode 0666)"),
        (lambda path: path.symlink_to("missing"), "is a symbolic link"),
        (lambda path: path.mkdir(), "is not a regular file"),
    ],
)
def test_odd_token_is_refused_in_one_line(tmp_path, spoil, reason):
    (tmp_path / "state").mkdir()
    spoil(tmp_path / "state/token")
    line = one_line(run_daemon(tmp_path))
    assert f"{tmp_path}/state/token: {reason}" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_token_of_another_user_is_refused(tmp_path):
    (tmp_path / "state").mkdir()
    token = tmp_path / "state/token"
    token.write_text("a-secret\n")
    token.chmod(0o600)
    os.chown(token, 1000, 1000)
    assert "belongs to the user 1000, who knows it" in one_line(run_daemon(tmp_path))


def test_pipe_in_place_of_a_certificate_is_refused_in_one_line(tmp_path):
    for name in ("web.yaml", "key.pem"):
        (tmp_path / name).write_text("tls_server_config: {cert_file: cert.pem, key_file: key.pem}")
    os.mkfifo(tmp_path / "cert.pem")
    config = f"http: {{web_config_file: '{tmp_path}/web.yaml'}}\n{CONFIG}"
    done = run_daemon(tmp_path, config=config)
    assert done.returncode == 78
    assert "cert.pem: is not a regular file" in done.stderr
    assert "Traceback" not in done.stderr


HANGS = """
import os, signal, sys
from tegrascope.daemon.session.process_signals import Signals
Signals(start_seconds=0.1)
os.kill(os.getpid(), signal.SIGTERM)
open(sys.argv[1])
"""


def test_ctrl_c_during_the_imports_is_no_traceback():
    """The signal comes as soon as the command line is looked for."""
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'tegrascope.workbench.cli':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from tegrascope.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (1, "")


def test_start_that_hangs_obeys_sigterm(tmp_path):
    """A file that does not answer stands for a file system that does not."""
    os.mkfifo(tmp_path / "pipe")
    done = subprocess.run(
        [sys.executable, "-c", HANGS, str(tmp_path / "pipe")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == -signal.SIGALRM
    assert done.stderr == "SIGTERM: the start ends within 0.1 s\n"
