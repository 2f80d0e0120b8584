"""Alerts for real: daemon, Prometheus, Alertmanager and who is told, all as they are shipped."""

import json
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemons import Daemon
from tests.monitoring.fleets import PageTarget
from tests.monitoring.prometheus import Alertmanager, Webhook, scrape_config, wait_for
from tests.monitoring.rule_files import ROOT, RULES, SHIPPED, shortened
from tests.monitoring.rule_files import alerts as shipped_alerts
from tests.monitoring.servers import needs_alertmanager, needs_prometheus

# Five minutes become three seconds.
BY = 100
CONFIG = """
telemetry: {source: simulator, interval: 103ms}
workloads:
- {name: detector, backend: window, device: dla0}
- {name: frames, model: resnet50, backend: simulated, device: dla0,
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
    with urllib.request.urlopen(request, timeout=60) as answer:
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

    # Of a starved machine's slow load the same may be told for a moment, with the run's workload.
    idle = {"alertname": "TegraDlaIdle", "workload": "detector"}
    told, *_ = wait_for(lambda: webhook.alerts(**idle), told=daemon.log)
    assert told["labels"] == IDLE | {"instance": daemon.address}
    assert told["annotations"]["summary"].startswith("A DLA core is idle")
    assert daemon.address in told["annotations"]["description"]
    assert daemon.runs(workload="frames", outcome="ok")
    daemon.wait_for(lambda: daemon.metric('tegra_dla_active{core="0"') == 0)
    active = 'tegra_inference_run_active{device="dla0",simulated="true",workload="d'
    daemon.wait_for(lambda: daemon.metric(active) == 1)

    post(daemon, "api/v1/runs", workload="frames")
    ended, *_ = wait_for(lambda: webhook.alerts("resolved", **idle))
    assert ended["fingerprint"] == told["fingerprint"]
    assert ended["endsAt"] > told["startsAt"]


@pytest.mark.parametrize("name", [one["alert"] for one in shipped_alerts().values()])
def test_no_alert_of_a_simulated_fleet_reaches_a_person(name):
    """Its daemons' own alerts are not marked as simulated, and name the device alone."""
    (alert,) = (one for one in shipped_alerts().values() if one["alert"] == name)
    for instance, receiver in (
        ("sim-012", {"simulated"}),
        ("robot-7", {"pager", "chat", "nobody"}),
    ):
        labels = {**alert["labels"], "alertname": name, "instance": instance, "job": "tegrascope"}
        if instance == "sim-012" and labels["component"] != "daemon":
            labels["simulated"] = "true"
        done = subprocess.run(
            ["amtool", "config", "routes", "test", f"--config.file={SHIPPED / 'alertmanager.yml'}"]
            + [f"{key}={value}" for key, value in labels.items()],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() in receiver


def notify(alertmanager: Alertmanager, *alerts: "dict[str, str]") -> None:
    """Tell Alertmanager of alerts, as Prometheus does."""
    request = urllib.request.Request(
        f"http://{alertmanager.address}/api/v2/alerts",
        data=json.dumps(
            [{"labels": {"job": "tegrascope", **labels}} for labels in alerts]
        ).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass


def test_a_cause_holds_back_what_follows_from_it(alertmanager, webhook):
    """On the same device, core, zone or workload alone, and never what is critical.

    That nobody is told of mere information is a matter of the route, and not of this.
    """
    critical, warning, info = "critical", "warning", "info"
    sent: dict[str, dict[str, str]] = {}
    held = set()

    def add(instance: str, name: str, severity: str, is_held: bool = False, **more: str) -> None:
        labels = {"alertname": name, "severity": severity, "instance": instance, **more}
        sent[f"{instance} {name} {sorted(more.items())}"] = labels
        if is_held:
            held.add(f"{instance} {name} {sorted(more.items())}")

    add("dead", "TegrascopeDown", critical)
    add("dead", "TegraTemperatureCritical", critical, zone="cpu")
    add("dead", "TegraInferenceFailing", warning, True, workload="w")
    add("mute", "TegrascopeTelemetryStale", critical)
    add("mute", "TegraTemperatureCritical", critical, zone="cpu")
    add("mute", "TegraInferenceFailing", warning, workload="w")
    add("mute", "TegrascopeStoreRoomLow", warning)
    add("mute", "TegrascopeSourceRestarting", warning, True)
    add("mute", "TegrascopeCompanionDown", warning, True)
    add("hot", "TegraTemperatureCritical", critical, zone="cpu")
    add("hot", "TegraTemperatureRising", warning, True, zone="cpu")
    add("hot", "TegraTemperatureRising", warning, zone="gpu")
    add("hot", "TegraThermalThrottled", warning, True, kind="cpu_thermal")
    add("hot", "TegraOverCurrent", warning, kind="oc3")
    add("hot", "TegraPowerBudgetExceeded", warning)
    add("full", "TegrascopeStoreFailing", critical)
    add("full", "TegrascopeStoreRoomLow", warning, True)
    add("ill", "TegraDlaBypassed", warning, core="0", workload="w")
    add("ill", "TegraDlaIdle", warning, True, core="0", workload="w")
    add("ill", "TegraDlaIdle", warning, core="0", workload="v")
    add("ill", "TegraDlaIdle", warning, core="1", workload="w")
    add("ill", "TegraDlaUnderused", warning, True, core="0")
    add("ill", "TegraDlaSaturated", warning, core="1")
    add("ill", "TegraInferenceFailing", warning, workload="w")
    add("ill", "TegraInferenceOverdue", warning, True, workload="w")
    add("ill", "TegraInferenceOverdue", warning, workload="v")
    add("well", "TegraDlaFallback", info, core="0")
    names = {tuple(sorted(labels.items())): name for name, labels in sent.items()}

    def name(alert: "dict[str, Any]") -> str:
        labels = {key: value for key, value in alert["labels"].items() if key != "job"}
        return names[tuple(sorted(labels.items()))]

    def held_back() -> set[str]:
        return {name(one) for one in alertmanager.alerts() if one["status"]["inhibitedBy"]}

    notify(alertmanager, *sent.values())
    wait_for(lambda: len(alertmanager.alerts()) == len(sent))
    wait_for(lambda: held_back() == held, told=held)
    expected = set(sent) - held
    wait_for(lambda: expected <= {name(one) for one in webhook.alerts()})
    assert {name(one) for one in webhook.alerts()} == expected


def test_the_pager_waits_for_a_minute_at_most():
    """A second device with the same trouble is told soon, and each notice says where to read."""
    config = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text("utf-8"))
    (pager,) = (one for one in config["route"]["routes"] if one["receiver"] == "pager")
    assert pager["group_interval"] == "1m"


# What makes each alert fire: series with their values in trouble and without. "+1" grows by one at
# each scrape, and None is absent.
RUN = 'workload="w",device="dla0"'
PROVOKED: "dict[str, dict[str, tuple[object, object]]]" = {
    "TegraThermalThrottled": {'tegra_throttle_events_total{kind="gpu_thermal"}': ("+1", "+0")},
    "TegraUnderVoltage": {
        'tegra_throttle_events_total{kind="oc1"}': ("+1", "+0"),
        'tegra_throttle_under_voltage_flag{kind="oc1"}': (1, 1),
    },
    "TegraOverCurrent": {'tegra_throttle_events_total{kind="oc3"}': ("+1", "+0")},
    "TegraTemperatureCritical": {
        'tegra_temperature_celsius{zone="tj"}': (103.0, 50.0),
        'tegra_temperature_trip_celsius{zone="tj",kind="critical"}': (104.5, 104.5),
    },
    "TegraPowerBudgetExceeded": {
        "tegrascope_module_power_budget_watts": (40, 40),
        "tegra_module_energy_joules_total": ("+50", "+10"),
        "tegra_module_energy_observed_seconds_total": ("+1", "+1"),
    },
    "TegraMemoryLow": {
        "tegra_ram_available_bytes": (1e8, 4e9),
        "tegra_ram_total_bytes": (8e9, 8e9),
    },
    "TegraSwapLow": {"tegra_swap_used_bytes": (4e9, 1e9), "tegra_swap_total_bytes": (4e9, 4e9)},
    "TegrascopeDown": {"up": (0, 1)},
    "TegrascopeTelemetryStale": {
        'tegrascope_source_up{source="tegrastats"}': (0, 1),
        'tegrascope_samples_total{source="tegrastats"}': ("+0", "+1"),
    },
    "TegrascopeCompanionDown": {
        'tegrascope_source_up{source="ftrace"}': (0, 1),
        'tegrascope_source_up{source="tegrastats"}': (1, 1),
        'tegrascope_samples_total{source="tegrastats"}': ("+1", "+1"),
    },
    "TegrascopeSourceRestarting": {
        'tegrascope_source_up{source="tegrastats"}': (1, 1),
        'tegrascope_source_restarts_total{source="tegrastats"}': ("+1", "+0"),
    },
    "TegrascopeStoreFailing": {"tegrascope_store_write_errors_total": ("+1", "+0")},
    "TegrascopeStoreRoomLow": {"tegrascope_store_free_bytes": (5e7, 9e9)},
    "TegrascopeRootFieldsMissing": {'tegrascope_root_fields_missing{source="tegrastats"}': (1, 0)},
    "TegrascopeRobotSilent": {"up": (None, 1)},
    "TegraDlaSaturated": {
        'tegra_dla_busy_seconds_total{core="0",source="ftrace"}': ("+1", "+0"),
        'tegra_dla_active{core="0"}': (1, 1),
    },
    "TegraDlaIdle": {
        f"tegra_inference_run_active{{{RUN}}}": (1, 1),
        'tegra_dla_active{core="0"}': (0, 1),
    },
    "TegraDlaBypassed": {
        f'tegra_inference_quality_flag{{{RUN},flag="dla_not_used"}}': (1, None),
        f"tegra_inference_last_run_timestamp_seconds{{{RUN}}}": ("+1", "+1"),
    },
    "TegraDlaFallback": {f'tegra_inference_quality_flag{{{RUN},flag="fallback"}}': (1, None)},
    "TegraInferenceFailing": {f"tegra_inference_consecutive_failures{{{RUN}}}": (2, 0)},
    "TegraInferenceOverdue": {f"tegra_inference_consecutive_unsuccessful_runs{{{RUN}}}": (4, 0)},
}
# The others compare ranges of time.
SLOW = {"TegraTemperatureRising", "TegraMemoryEnding", "TegraSwapGrowing", "TegraDlaUnderused",
        "TegraInferenceSlower", "TegraInferenceCostlier", "TegraInferenceDeadlineMissed",
        "TegrascopeScheduleLate", "TegrascopeRunsSkipped", "TegraBoardSlowerThanLike"}  # fmt: skip


class Troubled:
    """A page with the series of every alert, each of a device that is called as the alert."""

    def __init__(self) -> None:
        self.column = 1
        self._grown: dict[tuple[str, str], float] = {}

    def __call__(self) -> str:
        lines = []
        for alert, series in PROVOKED.items():
            for text, values in series.items():
                value = values[self.column]
                if isinstance(value, str):
                    key = (alert, text)
                    value = self._grown[key] = self._grown.get(key, 0.0) + float(value)
                if value is not None:
                    name, _, labels = text.rstrip("}").partition("{")
                    more = f",{labels}" if labels else ""
                    lines.append(f'{name}{{instance="{alert}",job="tegrascope"{more}}} {value}\n')
        return "".join(lines)


def test_every_alert_is_told_and_so_is_its_end(monitoring, alertmanager, webhook, rules):
    """Each rule fires for a device in trouble, reaches a receiver, and ends; healthy is silent."""
    assert set(PROVOKED) | SLOW == set(shipped_alerts())
    page = Troubled()
    target = PageTarget(page)
    try:
        config = scrape_config(
            target.address,
            rule_files=[str(path) for path in rules],
            alerting={"alertmanagers": [{"static_configs": [{"targets": [alertmanager.address]}]}]},
        )
        config["scrape_configs"][0]["honor_labels"] = True
        prometheus = monitoring.prometheus(config)
        prometheus.wait_for_scrape()

        def told(status: str) -> set[str]:
            return {one["labels"]["alertname"] for one in webhook.alerts(status)}

        healthy = target.pages
        wait_for(lambda: target.pages >= healthy + 5)
        assert told("firing") == set()
        page.column = 0
        wait_for(lambda: told("firing") == set(PROVOKED), 300, PROVOKED)
        page.column = 1
        wait_for(lambda: told("resolved") == set(PROVOKED), 300, PROVOKED)
    finally:
        target.stop()
    for one in webhook.alerts():
        name = one["labels"]["alertname"]
        assert one["labels"]["instance"] == name
        url = one["annotations"]["runbook_url"]
        assert url == f"file:///etc/prometheus/runbooks/{name}.md"


def test_the_first_alert_is_made_as_the_page_says(start, tmp_path):
    """The demo in hot air is about to shut down, and its alerts have the receiver that is named."""
    page = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
    (made,) = re.findall(r"^```sh\n(sed .*?)^```", page, re.MULTILINE | re.DOTALL)
    subprocess.run(["sh", "-ec", made.replace("/tmp", str(tmp_path))], cwd=ROOT, check=True)
    config = tmp_path / "alertmanager.yml"
    subprocess.run(["amtool", "check-config", config], check=True, capture_output=True)
    receivers = yaml.safe_load(config.read_text())["receivers"]
    (named,) = (one for one in receivers if one["name"] == "simulated")
    port = re.findall(r'HTTPServer\(\("127.0.0.1", (\d+)\)', page)
    assert [one["url"] for one in named["webhook_configs"]] == [
        f"http://127.0.0.1:{port[0]}/simulated"
    ]
    hot = yaml.safe_load((tmp_path / "hot.yaml").read_text())
    assert hot.pop("workloads")
    daemon = start(yaml.safe_dump(hot))
    zone = 'simulated="true",zone="tj"'
    celsius = daemon.wait_for(lambda: daemon.metric(f"tegra_temperature_celsius{{{zone}"))
    trip = daemon.metric(f'tegra_temperature_trip_celsius{{kind="critical",{zone}')
    assert trip is not None
    assert celsius > trip - 3
