"""A file of the kernel with one metric takes a reader, a row and a line of the catalogue."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
READER = '''"""Voltage of batteries."""

from collections.abc import Iterator
from pathlib import Path

from ...parsers.signals import BATTERY_VOLTAGE
from .readers import KernelFile, Reading, Scaled


def find_voltages(root: Path) -> Iterator[Reading]:
    for path in sorted(root.glob("sys/class/power_supply/*/voltage_now")):
        yield Scaled(KernelFile(path), BATTERY_VOLTAGE, path.parent.name, per=1e6)
'''
ROW = """BATTERY_VOLTAGE = Signal(
    "battery.{battery}.voltage_volts", "tegra_battery_voltage_volts", "Voltage of a battery."
)
"""
USE = """
import sys
from pathlib import Path

from tegrascope.collectors.base import SYSTEM_CLOCK, Stamped
from tegrascope.collectors.board.sysfs import SysfsCompanion
from tegrascope.daemon.export.metrics import Page
from tegrascope.daemon.export.snapshot import Snapshot, SourceState
from tegrascope.parsers.records import Sample
from tegrascope.parsers.signals import by_name, column_order, dtype_of

companion = SysfsCompanion(Path(sys.argv[1]), timeout_seconds=60)
companion.start()
values = by_name(companion.columns())
companion.stop()
for column in sorted(values, key=column_order):
    print(column, dtype_of(column))
now_ns = SYSTEM_CLOCK.monotonic_ns()
source = SourceState("tegrastats", latest=Stamped(now_ns, 0, Sample()))
snapshot = Snapshot(sources=(source,), values=values)
print(Page(lambda: snapshot, lambda: now_ns).render("")[0].decode())
"""


def insert(path: Path, before: str, text: str) -> None:
    """Put text before the only place that begins so."""
    whole = path.read_text(encoding="utf-8")
    assert whole.count(before) == 1, (path, before)
    path.write_text(whole.replace(before, text + before), encoding="utf-8")


def test_a_reader_a_row_and_a_line_are_enough(tmp_path):
    copy = tmp_path / "tegrascope"
    for name in ("parsers", "collectors", "daemon", "workbench"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    tools = ("tools/metrics_page.py", "tools/openapi.py")
    for name in ("__init__.py", "docs/metrics.md", "docs/compatibility.md", *tools):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)

    (copy / "collectors/board/voltages.py").write_text(READER, encoding="utf-8")
    insert(copy / "parsers/signals.py", "\n# fmt: on", f"\n{ROW}")
    insert(copy / "collectors/board/sysfs.py", "    find_batteries,\n)", "    find_voltages,\n")
    insert(
        copy / "collectors/board/sysfs.py",
        "\nFind = ",
        "from .voltages import find_voltages\n",
    )

    voltage = tmp_path / "sys/class/power_supply/BAT0/voltage_now"
    voltage.parent.mkdir(parents=True)
    voltage.write_text("12300000\n", encoding="ascii")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "battery.BAT0.voltage_volts float64" in done.stdout
    assert 'tegra_battery_voltage_volts{battery="BAT0"} 12.3' in done.stdout
    assert "# HELP tegra_battery_voltage_volts Voltage of a battery." in done.stdout
    subprocess.run(
        [sys.executable, "-m", "tools.metrics_page"], cwd=copy, env=environment, check=True
    )
    page = (copy / "docs/metrics.md").read_text(encoding="utf-8")
    assert "| `tegra_battery_voltage_volts` | gauge | Voltage of a battery. |" in page
