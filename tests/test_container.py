"""The files of packaging/container and the play: valid, and of one mind with the rest."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from tegrascope.daemon.settings.config import Config
from tests.fakes.processes import PATIENCE_SECONDS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "packaging/container"
PAGE = (ROOT / "docs/container.md").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
BOARD = yaml.safe_load((FOLDER / "compose.board.yaml").read_text(encoding="utf-8"))
DAEMONSET = list(yaml.safe_load_all((FOLDER / "daemonset.yaml").read_text(encoding="utf-8")))
POD = DAEMONSET[-1]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ("compose-spec", "packaging/container/compose.yaml"),
        ("compose-spec", "packaging/container/compose.board.yaml"),
        ("github-workflows", ".github/workflows/release.yml"),
    ],
)
def test_file_fits_its_schema(schema, name):
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}")
    done = subprocess.run([*command, str(ROOT / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_mounted_file_of_the_checkout_is_there():
    mounts = [one for service in COMPOSE["services"].values() for one in service.get("volumes", [])]
    files = [one.split(":")[0] for one in mounts if one.startswith(".")]
    assert len(files) == 6
    assert [one for one in files if not (FOLDER / one).exists()] == []


def test_ports_of_compose_are_for_this_machine_only():
    (ports,) = (one["ports"] for one in COMPOSE["services"].values() if "ports" in one)
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert {port.rpartition(":")[2] for port in ports} == {"9754", "9090", "9093", "3000"}


def test_compose_for_a_board_mounts_what_the_page_says():
    command = PAGE.partition("docker run -d ")[2].partition("```")[0]
    documented = set(re.findall(r"-v (/\S+)", command))
    assert set(BOARD["services"]["tegrascope"]["volumes"]) == documented


def test_pod_has_no_privilege():
    (container,) = POD["containers"]
    rights = container["securityContext"]
    assert not rights["allowPrivilegeEscalation"]
    assert rights["readOnlyRootFilesystem"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert POD["securityContext"]["runAsNonRoot"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(POD)
    writable = {one["name"] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert writable == {"sockets", "state", "tmp"}


def test_pod_mounts_each_of_its_volumes():
    (container,) = POD["containers"]
    mounted = {one["name"] for one in container["volumeMounts"]}
    assert mounted == {one["name"] for one in POD["volumes"]}
    for volume in POD["volumes"]:
        if "hostPath" in volume:
            assert volume["hostPath"]["path"] in PAGE


def test_configuration_of_the_pod_is_one():
    (text,) = DAEMONSET[1]["data"].values()
    assert Config.model_validate(yaml.safe_load(text)).http.listen == "0.0.0.0:9754"


def test_user_of_the_pod_is_that_of_the_images():
    recipe = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:--uid|^USER) (\d+)", recipe, re.MULTILINE)) == {"10001"}
    assert POD["securityContext"]["runAsUser"] == 10001
    assert "install -d -o 10001 /var/lib/tegrascope-k3s" in PAGE


def test_receiver_prints_each_alert():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = (sys.executable, "-u", str(FOLDER / "receiver.py"), str(port))
    url = f"http://127.0.0.1:{port}/"
    alert = {"labels": {"alertname": "Hot", "instance": "a"}, "annotations": {"summary": "It is."}}
    sent = json.dumps({"alerts": [{"status": "firing", **alert}, {"status": "resolved", **alert}]})
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as receiver:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                urllib.request.urlopen(url, sent.encode(), timeout=10).close()
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.1)
        assert receiver.stdout is not None
        lines = [receiver.stdout.readline() for _ in range(2)]
        receiver.terminate()
    assert lines == ["firing Hot a It is.\n", "resolved Hot a It is.\n"]
