"""What holds for every test."""

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import hypothesis
import pytest

# How long an example takes, or takes to be made, is the machine's affair.
hypothesis.settings.register_profile(
    "tegrascope", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tegrascope")

# The tests and the hundreds of Pythons that they start compile each file once.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell ignores SIGINT for jobs in the background, and every program that a test starts would too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The promise that the tests of a folder or file prove, where its name does not express it.
PROMISES = {
    "export": "metrics as Prometheus reads them",
    "monitoring": "alerts through Prometheus and Alertmanager",
    "page": "the status page in a browser",
    "parsers": "recorded logs of boards",
    "systemd": "the service, its sandbox and the Debian package",
    "web": "TLS, users and slow clients",
    "test_dashboards": "rules and dashboards",
    "test_dashboard_source": "rules and dashboards",
    "test_first_boot": "the first seconds after the boot",
    "test_first_minute": "make run in a fresh clone",
}


# Files in which the most time goes, the longest first: each runs in one process.
LONGEST = (
    "systemd/test_package.py",
    "systemd/test_fleet_play.py",
    "service/test_daemon.py",
    "results/test_bench_command.py",
    "test_readme.py",
    "monitoring/test_alerting.py",
    "systemd/test_service.py",
    "service/test_faults.py",
    "commands/test_current_directory.py",
    "monitoring/test_fleet.py",
    "page/test_status_page.py",
    "service/test_web.py",
    "service/test_adversity.py",
    "service/test_prometheus.py",
    "monitoring/test_dashboards_live.py",
    "session/test_exec.py",
    "monitoring/test_rules.py",
    "parsers/test_paths.py",
    "collectors/test_trtexec.py",
    "collectors/test_worker.py",
    "truth/test_coverage.py",
    "test_first_boot.py",
    "commands/test_cli.py",
    "service/test_service.py",
    "inspect/test_checks.py",
    "advise/test_truth.py",
    "tables/test_dataset.py",
    "tables/test_recorded_runs.py",
    "results/test_bench_run.py",
    "fleet/test_fleet_devices.py",
    "measure/test_uncertainty.py",
    "service/test_nvml.py",
    "service/test_dla_trace.py",
    "test_docs.py",
    "parsers/test_laws.py",
    "systemd/test_sandbox.py",
    "systemd/test_install.py",
    "truth/test_lock_in.py",
    "truth/test_bench.py",
)


# Folders and files that take minutes by nature: a real systemd, packages, a browser, Prometheus and
# Alertmanager, faults of a daemon, and the short checks against a known truth. `make test-system`
# runs them, `make test` all others, CI both.
SYSTEM = (
    "systemd",
    "monitoring",
    "page",
    "truth",
    "fleet",
    "commands/test_current_directory.py",
    "service/test_adversity.py",
    "service/test_fault_campaign.py",
    "service/test_faults.py",
    "service/test_prometheus.py",
    "test_container.py",
    "test_first_boot.py",
    "test_first_minute.py",
    "test_packaging.py",
    "test_readme.py",
    "test_release.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist keep the order of ``pytest_collection_modifyitems``."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: "list[pytest.Item]") -> None:
    """Mark the tests of ``SYSTEM``, and begin with the longest files.

    So no process waits for another at the end.
    """
    folder = Path(__file__).parent
    ranks = {folder / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    system = {folder / name for name in SYSTEM}
    for item in items:
        if item.path in system or item.path.parent in system:
            item.add_marker("system")


def pytest_collection_finish() -> None:
    """Spare the tests' garbage collections, which the product asks for before a run, the suite."""
    # At its first example, Hypothesis looks for what keeps its generator of random numbers. On
    # Python 3.14 it does not see that among frozen objects, and would warn.
    in_memory = hypothesis.settings(database=None)
    hypothesis.find(hypothesis.strategies.none(), lambda _: True, settings=in_memory)
    gc.collect()
    gc.freeze()


def not_tested(skips: "Iterable[tuple[str, str]]") -> "list[str]":
    """Return one line per remedy: the promises without a test, and the number of tests.

    Args:
        skips: Node identifier of each skipped test, and the reason.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for node, reason in skips:
        part = Path(node.partition("::")[0]).parts[1:2] or (node,)
        name = part[0].removesuffix(".py")
        install = re.search(r"(apt|pip) install .+", reason)
        remedy = install[0] if install else reason.removeprefix("Skipped: ")
        counts[remedy, PROMISES.get(name, name.removeprefix("test_"))] += 1
    lines = []
    for remedy in sorted({remedy for remedy, _ in counts}):
        found = {promise: count for (one, promise), count in counts.items() if one == remedy}
        total = sum(found.values())
        tests = f"{total} test{'s' if total > 1 else ''}"
        lines.append(f"not tested here: {', '.join(sorted(found))}, {tests}: {remedy}")
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with the promises that were not tested, and what would enable their tests."""
    skipped = terminalreporter.stats.get("skipped", [])
    for line in not_tested((one.nodeid, one.longrepr[2]) for one in skipped):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests, in whatever window: a table is as wide as its own rules say."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("LINES", raising=False)


@pytest.fixture(autouse=True)
def every_column_has_a_row(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Fail where a column of telemetry has no row in ``parsers/signals.py``."""
    yield
    if not request.node.get_closest_marker("unknown_columns"):
        logged = (record.getMessage() for record in caplog.get_records("call"))
        assert [text for text in logged if "no signal has the column" in text] == []


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of generated models, shared by all processes of one test run."""
    base = tmp_path_factory.getbasetemp()
    # Each pytest-xdist process has a directory of its own below that of the run.
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "models"
    cache.mkdir(exist_ok=True)
    return cache
