"""Dashboards, scrape configuration and unit say what the programs that read them understand."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tegrascope.daemon.export.metrics import METRICS
from tools.dashboards.catalog import UNSHOWN

ROOT = Path(__file__).parents[1]
DASHBOARDS = sorted(ROOT.glob("grafana/dashboards/*.json"))
SERIES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("", "_count", "_sum")}
EXPORTED = {family.name + suffix for family in METRICS for suffix in SERIES.get(family.kind, ("",))}
RECORDED = {
    rule["record"]
    for path in ROOT.glob("grafana/prometheus/rules/*.yml")
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
    if "record" in rule
}
VARIABLE = re.compile(r"\$\{?(\w+)")
# Of Prometheus itself, and of its client library's process and Python collectors.
FOREIGN = re.compile(r"up|ALERTS|scrape_\w+|process_\w+|python_\w+")
METRIC = re.compile(
    r"(?<![\w:])([a-zA-Z_][\w:]*)(?=\s*[{\[])|(?<![\w:])((?:\w+:)?tegra\w*(?::\w+)?)"
)

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


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def drawn(path: Path) -> list[Any]:
    """Return the panels of a dashboard, rows apart."""
    return [panel for panel in read(path)["panels"] if panel["type"] != "row"]


@each_dashboard
def test_every_queried_metric_is_exported(path):
    """No panel stays empty because a name changed."""
    names = set().union(*map(metrics, queries(read(path))))
    known = EXPORTED | RECORDED
    assert names & known
    assert {name for name in names - known if not FOREIGN.fullmatch(name)} == set()


def test_every_exported_metric_is_shown():
    """A metric without a panel has ``chart=None`` in its row."""
    shown = set().union(*(metrics(query) for path in DASHBOARDS for query in queries(read(path))))
    families = {
        family.name: {family.name + end for end in SERIES.get(family.kind, ("",))}
        for family in METRICS
    }
    unshown = {name for name, series in families.items() if not series & shown}
    assert unshown == UNSHOWN


@each_dashboard
def test_panels_are_told_apart(path):
    """Every panel has a title, a description, an id and the data source that the user picks."""
    panels, all_ids = drawn(path), [panel["id"] for panel in read(path)["panels"]]
    assert len(set(all_ids)) == len(all_ids)
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}", panel["title"]


@each_dashboard
def test_panels_lie_side_by_side(path):
    """None covers another or leaves the grid, and each is wide enough for a phone on its side."""
    taken: set[tuple[int, int]] = set()
    for panel in read(path)["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + across, place["y"] + down)
            for across in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert place["w"] >= (6 if panel["type"] == "stat" else 8), panel["title"]
        taken |= cells


@each_dashboard
def test_a_table_is_narrow(path):
    """What is read on a phone has eight columns at most."""
    for panel in drawn(path):
        for one in panel.get("transformations", ()):
            shown = one["options"].get("renameByName", {})
            assert len(shown) <= 8, panel["title"]
            assert len(set(shown.values())) == len(shown), panel["title"]


@each_dashboard
def test_variables_are_defined_and_used(path):
    """No query names a choice that is not there, and no choice changes nothing."""
    board = read(path)
    names = {one["name"] for one in board["templating"]["list"]}
    asked = {"panels": board["panels"], "annotations": board["annotations"]}
    found = set(VARIABLE.findall(json.dumps({**asked, "variables": board["templating"]})))
    assert {name for name in found - names if not name.startswith("__")} == set()
    assert names - found == set()


@each_dashboard
def test_links_lead_to_dashboards(path):
    """A click on a device or a workload opens a dashboard that is there, on a variable it has."""
    boards = {read(one)["uid"]: read(one) for one in DASHBOARDS}
    for url in re.findall(r'"url": "(/d/[^"]+)"', json.dumps(read(path))):
        uid, _, chosen = url.removeprefix("/d/").partition("?")
        names = {one["name"] for one in boards[uid]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", chosen)) <= names


def test_dashboards_are_told_apart():
    """Grafana knows each by its uid, and the file is called so."""
    boards = {read(path)["uid"]: path.stem for path in DASHBOARDS}
    assert len(boards) == len(DASHBOARDS) == 5
    assert {uid.removeprefix("tegrascope-") for uid in boards} == set(boards.values())


def test_provisioning_is_what_grafana_takes():
    """The files that set Grafana up name a source and a folder, and exemplars lead to a run."""
    folder = ROOT / "grafana/provisioning"
    made = yaml.safe_load((folder / "datasources/tegrascope.yaml").read_text(encoding="utf-8"))
    (source,) = made["datasources"]
    assert (made["apiVersion"], source["type"]) == (1, "prometheus")
    (exemplar,) = source["jsonData"]["exemplarTraceIdDestinations"]
    assert exemplar["name"] == "run_id"
    # Grafana reads `$$` of such a file as `$`, and a single one as the name of an environment's.
    assert "$" not in exemplar["url"].replace("$${", "")
    assert exemplar["url"].endswith("instance}/runs/$${__value.raw}")
    made = yaml.safe_load((folder / "dashboards/tegrascope.yaml").read_text(encoding="utf-8"))
    (provider,) = made["providers"]
    assert (made["apiVersion"], provider["type"]) == (1, "file")
    assert Path(provider["options"]["path"]).is_absolute()
    scraped = {}
    for path in ROOT.glob("grafana/prometheus/*.yml"):
        found = yaml.safe_load(path.read_text("utf-8")).get("global", {}).get("scrape_interval")
        scraped |= {path.stem: found} if found else {}
    assert set(scraped) == {"prometheus", "fleet-files", "fleet-http", "robot-agent"}
    assert set(scraped.values()) == {source["jsonData"]["timeInterval"]}


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


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="apt install systemd")
@pytest.mark.parametrize("unit", sorted(ROOT.glob("systemd/*.service")), ids=lambda unit: unit.name)
def test_systemd_reads_the_unit(unit, tmp_path):
    """The unit is good as it stands, but for the program, which need not be installed here."""
    text = re.sub(
        r"^(Exec\w+)=/usr/bin/tegra.*$", r"\1=/bin/true", unit.read_text(), flags=re.MULTILINE
    )
    copy = tmp_path / unit.name
    copy.write_text(text)
    for socket in ROOT.glob("systemd/*.socket"):
        shutil.copy(socket, tmp_path)
    assert run("systemd-analyze", "verify", str(copy)) == (0, "")
