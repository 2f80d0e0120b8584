"""A real systemd for the tests, on a machine whose PID 1 is another: see ``boot.sh``."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.processes import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "systemd"
UNITS = sorted(path for path in SYSTEMD.iterdir() if path.suffix in (".service", ".socket"))
BOOT = Path(__file__).with_name("boot.sh")
PROGRAMS = ("systemctl", "systemd-sysusers", "unshare", "nsenter", "dbus-daemon", "ip", "pgrep")
PACKAGES = "apt install systemd dbus libnss-systemd util-linux iproute2 procps"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM_PYTHON = "/usr/bin/python3"
NAMESPACES = ("mount", "pid", "cgroup", "net", "uts", "ipc")

# As a system-wide installation would look: an interpreter, what is installed, and our checkout.
PYTHON, SITE, CHECKOUT = "/opt/python", "/opt/site", "/opt/checkout/tegrascope"
INTERPRETER = f"{PYTHON}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
TEGRASCOPE = f"""#!/bin/sh
export LD_LIBRARY_PATH={PYTHON}/lib
export PYTHONPATH={SITE}:{Path(CHECKOUT).parent} PYTHONDONTWRITEBYTECODE=1
exec {INTERPRETER} -m tegrascope "$@"
"""
# What the program does too: it prints more to root.
TEGRASTATS = """#!/bin/sh
[ "$(id -u)" = 0 ] || less=--unprivileged
exec /usr/bin/tegrascope simulate --interval "$2" $less
"""


def documented_drop_in(title: str) -> str:
    """Return the drop-in that docs/service.md gives under a title."""
    text = (ROOT / "docs/service.md").read_text(encoding="utf-8")
    return text.partition(f"## {title}\n")[2].partition("```ini\n")[2].partition("```")[0]


def why_not() -> "str | None":
    """Say why no systemd can be booted here."""
    if os.geteuid() != 0:
        return "booting a systemd takes root"
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing or not Path("/lib/systemd/systemd").exists():
        return f"{', '.join(missing) or 'systemd'} not installed: {PACKAGES}"
    flags = [f"--{name}" for name in NAMESPACES]
    tried = subprocess.run(
        ["unshare", *flags, "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        check=False,
    )
    return None if tried.returncode == 0 else "this machine grants no namespaces"


def output(*argv: str) -> str:
    """Return what a program prints, which must succeed."""
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def why_no_package() -> "str | None":
    """Say why no package can be built and installed here."""
    if not shutil.which("dpkg-deb") or not Path(SYSTEM_PYTHON).exists():
        return "this is no Debian, or it has no Python of its own"
    if output(SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info >= (3, 10))") != "True":
        return f"{SYSTEM_PYTHON} is older than 3.10"
    index = (sys.executable, "-m", "pip", "index", "versions", "cronsim")
    if subprocess.run(index, capture_output=True, check=False).returncode:
        return "no package index can be reached"
    return None


def build_package(made: Path) -> "tuple[Path, str, str]":
    """Build the package for this machine, or skip; return it, its Python and its architecture."""
    if reason := why_no_package():
        pytest.skip(reason)
    python = output(SYSTEM_PYTHON, "-c", "import sys; print('{}.{}'.format(*sys.version_info))")
    arch = output("dpkg", "--print-architecture")
    script = str(ROOT / "packaging/deb/build.py")
    build = [sys.executable, script, "--arch", arch, "--python", python]
    done = subprocess.run([*build, "-o", str(made)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (package,) = made.glob("*.deb")
    return package, python, arch


class Rig:
    """One booted systemd, its files and its units."""

    def __init__(self, directory: Path, lower: Path = Path("/"), **binds: str) -> None:
        """Boot.

        Args:
            directory: Scratch space of this machine.
            lower: The root to begin with.
            binds: Where directories of this machine appear, by their path.
        """
        self.pid = 0
        self._groups = list(own_groups(f"tegrascope-tests-{os.getpid()}-{directory.name}"))
        space = directory / "rig"
        space.mkdir()
        flags = [f"--{name}" for name in NAMESPACES]
        pairs = [f"{place}:{where}" for place, where in binds.items()]
        with (directory / "console.log").open("w") as console:
            self._unshare = subprocess.Popen(
                [
                    *("unshare", *flags, "--propagation", "private"),
                    *("--fork", "--kill-child=SIGKILL", "--"),
                    *(str(BOOT), str(space), str(lower), *pairs),
                ],
                stdout=console,
                stderr=console,
                preexec_fn=self._join_groups,
            )
        self._console = directory / "console.log"
        try:
            self.pid = self.wait_for(self._init)
            self.wait_for(lambda: self.run("test", "-S", "/run/systemd/private").returncode == 0)
            self.run("systemctl", "is-system-running", "--wait")
        except BaseException:
            self.down()
            raise

    def _join_groups(self) -> None:
        for group in self._groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def _init(self) -> int:
        """Return systemd's pid as seen from here; 0 while it is none yet."""
        assert self._unshare.poll() is None, self._console.read_text()
        task = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}")
        for pid in (task / "children").read_text().split():
            if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                return int(pid)
        return 0

    def run(
        self,
        *argv: str,
        check: bool = False,
        given: "str | None" = None,
        seconds: float = PATIENCE_SECONDS,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command inside, as root."""
        spaces = [f"--{name}" for name in NAMESPACES]
        done = subprocess.run(
            [
                *("nsenter", "-t", str(self.pid), *spaces, "--root", "--wd", "--"),
                *("env", "-i", "HOME=/root", "LANG=C.UTF-8", f"PATH={PATH}", *argv),
            ],
            capture_output=True,
            text=True,
            input=given,
            timeout=seconds,
            check=False,
        )
        if check:
            assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done

    def systemctl(self, *argv: str) -> str:
        """Run systemctl, which must succeed; return what it said."""
        return self.run("systemctl", *argv, check=True).stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.systemctl("show", "-P", name, unit)

    def journal(self, unit: str) -> str:
        """Return what a unit said, and what was said of it."""
        return self.run("journalctl", "-u", unit, "-o", "cat", "--no-pager").stdout

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file inside."""
        script = f"mkdir -p '{Path(path).parent}'; cat >'{path}'; chmod {mode:o} '{path}'"
        self.run("sh", "-c", script, given=text, check=True)

    def get(self, path: str) -> str:
        """Return the body of a page that is served inside; nothing while nobody serves."""
        ask = f"GET /{path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n"
        script = f"exec 3<>/dev/tcp/127.0.0.1/9754 && printf '{ask}' >&3 && cat <&3"
        return self.run("bash", "-c", script).stdout.partition("\n\n")[2]

    def json(self, path: str) -> Any:
        """Return a page of the API."""
        return json.loads(self.get(path) or "{}")

    def metric(self, series: str) -> "float | None":
        """Return the value of the first series whose text begins so."""
        for line in self.get("metrics").splitlines():
            if line.startswith(series):
                return float(line.rpartition(" ")[2])
        return None

    def wait_for(self, what: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Return what a question is answered, as soon as the answer is true."""
        until = time.monotonic() + seconds
        while not (answer := what()):
            if time.monotonic() > until:
                raise AssertionError(f"waited {seconds} s in vain; {self.journal('tegrascope*')}")
            time.sleep(0.2)
        return answer

    def down(self) -> None:
        """End all of it at once, and take our control groups away again."""
        self._unshare.kill()
        self._unshare.wait(60)
        for group in self._groups:
            for _ in range(100):
                inner = [path for path, _, _ in os.walk(group, topdown=False)]
                with contextlib.suppress(OSError):
                    for path in inner:
                        Path(path).rmdir()
                if not group.exists():
                    break
                time.sleep(0.02)


def own_groups(name: str) -> Iterator[Path]:
    """Make a control group below our own in each hierarchy."""
    mounted = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, where = line.split(":", 2)
        root = mounted / controllers.removeprefix("name=")
        if not controllers:
            root = mounted / "unified" if (mounted / "unified").is_dir() else mounted
        parent = root / where.lstrip("/")
        if not parent.is_dir():
            continue
        group = parent / name
        group.mkdir(exist_ok=True)
        for key in ("cpuset.cpus", "cpuset.mems"):  # of the first version, where they begin empty
            if (group / key).is_file() and not (group / key).read_text().strip():
                with contextlib.suppress(OSError):
                    (group / key).write_text((parent / key).read_text())
        yield group


@pytest.fixture(scope="module")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Rig]]:
    """Boot systems, which end with the module."""
    if reason := why_not():
        pytest.skip(reason)
    booted: list[Rig] = []

    def make(**binds: str) -> Rig:
        booted.append(Rig(tmp_path_factory.mktemp("systemd"), **binds))
        return booted[-1]

    yield make
    for rig in booted:
        rig.down()


@pytest.fixture(scope="module")
def machine(boot: Callable[..., Rig]) -> Rig:
    """A system on which tegrascope is installed for all, with a played tegrastats and no unit."""
    import pydantic

    site = Path(pydantic.__file__).parents[1]
    rig = boot(**{sys.base_prefix: PYTHON, str(site): SITE, str(ROOT): CHECKOUT})
    hidden = "mount -t tmpfs none /root && mount -t tmpfs none /home"
    alone = rig.run("unshare", "--mount", "sh", "-c", f"{hidden} && exec {INTERPRETER} -c pass")
    if alone.returncode != 0:
        pytest.skip(f"this Python does not start where homes are hidden: {alone.stderr.strip()}")
    rig.write("/usr/bin/tegrascope", TEGRASCOPE, 0o755)
    rig.write("/usr/bin/tegrastats", TEGRASTATS, 0o755)
    return rig


@pytest.fixture(scope="module")
def board(machine: Rig) -> Rig:
    """The same, with our units and user in place."""
    for unit in UNITS:
        machine.write(f"/etc/systemd/system/{unit.name}", unit.read_text())
    users = (SYSTEMD / "tegrascope.sysusers").read_text()
    machine.write("/usr/lib/sysusers.d/tegrascope.conf", users)
    machine.run("systemd-sysusers", check=True)
    machine.systemctl("daemon-reload")
    return machine
