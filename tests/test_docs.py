"""What the pages say is what the program does."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tegrascope.daemon.commands import INSTALLED_STATE
from tegrascope.daemon.commands.service import installed_files
from tegrascope.daemon.settings.config import Config, Otlp, Workload
from tegrascope.daemon.settings.file import read_settings
from tegrascope.parsers.inference.servers import KNOWN_COUNTERS
from tegrascope.workbench.cli import make_parser
from tegrascope.workbench.doctor.software import TEGRASTATS, judge_cuda_python
from tests.pages import PAGES, README, ROOT, blocks, own_commands
from tools import metrics_page, published_page


def configurations() -> Iterator[tuple[str, str]]:
    """Yield name and text of each configuration of ours: shipped, or shown on a page."""
    for page in PAGES:
        for block in blocks(page, "yaml", "yml"):
            # Other blocks are files of Prometheus, Alertmanager or the web server.
            if set(yaml.safe_load(block.text)) <= set(Config.model_fields):
                yield f"{page.relative_to(ROOT)} line {block.line}", block.text
    for path in ("daemon/commands/demo.yaml", "systemd/tegrascope.yaml"):
        yield path, (ROOT / path).read_text(encoding="utf-8")
    daemonset = (ROOT / "packaging/container/daemonset.yaml").read_text(encoding="utf-8")
    for document in yaml.safe_load_all(daemonset):
        if document["kind"] == "ConfigMap":
            yield "daemonset.yaml", document["data"]["tegrascope.yaml"]


CONFIGURATIONS = dict(configurations())
INTERVAL = ROOT / "docs/decisions/interval.md"
OF_INTERVAL = (
    "uncertainty",
    "energy",
    "energy_report",
    "rhythm",
    "sensor",
    "counter",
    "quality",
)


def section(page: Path, heading: str) -> str:
    """Return the text from a heading of a page to the next heading of that level."""
    text = page.read_text(encoding="utf-8")
    _, _, after = text.partition(f"\n## {heading}\n")
    return after.partition("\n## ")[0]


def numbers(source: str) -> Iterator[tuple[int, str, float]]:
    """Yield line, name and value of each number that a module sets for itself."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign):
            continue
        (target,), value = node.targets, node.value
        names, values = [target], [value]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            names, values = target.elts, value.elts
        for name, number in zip(names, values, strict=True):
            if isinstance(number, ast.Constant) and isinstance(number.value, int | float):
                yield node.lineno, ast.unparse(name), float(number.value)


def constants_of_interval() -> Iterator[tuple[str, str, float, str | None]]:
    """Yield module, name and value of each constant, and the heading named in its group."""
    for module in OF_INTERVAL:
        source = (ROOT / f"daemon/measure/{module}.py").read_text(encoding="utf-8")
        lines = source.splitlines()
        for number, name, value in numbers(source):
            heading = None
            for line in reversed(lines[: number - 1]):
                named = re.fullmatch(r'# docs/decisions/interval\.md, "(.+)"', line)
                if named:
                    heading = named[1]
                if named or not line:
                    break
            yield module, name, value, heading


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_configuration_of_a_page_is_good_and_gives_energy(name):
    """It can be copied and run, and check-config does not note that its runs are too short."""
    config = read_settings(CONFIGURATIONS[name], Path(name), Config).settings
    short = [note for note in config.advice() if "energy" in note]
    assert short == []


def test_the_pages_with_workloads_are_among_the_checked_ones():
    with_workloads = {
        name.partition(" line")[0]
        for name, text in CONFIGURATIONS.items()
        if "workloads:\n-" in text
    }
    pages = {"README.md", "docs/configuration.md", "docs/alerts.md", "docs/engines.md"}
    assert pages <= with_workloads


def test_first_configuration_gives_an_energy_figure(monkeypatch):
    """The example for a Jetson is long enough, by hand and at the interval of the service."""
    block = blocks(README, "yaml")[0]
    config = read_settings(block.text, README, Config).settings
    assert config.advice() == []
    default = (ROOT / "systemd/tegrascope.default").read_text(encoding="utf-8")
    (interval,) = re.findall(r"^#TEGRASTATS_INTERVAL_MS=(\d+)$", default, re.MULTILINE)
    monkeypatch.setenv("TEGRASTATS_INTERVAL_MS", interval)
    assert config.advice() == []
    assert round(Config().telemetry.interval * 1000) == int(interval)


def test_no_page_or_remedy_installs_from_an_index_where_it_is_not():
    """Whoever registers the name first would be installed as root."""
    sources = (
        path
        for room in ("parsers", "collectors", "daemon", "workbench")
        for path in ROOT.glob(f"{room}/**/*")
    )
    shipped = [*PAGES, *ROOT.glob("systemd/*"), *sources]
    for path in (path for path in shipped if path.suffix != ".pyc" and path.is_file()):
        text = path.read_text(encoding="utf-8")
        found = re.search(
            r"\b(pip|pipx) install [^|;&`\n]*\btegrascope(\[|\s|$)", text, re.MULTILINE
        )
        assert found is None, (path, found)
        assert "pypi.org/project/tegrascope" not in text, path


def test_pages_install_the_binding_that_doctor_names():
    """For each JetPack on which the Python of the system is new enough."""
    for l4t in ("36.4.3", "39.2"):
        finding = judge_cuda_python({}, l4t, needed=True)
        (binding,) = re.findall(r"'(cuda-python\S*)'", finding.remedy or "")
        for page in ("README.md", "docs/service.md"):
            assert f"'{binding}'" in (ROOT / page).read_text(encoding="utf-8")


def test_image_gets_every_file_that_the_package_needs():
    """The recipe copies what pyproject.toml names, and its ignore file lets just that through."""
    folder = ROOT / "packaging/container"
    recipe = (folder / "Dockerfile").read_text(encoding="utf-8")
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", recipe, re.MULTILINE)
        for word in line.split()[:-1]
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tool = project["tool"]["setuptools"]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {name.split(".")[1] for name in tool["packages"] if "." in name}
    needed |= {pattern.split("/")[0] for pattern in tool["package-data"]["tegrascope"]}
    needed |= {path.name for path in ROOT.glob("*.py")}
    assert needed <= copied
    assert all((ROOT / name).exists() for name in copied)
    ignored = (folder / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def test_every_constant_of_the_interval_has_its_reason_and_its_value_on_the_page():
    found = list(constants_of_interval())
    assert {module for module, *_ in found} == set(OF_INTERVAL)
    for module, name, value, heading in found:
        assert heading is not None, f"{module}.{name} names no heading of {INTERVAL.name}"
        row = rf"^\| `{name}` \| (\S+) \| \S.*\|$"
        rows = re.findall(row, section(INTERVAL, heading), re.MULTILINE)
        assert [float(shown) for shown in rows] == [value], f"{module}.{name}, {heading}"


def test_page_of_the_interval_has_no_constant_that_the_code_lacks():
    known = {name for _, name, _, _ in constants_of_interval()}
    text = INTERVAL.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [\d._e-]+ \|", text, re.MULTILINE)
    assert set(rows) == known


def test_every_page_and_heading_that_the_code_names_exists():
    named = []
    for room in ("parsers", "collectors", "daemon", "workbench"):
        for path in ROOT.glob(f"{room}/**/*.py"):
            text = path.read_text(encoding="utf-8")
            named += re.findall(r'(docs/[\w/-]+\.md), "([^"\n]+)"', text)
    assert ("docs/decisions/interval.md", "Sampling") in named
    for page, heading in named:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE), (page, heading)


def test_container_page_names_the_paths_of_the_program():
    page = (ROOT / "docs/container.md").read_text(encoding="utf-8")
    for path in (
        str(Path(TEGRASTATS.path).parent),
        TEGRASTATS.path,
        f"{INSTALLED_STATE}/token",
        list(installed_files("/usr/bin/tegrascope"))[-2],
        "TEGRASCOPE_TOKEN_FILE",
    ):
        assert path in page, path


def test_pages_count_the_alerts_that_the_rules_have():
    """A number on a page is that of the rules which the example of Prometheus loads."""
    alerts = 0
    for path in ROOT.glob("grafana/prometheus/rules/*.yml"):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            alerts += sum("alert" in rule for rule in group["rules"])
    counts = {}
    for page in PAGES:
        for number in re.findall(r"\b(\d+) alerts\b", page.read_text(encoding="utf-8")):
            counts[page.name] = int(number)
    assert counts == dict.fromkeys(counts, alerts)
    assert "README.md" in counts


def test_the_memory_of_the_daemon_is_measured_on_one_page():
    """README repeats the number and links to it; no other page has one of its own."""
    measured = (ROOT / "docs/benchmark.md").read_text(encoding="utf-8")
    (number,) = re.findall(r"^The daemon has \*\*(\d+) MiB\*\* resident", measured, re.MULTILINE)
    readme = README.read_text(encoding="utf-8")
    assert f"It needs about {number} MiB of memory" in readme
    assert "(docs/benchmark.md#memory)" in readme
    # The decision has the limits, and the page of assumptions the limit on a board.
    others = {"benchmark.md", "lean-daemon.md", "on-a-board.md", "CHANGELOG.md"}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = re.findall(r"\b(?:daemon|parent)\b[^.|]{0,60}?\b\d\d(?:\.\d)? MiB", text)
        assert page.name in others or not found, (page, found)


def test_every_setting_is_documented():
    """The reference page has every key, so that nobody has to read the source."""
    (block,) = blocks(ROOT / "docs/configuration.md", "yaml")
    shown = set(re.findall(r"^[ -]*(\w+):", block.text, re.MULTILINE))
    shown |= set(re.findall(r"`(\w+):", block.text))
    for section in (Config, Workload, Otlp, *(type(value) for _, value in Config())):
        for name in getattr(section, "model_fields", {}):
            assert name in shown, name


def test_metrics_page_is_what_make_docs_writes():
    for page, metrics in metrics_page.PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert text == metrics_page.render(text, metrics), "run: make docs"


def test_page_of_published_results_is_what_make_docs_writes():
    text = published_page.PAGE.read_text(encoding="utf-8")
    assert text == published_page.render(), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_quoted_commands_exist_and_their_options_parse(page):
    for block in blocks(page, "sh", "console"):
        for words in own_commands(block):
            make_parser(words).parse_args(words)


def test_pages_for_assistants_quote_commands():
    for page in ("docs/agents.md", "docs/SKILL.md"):
        commands = []
        for block in blocks(ROOT / page, "sh"):
            commands += own_commands(block)
        assert len(commands) >= 4


def test_skill_has_the_front_matter_of_skills():
    """A loader finds it by its name, in a folder of that name, and by its description."""
    text = (ROOT / "docs/SKILL.md").read_text(encoding="utf-8")
    _, head, _ = text.split("---\n", 2)
    about = yaml.safe_load(head)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", about["name"])
    assert 20 <= len(about["description"]) <= 1024


def test_map_for_assistants_has_the_form_of_its_convention():
    """A title, a quoted summary, and sections of links with a note."""
    title, _, summary, *_ = (text := (ROOT / "llms.txt").read_text(encoding="utf-8")).splitlines()
    assert (title, summary[:2]) == ("# tegrascope", "> ")
    for link in re.findall(r"^- \[.*$", text, re.MULTILINE):
        assert re.fullmatch(r"- \[[^]]+\]\([^)]+\): \S.*", link), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """No page points at a file that is not there."""
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_changelog_and_version_agree():
    """The page of changes has an open section for what is not released."""
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_page_of_back_ends_has_every_known_counter():
    page = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
    for one in KNOWN_COUNTERS:
        (row,) = re.findall(rf"^ *\| `{one.unit}` \|.*$", page, re.MULTILINE)
        assert f"`{one.metric}`" in row
