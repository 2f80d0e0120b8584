"""Alerts for real: daemon, Prometheus, Alertmanager and who is told, all as they are shipped."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemons import Daemon
from tests.monitoring.prometheus import Alertmanager, Webhook, wait_for
from tests.monitoring.rule_files import RULES, SHIPPED, shortened
from tests.monitoring.servers import needs_alertmanager, needs_prometheus

# Five minutes become three seconds.
BY = 100
CONFIG = """
telemetry: {source: simulator, interval: 103ms}
workloads:
- {name: detector, backend: window, device: dla0}
- {name: frames, model: "builtin:mobilenet", backend: onnxruntime, device: dla0, threads: 1,
   warm_up: 0s, baseline: 0s, duration: 8s}
"""
IDLE = {
    "alertname": "TegraDlaIdle",
    "component": "dla",
    "core": "0",
    "device": "dla0",
    "job": "tegrascope",
    "severity": "warning",
    "simulated": "true",
    "workload": "detector",
}

pytestmark = [needs_prometheus, needs_alertmanager]


@pytest.fixture
def rules(tmp_path) -> list[Path]:
    """The shipped rules, with every duration a hundredth of what it is."""
    made = []
    for path in RULES:
        made.append(tmp_path / path.name)
        text = yaml.safe_dump(shortened(yaml.safe_load(path.read_text("utf-8")), BY))
        made[-1].write_text(text, encoding="utf-8")
    return made


@pytest.fixture
def webhook(monitoring) -> Webhook:
    return monitoring.webhook()


@pytest.fixture
def alertmanager(monitoring, webhook) -> Alertmanager:
    """The shipped example, quicker, which tells one receiver all and of simulated boards too."""
    config = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text("utf-8"))
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": webhook.url}]
    return monitoring.alertmanager(shortened(config, BY))


def post(daemon: Daemon, path: str, **body: str) -> Any:
    """Ask the daemon for something, with its token."""
    token = (daemon.state_dir / "token").read_text().strip()
    request = urllib.request.Request(
        daemon.url + path,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_a_dla_that_falls_idle_is_told_and_so_is_its_return(
    start, monitoring, alertmanager, webhook, rules
):
    """A window is open on a DLA core and its work ends: someone is told, and when it goes on."""
    daemon = start(CONFIG)
    prometheus = monitoring.scraping(
        daemon.address,
        rules=rules,
        alerting={
            "alertmanagers": [{"static_configs": [{"targets": [alertmanager.address]}]}],
        },
    )
    prometheus.wait_for_scrape()
    post(daemon, "api/v1/runs", workload="frames")
    used = "instance_core:tegra_dla_powered_ratio:avg5m{core='0'} > 0"
    wait_for(lambda: prometheus.values(used), told=daemon.log)
    # The window opens on a core that works.
    post(daemon, "api/v1/windows", event="begin", workload="detector")

    told, *_ = wait_for(lambda: webhook.alerts(alertname="TegraDlaIdle"), 90, daemon.log)
    assert told["labels"] == IDLE | {"instance": daemon.address}
    assert told["annotations"]["summary"].startswith("A DLA core is idle")
    assert daemon.address in told["annotations"]["description"]
    assert daemon.runs(workload="frames", outcome="ok")
    assert daemon.metric('tegra_dla_active{core="0"') == 0
    assert (
        daemon.metric('tegra_inference_run_active{device="dla0",simulated="true",workload="d') == 1
    )

    post(daemon, "api/v1/runs", workload="frames")
    ended, *_ = wait_for(lambda: webhook.alerts("resolved", alertname="TegraDlaIdle"), 90)
    assert ended["fingerprint"] == told["fingerprint"]
    assert ended["endsAt"] > told["startsAt"]


def notify(alertmanager: Alertmanager, *alerts: "dict[str, str]") -> None:
    """Tell Alertmanager of alerts, as Prometheus does."""
    request = urllib.request.Request(
        f"http://{alertmanager.address}/api/v2/alerts",
        data=json.dumps(
            [{"labels": {"job": "tegrascope", **labels}} for labels in alerts]
        ).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10):
        pass


def test_what_is_worse_holds_back_the_rest(alertmanager, webhook):
    """On the same device alone: all of a dead daemon's, and warnings beside what is critical.

    That nobody is told of mere information is a matter of the route, and not of this.
    """
    sent = {
        "down": {"alertname": "TegrascopeDown", "severity": "critical", "component": "daemon",
                 "instance": "dead"},
        "of the dead": {"alertname": "TegraTemperatureCritical", "severity": "critical",
                        "component": "board", "instance": "dead"},
        "stale": {"alertname": "TegrascopeTelemetryStale", "severity": "critical",
                  "component": "daemon", "instance": "mute"},
        "of the mute": {"alertname": "TegraDlaIdle", "severity": "warning", "component": "dla",
                        "instance": "mute"},
        "bypassed": {"alertname": "TegraDlaBypassed", "severity": "critical", "component": "dla",
                     "instance": "ill"},
        "beside it": {"alertname": "TegraDlaIdle", "severity": "warning", "component": "dla",
                      "instance": "ill"},
        "another matter": {"alertname": "TegraThrottled", "severity": "warning",
                           "component": "board", "instance": "ill"},
        "another device": {"alertname": "TegraDlaIdle", "severity": "warning", "component": "dla",
                           "instance": "well"},
        "information": {"alertname": "TegraDlaFallback", "severity": "info", "component": "dla",
                        "instance": "well"},
    }  # fmt: skip
    notify(alertmanager, *sent.values())
    held = {"of the dead", "of the mute", "beside it"}

    def key(labels: "dict[str, str]") -> tuple[str, str]:
        return labels["alertname"], labels["instance"]

    names = {key(labels): name for name, labels in sent.items()}
    wait_for(lambda: len(alertmanager.alerts()) == len(sent))
    wait_for(
        lambda: (
            {
                names[key(one["labels"])]
                for one in alertmanager.alerts()
                if one["status"]["inhibitedBy"]
            }
            == held
        )
    )
    expected = set(sent) - held
    wait_for(lambda: expected <= {names[key(one["labels"])] for one in webhook.alerts()})
    assert {names[key(one["labels"])] for one in webhook.alerts()} == expected
