"""Recorded series and alerts: complete, understood by Prometheus, and doing what cases say."""

import os
import re
import subprocess

import pytest
import yaml

from tegrascope.daemon.export.metrics import METRICS
from tegrascope.parsers.nvml import THROTTLES
from tests.monitoring.rule_files import (
    CASES,
    ROOT,
    RULES,
    SHIPPED,
    alerts,
    cases,
    of_a_simulated_fleet,
    read_rules,
)
from tests.monitoring.servers import needs_alertmanager, needs_prometheus

KINDS = ("fires", "does not fire", "resolves")
SECTIONS = ("Meaning", "Impact", "Diagnosis", "Mitigation")
SERIES = {"histogram": ("_bucket", "_count", "_sum")}
EXPORTED = {family.name + suffix for family in METRICS for suffix in SERIES.get(family.kind, ("",))}
RECORDED = {rule["record"] for path in RULES for rule in read_rules(path) if "record" in rule}
OF_ALERTS = [path for path in CASES if path.stem != "recording"]
URL = "https://git.example.com/tegrascope/docs/runbooks"

each_alert = pytest.mark.parametrize("name", sorted(alerts()))
each_rule_file = pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)


def run(*command: object) -> tuple[int, str]:
    told = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "GOGC": "400"},  # a quarter of promtool's time is collecting garbage
    )
    return told.returncode, told.stdout


@each_alert
def test_an_alert_has_all_that_makes_one(name):
    """How long it must hold, how bad it is, what it is about, and words for who is woken by it."""
    rule = alerts()[name]
    assert re.fullmatch(r"(Tegra|Tegrascope)([A-Z][a-z]+)+", name)
    assert rule["for"]
    assert rule["keep_firing_for"]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["labels"]) == {"severity", "component"}
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert "{{" not in notes["summary"]
    assert notes["summary"].endswith(".")
    assert "{{ $labels.instance }}" in notes["description"]
    assert "absent" not in rule["expr"]


@each_alert
def test_an_alert_has_a_page_that_helps(name):
    """What it means, what it harms, how to look closer with commands or queries, what to do."""
    address = alerts()[name]["annotations"]["runbook_url"]
    default = "file:///etc/prometheus/runbooks"
    assert address == f'{{{{ or $externalLabels.tegrascope_runbooks "{default}" }}}}/{name}.md'
    page = (ROOT / f"docs/runbooks/{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert tuple(headings) == SECTIONS
    diagnosis = page.partition("## Diagnosis\n")[2].partition("\n## ")[0]
    assert re.search(r"^```(sh|promql)$", diagnosis, re.MULTILINE)
    assert alerts()[name]["labels"]["severity"] in page


def test_every_page_is_of_an_alert():
    """No page is left of an alert that is gone, and the list of alerts has each."""
    pages = {path.stem for path in ROOT.glob("docs/runbooks/*.md")}
    assert pages == set(alerts())
    listed = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \|", listed, re.MULTILINE)
    assert rows == [(name, name, rule["labels"]["severity"]) for name, rule in alerts().items()]


@each_alert
def test_an_alert_has_a_case_of_each_kind(name):
    """One in which it fires, one in which it does not, one in which it ends."""
    assert {case.kind for case in cases() if case.alert == name} == set(KINDS)


def test_cases_are_what_they_are_called():
    """A case that is said to fire expects an alert, and so on; none is of an alert that is gone."""
    for case in cases():
        assert case.is_what_it_says, case
        assert case.alert in alerts()


@each_rule_file
def test_rules_ask_for_what_there_is(path):
    """No name in an expression is one that nothing exports or records."""
    for rule in read_rules(path):
        text = re.sub(r'"[^"]*"', '""', rule["expr"])
        names = set(re.findall(r"(?:\w+:)?\btegra\w+(?::\w+)?", text))
        assert names <= EXPORTED | RECORDED, rule


def test_recorded_series_are_named_level_metric_operations():
    """Three parts, and the middle one begins as a metric of the page."""
    bases = tuple(re.sub("_total$|_bucket$", "", name) for name in EXPORTED)
    for name in RECORDED:
        found = re.fullmatch(r"(?:job|instance)(?:_[a-z]+)*:(\w+):\w+", name)
        assert found, name
        assert found[1].startswith(bases), name


def test_recorded_series_are_listed():
    """The page of alerts has every recorded series, and no other."""
    page = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`((?:job|instance)\w*:\w+:\w+)`", page)) == RECORDED


def test_no_group_is_evaluated_so_rarely_that_its_series_go_stale():
    """A recorded series is gone five minutes after its last point."""
    for path in RULES:
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            assert group["interval"] in ("15s", "30s", "1m", "4m"), group["name"]


@needs_prometheus
def test_prometheus_reads_the_queries_of_every_page(tmp_path):
    """What a page says to ask can be asked, one query a line or a line and what is indented."""
    rules = []
    for path in sorted(ROOT.glob("docs/runbooks/*.md")):
        for block in re.findall(r"^```promql\n(.*?)^```", path.read_text("utf-8"), re.M | re.S):
            for query in re.split(r"\n(?! )", block.strip()):
                rules.append({"record": f"query:{path.stem}:{len(rules)}", "expr": query})
                names = set(
                    re.findall(r"(?:\w+:)?\btegra\w+(?::\w+)?", re.sub('"[^"]*"', "", query))
                )
                assert names <= EXPORTED | RECORDED, query
    assert len(rules) > len(alerts())
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "pages", "rules": rules}]}))
    status, told = run("promtool", "check", "rules", "--lint=none", file)
    assert status == 0, told


@needs_prometheus
@each_rule_file
def test_prometheus_reads_the_rules(path):
    """Prometheus' own lint has no complaint."""
    status, told = run("promtool", "check", "rules", "--lint=all", "--lint-fatal", path)
    assert status == 0, told


@needs_prometheus
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_rules_do_what_the_cases_say(path):
    """``promtool test rules`` finds every case as it is written."""
    status, told = run("promtool", "test", "rules", path)
    assert status == 0, told


@needs_prometheus
def test_runbooks_are_where_one_external_label_says(tmp_path):
    """The address of the page comes from one place; the default is the folder that it names."""
    page = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yml\n(global:.*?)^```", page, re.MULTILINE | re.DOTALL)
    labels = yaml.safe_load(shown)["global"]["external_labels"]
    assert labels == {"tegrascope_runbooks": URL}
    assert "docs/runbooks /etc/prometheus/" in page
    (tmp_path / "shown.yml").write_text(shown)
    status, told = run("promtool", "check", "config", tmp_path / "shown.yml")
    assert status == 0, told
    text = (CASES[0].parent / "receiver.yml").read_text(encoding="utf-8")
    cases = yaml.safe_load(text.replace("file:///etc/prometheus/runbooks", URL))
    cases["rule_files"] = [str(SHIPPED / "receiver-rules.yml")]
    cases["tests"] = [{**cases["tests"][0], "external_labels": labels}]
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(cases))
    status, told = run("promtool", "test", "rules", tmp_path / "cases.yml")
    assert status == 0, told


def test_every_kind_of_throttling_raises_one_alert_or_none():
    """Heat, power supply and caps by design are three different things."""
    kinds = [*THROTTLES.values(), "oc1", "oc2", "oc3", "cpu_thermal", "soc0_thermal"]
    patterns = {
        name: re.findall(r'kind=~"([^"]+)"', alerts()[name]["expr"])[0]
        for name in ("TegraThermalThrottled", "TegraOverCurrent")
    }
    raised = {
        kind: [name for name, pattern in patterns.items() if re.fullmatch(pattern, kind)]
        for kind in kinds
    }
    silent = {kind for kind, names in raised.items() if not names}
    assert silent == {"sw_power_cap", "board_limit", "reliability"}
    assert all(len(names) <= 1 for names in raised.values())


@needs_prometheus
@pytest.mark.parametrize("path", OF_ALERTS, ids=lambda path: path.stem)
def test_alerts_keep_the_labels_of_their_target_and_their_time(path, tmp_path):
    """A simulated device of a site is told as such; nothing flutters, on the way in or out."""
    document = of_a_simulated_fleet(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert document["tests"]
    file = tmp_path / "cases.yml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    status, told = run("promtool", "test", "rules", file)
    assert status == 0, told


@needs_alertmanager
def test_alertmanager_reads_its_example():
    """The example can be given to Alertmanager as it stands."""
    status, told = run("amtool", "check-config", SHIPPED / "alertmanager.yml")
    assert status == 0, told


@needs_alertmanager
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("severity=critical", "pager"),
        ("severity=warning", "chat"),
        ("severity=info", "nobody"),
        ("severity=critical simulated=true", "simulated"),
    ],
)
def test_alerts_go_where_they_should(labels, receiver):
    """What is urgent wakes someone, what is not is read, what is simulated is neither."""
    config = f"--config.file={SHIPPED / 'alertmanager.yml'}"
    status, told = run("amtool", "config", "routes", "test", config, *labels.split())
    assert (status, told.splitlines()[-1]) == (0, receiver)
