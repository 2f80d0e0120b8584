"""The configurations for a fleet, as they are shipped, against real Prometheus servers."""

import base64
import json
import re
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.monitoring.fleets import OPENMETRICS, CountingTarget, fleet, write_request
from tests.monitoring.prometheus import Prometheus, needs_prometheus, wait_for
from tests.monitoring.servers import needs

__all__ = ["fleet"]

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "grafana/prometheus"
PAGE = ROOT / "docs/fleet.md"
AWAY_SCRAPES = 20
PASSWORD = "push-secret"
BCRYPT = "$2b$04$Gu5EPSMfTzbobHdKhptaruzFHv1470q/O4N5ucBkQm6AbQqt3QGES"
RECEIVES = ("--web.enable-remote-write-receiver",)


def shipped(name: str, **instead: str) -> str:
    """Return a shipped configuration, at the pace of a test and with words replaced."""
    text = (SHIPPED / name).read_text(encoding="utf-8")
    text = re.sub(r"^  - (rules/|receiver-rules)", rf"  - {SHIPPED}/\1", text, flags=re.MULTILINE)
    text = re.sub(r"(scrape|evaluation)_interval: \d+s", r"\1_interval: 1s", text)
    for old, new in instead.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@needs_prometheus
@pytest.mark.parametrize(
    "name", ["fleet-files.yml", "fleet-http.yml", "robot-agent.yml", "receiver.yml"]
)
def test_prometheus_reads_what_is_shipped(name):
    """Each file can be given to Prometheus as it stands."""
    told = subprocess.run(
        ["promtool", "check", "config", SHIPPED / name], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("name", ["fleet-files.yml", "fleet-http.yml", "receiver.yml"])
def test_alerts_of_a_fleet_are_told_to_someone(name):
    """What loads the rules names the Alertmanager too, as the configuration of one board does."""
    one = yaml.safe_load((SHIPPED / "prometheus.yml").read_text(encoding="utf-8"))
    many = yaml.safe_load((SHIPPED / name).read_text(encoding="utf-8"))
    assert one["alerting"]["alertmanagers"]
    more = ["receiver-rules.yml"] if name == "receiver.yml" else []
    assert many["rule_files"] == [*one["rule_files"], *more]
    assert many["alerting"] == one["alerting"]


@needs_prometheus
def test_silent_robots_are_found_by_the_query_of_the_page(tmp_path):
    """Who sent during the last day and sends no more; not who sends, nor who left days ago."""
    (query,) = re.findall(r"^```promql\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL | re.M)
    silent = {"labels": 'up{instance="off", job="tegrascope"}', "value": 1}
    cases = {
        "input_series": [
            {"series": 'up{instance="off", job="tegrascope"}', "values": "1x9 _x2000"},
            {"series": 'up{instance="on", job="tegrascope"}', "values": "1x2009"},
        ],
        "promql_expr_test": [
            {"expr": query, "eval_time": at, "exp_samples": found}
            for at, found in (("9m", []), ("1h", [silent]), ("1500m", []))
        ],
    }
    path = tmp_path / "cases.yml"
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [{"interval": "1m", **cases}]}))
    told = subprocess.run(
        ["promtool", "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


@needs_prometheus
def test_prometheus_reads_what_the_page_shows(tmp_path):
    """Each YAML of the page is a configuration, a part of one, or a web configuration."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 2
    path = tmp_path / "shown.yml"
    for block in blocks:
        web = "basic_auth_users" in block
        path.write_text(re.sub(r"\$2y\$\S+", BCRYPT, block) if web else block)
        check = ["web-config"] if web else ["config", "--syntax-only"]
        told = subprocess.run(
            ["promtool", "check", *check, path], capture_output=True, text=True, check=False
        )
        said = told.stdout + told.stderr
        # A certificate that is named need not be there to be read about.
        assert told.returncode == 0 or "no such file" in said, said


@needs_prometheus
def test_fleet_is_found(fleet, monitoring, tmp_path):
    """Both ways of discovery find every device, each under its own name and place."""
    (tmp_path / "targets").mkdir()
    listed = yaml.safe_load((SHIPPED / "targets/robots.yml").read_text(encoding="utf-8"))
    counting = CountingTarget(f"{fleet.url}device/002/metrics")
    try:
        listed[0]["targets"] = [counting.address]
        (tmp_path / "targets/robots.yml").write_text(yaml.safe_dump(listed[:1]))
        by_http = monitoring.prometheus(
            shipped("fleet-http.yml", **{"http://127.0.0.1:9760/": fleet.url})
        )
        by_files = monitoring.prometheus(
            shipped("fleet-files.yml", **{"targets/*.yml": f"{tmp_path}/targets/*.yml"})
        )
        by_http.wait_for_scrape(6)
        by_files.wait_for_scrape(1)
        (robot,) = by_files.query("tegra_info")
    finally:
        counting.stop()
    names = {one["metric"]["instance"] for one in by_http.query("tegra_info")}
    assert names == {f"sim-00{number}" for number in range(1, 7)}
    assert all(one["metric"]["site"] for one in by_http.query("tegra_info"))
    assert by_http.values('tegrascope_source_up{source="simulator"}') == [1.0] * 6
    runs = by_http.values('sum by (instance) (tegra_inference_runs_total{simulated="true"})')
    assert len(runs) == 6
    assert {"instance": "robot-001", "site": "hall-1"}.items() <= robot["metric"].items()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 with its key, and a web configuration with both."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=receiver", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", "receiver.key", "-out", "receiver.pem"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    web = {
        "tls_server_config": {"cert_file": "receiver.pem", "key_file": "receiver.key"},
        "basic_auth_users": {"robot": BCRYPT},
    }
    (tmp_path / "web.yml").write_text(yaml.safe_dump(web))
    (tmp_path / "password").write_text(PASSWORD)
    return tmp_path / "receiver.pem"


def opener(certificate: Path) -> urllib.request.OpenerDirector:
    """Return who knows the receiver's certificate and password."""
    context = ssl.create_default_context(cafile=str(certificate))
    made = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    secret = base64.b64encode(f"robot:{PASSWORD}".encode()).decode()
    made.addheaders = [("Authorization", f"Basic {secret}")]
    return made


@needs_prometheus
@needs("openssl", "openssl")
def test_nothing_is_lost_while_the_receiver_is_away(fleet, monitoring, certificate, monkeypatch):
    """Killed for 20 scrapes, it has every one of them soon after it is back, and no other."""
    monkeypatch.setenv("ROBOT", "robot-007")
    monkeypatch.setenv("SITE", "yard")
    counting = CountingTarget(f"{fleet.url}device/001/metrics")
    try:
        receiver = monitoring.prometheus(
            shipped("receiver.yml"),
            *RECEIVES,
            f"--web.config.file={certificate.parent / 'web.yml'}",
            opener=opener(certificate),
            scheme="https",
        )
        push = {
            "https://prometheus.example/": receiver.url,
            "/etc/prometheus/push-password": str(certificate.parent / "password"),
            "/etc/prometheus/receiver-ca.pem": str(certificate),
            "127.0.0.1:9754": counting.address,
        }
        agent = monitoring.prometheus(
            shipped("robot-agent.yml", **push),
            "--enable-feature=expand-external-labels",
            agent=True,
        )
        wait_for(lambda: len(points(receiver)) >= 3, told=agent.log)
        receiver.stop(signal.SIGKILL)
        left = counting.scrapes
        wait_for(lambda: counting.scrapes >= left + AWAY_SCRAPES, told=agent.log)
        receiver.restart()
        back = counting.scrapes
        wait_for(lambda: points(receiver)[-1][1] >= back + 3, told=agent.log)
    finally:
        counting.stop()
    found = points(receiver)
    values = [value for _, value in found]
    assert values[0] <= left
    assert all(later == earlier + 1 for earlier, later in pairwise(values))
    samples = receiver.series("tegrascope_samples_total")
    # One more scrape may have come between the two questions.
    assert [at for at, _ in samples if at <= found[-1][0]] == [at for at, _ in found]
    (info,) = receiver.query("tegra_info")
    told = {"instance": "robot-007", "robot": "robot-007", "site": "yard", "job": "tegrascope"}
    assert told.items() <= info["metric"].items()
    exemplars = receiver.exemplars("tegra_inference_latency_seconds_bucket", 600)
    assert all(one["labels"]["run_id"] for one in exemplars)
    assert exemplars
    assert receiver.query("python_info") == []


def points(receiver: Prometheus) -> list[tuple[float, float]]:
    """Return what the receiver has of the counter of scrapes; nothing is not yet."""
    return receiver.series("scrapes_total") if receiver.query("scrapes_total[5m]") else [(0, 0)]


def push(receiver: Prometheus, name: str, seconds_ago: float) -> int:
    """Push one sample; return the status."""
    at = round((time.time() - seconds_ago) * 1000)
    body = write_request({"__name__": name, "instance": "robot-009"}, 1.0, at)
    headers = {"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
    request = urllib.request.Request(f"{receiver.url}api/v1/write", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@needs_prometheus
def test_receiver_takes_what_comes_hours_late(monitoring):
    """What a robot saw while it was cut off is taken; without the window it would be refused."""
    config = yaml.safe_load(shipped("receiver.yml"))
    receiver = monitoring.prometheus(config, *RECEIVES)
    strict = monitoring.prometheus({**config, "storage": {}}, *RECEIVES)
    for server in (receiver, strict):
        assert push(server, "others_now", 0) == 204
    assert push(receiver, "late", 23 * 3600) == 204
    assert receiver.value("late", time.time() - 23 * 3600 + 1) == 1.0
    assert push(strict, "late", 23 * 3600) == 400


def test_pages_are_those_of_a_daemon(fleet):
    """A device's page has runs, energy and health, all marked simulated; the list names them."""
    listed = json.loads(fleet.get("sd"))
    assert [one["labels"]["instance"] for one in listed] == [f"sim-00{n}" for n in range(1, 7)]
    (address,) = {target for one in listed for target in one["targets"]}
    assert address == fleet.address
    path = listed[0]["labels"]["__metrics_path__"].removeprefix("/")
    page = fleet.get(path)
    assert re.search(r'tegra_inference_runs_total\{.*outcome="ok".*simulated="true".*\} 1\.0', page)
    assert re.search(r'tegra_module_energy_joules_total\{simulated="true"\} [1-9]', page)
    assert 'tegrascope_source_up{source="simulator"} 1.0' in page
    lines = [line for line in page.splitlines() if line.startswith("tegra_")]
    assert all('simulated="true"' in line for line in lines)
    exact = fleet.get(path, Accept=OPENMETRICS)
    assert exact.endswith("# EOF\n")
    assert "run_id=" in exact
    (run, *_) = json.loads(fleet.get("device/1/api/v1/runs"))["runs"]
    assert (run["outcome"], run["energy"]["rule"] is not None) == ("ok", True)
    with pytest.raises(urllib.error.HTTPError) as refused:
        fleet.get("device/7/metrics")
    with refused.value as answer:
        assert answer.code == 404
