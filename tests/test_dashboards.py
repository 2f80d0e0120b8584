"""Dashboards, scrape configuration and unit say what the programs that read them understand."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tegrascope.daemon.metric_table import TABLE

ROOT = Path(__file__).parents[1]
DASHBOARDS = sorted(ROOT.glob("grafana/dashboards/*.json"))
SERIES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("", "_count", "_sum")}
EXPORTED = {family.name + suffix for family in TABLE for suffix in SERIES.get(family.kind, ("",))}
# Of Prometheus itself, and of its client library's process and Python collectors.
FOREIGN = re.compile(r"up|ALERTS|scrape_\w+|process_\w+|python_\w+")
METRIC = re.compile(r"\b([a-zA-Z_:]\w*)(?=\s*[{\[])|\b(tegra\w*)")

needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed: apt install prometheus"
)
each_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def queries(part: Any) -> Iterator[str]:
    """Yield every query of a dashboard, of its panels and of its variables."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from queries(value)
    elif isinstance(part, list):
        for one in part:
            yield from queries(one)


def metrics(query: str) -> set[str]:
    """Return the metric names of a query: what stands before a brace or a range, or is ours."""
    without_text = re.sub(r'"[^"]*"', '""', query)
    return {first or second for first, second in METRIC.findall(without_text)}


def run(*command: str) -> tuple[int, str]:
    told = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return told.returncode, told.stdout


@each_dashboard
def test_every_queried_metric_is_exported(path):
    """No panel stays empty because a name changed."""
    names = set().union(*map(metrics, queries(json.loads(path.read_text(encoding="utf-8")))))
    assert names & EXPORTED
    assert {name for name in names - EXPORTED if not FOREIGN.fullmatch(name)} == set()


@each_dashboard
def test_panels_are_told_apart(path):
    """Every panel has a title, an id of its own and the data source that the user picks."""
    panels = json.loads(path.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}", panel["title"]


@needs_promtool
@each_dashboard
def test_prometheus_reads_every_query(path, tmp_path):
    """Each expression of a panel is good PromQL."""
    panels = json.loads(path.read_text(encoding="utf-8"))["panels"]
    found = [
        re.sub(r"\$(__\w+|\{__\w+\})", "5m", query)
        for query in queries(panels)
        if not query.startswith("label_values(")
    ]
    assert found
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$", "")}
        for number, query in enumerate(found)
    ]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    status, told = run("promtool", "check", "rules", "--lint=none", str(file))
    assert status == 0, told


@needs_promtool
def test_prometheus_reads_its_configuration():
    """The scrape configuration can be given to Prometheus as it stands."""
    status, told = run(
        "promtool", "check", "config", str(ROOT / "grafana/prometheus/prometheus.yml")
    )
    assert status == 0, told


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("unit", sorted(ROOT.glob("systemd/*.service")), ids=lambda unit: unit.name)
def test_systemd_reads_the_unit(unit, tmp_path):
    """The unit is good as it stands, but for the program, which need not be installed here."""
    text, found = re.subn(
        r"^ExecStart=\S+.*$", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE
    )
    assert found == 1
    copy = tmp_path / unit.name
    copy.write_text(text)
    assert run("systemd-analyze", "verify", str(copy)) == (0, "")
