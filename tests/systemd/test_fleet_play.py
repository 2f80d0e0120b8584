"""packaging/ansible.yml on three boards with a real systemd each, and a real Prometheus.

All four have network namespaces of their own, joined by a bridge. Ansible reaches them by its own
ssh plug-in, with a program in ssh's place that enters the namespaces.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.doctor.boards import NX

from .conftest import NAMESPACES, PATH, ROOT, TEGRASTATS, Rig, build_package

PLAY = str(ROOT / "packaging/ansible.yml")
BOARDS = {"robot-001": "10.77.0.11", "robot-002": "10.77.0.12", "robot-003": "10.77.0.13"}
MONITOR, STRANGER = "10.77.0.1", "10.77.0.2"
PRIVATE_DIRECTORY = "tegrascope"
DROPPED = 28  # curl's status if it waited in vain.
CONFIG = """
telemetry: {interval: 250ms}
workloads:
- {name: brief, command: sleep 0.2, device: external, baseline: 0s, every: 3s}
"""
SSH = """#!/bin/sh
# The last two words are the address and the command.
for word; do address=$command command=$word; done
case $address in
PIDS
*) exit 255 ;;
esac
exec nsenter -t $pid SPACES --root --wd -- \\
  env -i HOME=/root LANG=C.UTF-8 PATH=THERE sh -c "$command"
"""


class Fleet:
    """Three boards, the machine of Prometheus, and what an operator has."""

    def __init__(self, boot: Callable[..., Rig], directory: Path, package: Path) -> None:
        """Boot and join them; nothing is installed on the boards."""
        self.directory, self.package = directory, package
        self.monitor = boot()
        self.boards = {name: boot() for name in BOARDS}
        network = [
            f"ip address add {MONITOR}/24 dev fleet",
            f"ip address add {STRANGER}/24 dev fleet",
        ]
        self._net(self.monitor, "ip link add fleet type bridge", *network, "ip link set fleet up")
        for number, (name, address) in enumerate(BOARDS.items()):
            port, board = f"port{number}", self.boards[name]
            self._net(
                self.monitor,
                f"ip link add {port} type veth peer name eth0 netns {board.pid}",
                f"ip link set {port} master fleet up",
            )
            self._net(board, f"ip address add {address}/24 dev eth0", "ip link set eth0 up")
            board.write("/usr/bin/tegrastats", TEGRASTATS, 0o755)
        self.config = directory / "tegrascope.yaml"
        self.config.write_text(CONFIG)
        self._write_inventory()

    @staticmethod
    def _net(rig: Rig, *commands: str) -> None:
        """Run commands of this machine in the network of another."""
        for command in commands:
            enter = ("nsenter", "-t", str(rig.pid), "--net", "--")
            subprocess.run([*enter, *command.split()], check=True, capture_output=True)

    def _write_inventory(self) -> None:
        pids = {BOARDS[name]: rig.pid for name, rig in self.boards.items()}
        pids[MONITOR] = self.monitor.pid
        ssh = self.directory / "ssh"
        cases = "\n".join(f"{address}) pid={pid} ;;" for address, pid in pids.items())
        spaces = " ".join(f"--{name}" for name in NAMESPACES)
        ssh.write_text(SSH.replace("PIDS", cases).replace("SPACES", spaces).replace("THERE", PATH))
        ssh.chmod(0o755)
        boards = [f"{name} ansible_host={address} site=hall-1" for name, address in BOARDS.items()]
        (self.directory / "boards.ini").write_text(
            "\n".join([
                *("[boards]", *boards, "[prometheus]", f"monitor ansible_host={MONITOR}"),
                *("[all:vars]", "ansible_user=root", "ansible_become_method=su"),
                "ansible_python_interpreter=/usr/bin/python3",
                *(f"ansible_ssh_executable={ssh}", "ansible_ssh_transfer_method=piped"),
            ])
        )  # fmt: skip

    def play(self, *argv: str, **given: str) -> "subprocess.CompletedProcess[str]":
        """Run the play with variables."""
        values = {"package": str(self.package), "config": str(self.config), "scrapers": MONITOR}
        extra = [f"-e{name}={value}" for name, value in {**values, **given}.items()]
        inventory = str(self.directory / "boards.ini")
        home = {"HOME": str(self.directory), "PATH": PATH, "LANG": "C.UTF-8"}
        return subprocess.run(
            [ANSIBLE or "", "-i", inventory, PLAY, *extra, *argv],
            env={**home, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"},
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )

    def curl(self, source: str, board: str, *options: str) -> "tuple[int, str]":
        """Ask a board from an address of Prometheus' machine; return curl's status and HTTP's."""
        given = ("--cacert", "/etc/prometheus/robots-ca.pem", "--interface", source, "-m", "4")
        url = f"https://{BOARDS[board]}:9754/metrics"
        written = ("-s", "-o", "/dev/null", "-w", "%{http_code}")
        done = self.monitor.run("curl", *given, *options, *written, url)
        return done.returncode, done.stdout

    def password(self) -> str:
        """Return what the play chose."""
        return (self.directory / PRIVATE_DIRECTORY / "password").read_text().strip()


def find_ansible() -> "str | None":
    """Return the program that plays, of this environment or of the machine."""
    beside = Path(sys.executable).with_name("ansible-playbook")
    return str(beside) if beside.exists() else shutil.which("ansible-playbook")


ANSIBLE = find_ansible()


def counts(told: str) -> "dict[str, dict[str, int]]":
    """Return the numbers of Ansible's last lines by host."""
    recap = told.rpartition("PLAY RECAP")[2]
    found = {}
    for line in recap.splitlines():
        if numbers := re.findall(r"(\w+)=(\d+)", line):
            found[line.split()[0]] = {name: int(count) for name, count in numbers}
    return found


def documented_job() -> str:
    """Return the configuration of Prometheus that docs/fleet.md gives for the play."""
    text = (ROOT / "docs/fleet.md").read_text(encoding="utf-8")
    return text.partition("## One command\n")[2].partition("```yaml\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def fleet(boot, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """A fleet on which the play ran once, and Debian's Prometheus with the documented job."""
    if ANSIBLE is None:
        pytest.skip("ansible-playbook is not installed: pip install ansible-core")
    missing = [name for name in ("prometheus", "curl", "openssl") if not shutil.which(name)]
    if missing or not Path("/lib/systemd/system/prometheus.service").exists():
        pytest.skip(f"{', '.join(missing) or 'the package prometheus'} is not installed")
    if subprocess.run(["/usr/bin/python3", "-c", "import apt"], check=False).returncode:
        pytest.skip("the module of Ansible needs python3-apt: apt install python3-apt")
    directory = tmp_path_factory.mktemp("fleet")
    package, _, _ = build_package(directory)
    fleet = Fleet(boot, directory, package)
    often = "global: {scrape_interval: 1s}\n"
    fleet.monitor.write("/etc/prometheus/prometheus.yml", often + documented_job())
    # About to be upgraded to a release without a DLA for it.
    board = fleet.boards["robot-003"]
    board.run("mount", "-t", "tmpfs", "tmpfs", "/sys/firmware", check=True)
    board.write("/sys/firmware/devicetree/base/compatible", NX)
    board.write("/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 1\n")
    board.write(
        "/etc/apt/sources.list.d/nvidia-l4t-apt-source.list",
        "deb https://repo.download.nvidia.com/jetson/common r39.2 main\n",
    )
    fleet.told = fleet.play()
    assert fleet.told.returncode == 0, fleet.told.stdout + fleet.told.stderr
    fleet.monitor.systemctl("start", "prometheus")
    return fleet


def test_prometheus_has_three_of_three_targets_up(fleet):
    """One command, and each board is scraped over TLS, with a user, under its own name."""

    def up() -> "dict[str, str]":
        asked = fleet.monitor.run("curl", "-s", "http://127.0.0.1:9090/api/v1/query?query=up")
        found = json.loads(asked.stdout or "{}").get("data", {}).get("result", [])
        return {one["metric"]["instance"]: one["value"][1] for one in found}

    expected = dict.fromkeys(BOARDS, "1")
    fleet.monitor.wait_for(lambda: up() == expected)
    print("targets up:", up())
    asked = fleet.monitor.run("curl", "-s", "http://127.0.0.1:9090/api/v1/targets", check=True)
    targets = json.loads(asked.stdout)["data"]["activeTargets"]
    assert {one["scrapeUrl"] for one in targets} == {
        f"https://{address}:9754/metrics" for address in BOARDS.values()
    }
    assert {one["labels"]["site"] for one in targets} == {"hall-1"}


def test_only_prometheus_with_its_password_gets_the_page(fleet):
    """An address that is not allowed gets no answer; one that is, none without a user."""
    user = ("-u", f"prometheus:{fleet.password()}")
    assert fleet.curl(MONITOR, "robot-001", *user) == (0, "200")
    assert fleet.curl(MONITOR, "robot-001") == (0, "401")
    assert fleet.curl(STRANGER, "robot-001", *user) == (DROPPED, "000")
    between = ("curl", "-s", "-k", "-m", "4", *user, f"https://{BOARDS['robot-001']}:9754/metrics")
    assert fleet.boards["robot-002"].run(*between).returncode == DROPPED


def test_key_of_a_board_is_its_own_and_stays_there(fleet):
    keys = set()
    for board in fleet.boards.values():
        keys.add(board.run("cat", "/etc/tegrascope/server.key", check=True).stdout)
        held = board.run("stat", "-c", "%U:%G %a", "/etc/tegrascope/server.key").stdout
        assert held == "root:tegrascope 640\n"
    assert len(keys) == len(BOARDS)
    kept = fleet.directory / PRIVATE_DIRECTORY
    assert [path.name for path in kept.rglob("*.key")] == ["ca.key"]
    assert {path.stat().st_mode & 0o077 for path in (kept / "ca.key", kept / "password")} == {0}


def test_configuration_is_the_given_one_opened(fleet):
    text = fleet.boards["robot-001"].run("cat", "/etc/tegrascope.yaml", check=True).stdout
    http = {"listen": "0.0.0.0:9754", "web_config_file": "/etc/tegrascope/web.yml"}
    assert yaml.safe_load(text) == {**yaml.safe_load(CONFIG), "http": http}


def test_board_that_is_about_to_lose_its_dla_is_named(fleet):
    warnings = re.findall(r"ok: \[(\S+)\] => .*\n\s*\"msg\": \"WARNING (.*)\"", fleet.told.stdout)
    assert [board for board, _ in warnings] == ["robot-003"]
    assert "Jetson Linux 39.2" in warnings[0][1]


def test_second_run_changes_nothing(fleet):
    again = fleet.play()
    assert again.returncode == 0, again.stdout + again.stderr
    assert {host: one["changed"] for host, one in counts(again.stdout).items()} == {
        **dict.fromkeys(BOARDS, 0),
        "monitor": 0,
    }


def test_wrong_addresses_and_a_wrong_configuration_are_refused(fleet):
    """Nothing changes, and the boards go on."""
    told = fleet.play(scrapers="monitor.example")
    assert told.returncode != 0
    assert "addresses or networks of Prometheus" in told.stdout
    fleet.config.write_text("workloads: [{name: brief}]")
    told = fleet.play("--start-at-task=Write the configuration, if it has no error")
    fleet.config.write_text(CONFIG)
    assert told.returncode != 0
    assert "failed to validate" in told.stdout
    text = fleet.boards["robot-001"].run("cat", "/etc/tegrascope.yaml", check=True).stdout
    assert "sleep 0.2" in text
    user = ("-u", f"prometheus:{fleet.password()}")
    assert fleet.curl(MONITOR, "robot-001", *user) == (0, "200")
