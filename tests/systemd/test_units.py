"""The units as they ship: understood word for word, and as tight as they claim."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import documented_drop_in

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNITS = sorted(path.name for path in SYSTEMD.iterdir() if path.suffix in (".service", ".socket"))
# In tenths, as the program wants it; the helper is root's, with nothing that root could do.
MOST_EXPOSED = {"tegrascope.service": 20}

# By their first words; from the manual pages of 250 to 257.
NEWER_THAN_249 = "|".join(
    (
        *("CoredumpReceive", "DelegateNamespaces", "DelegateSubgroup", "ExitType", "ExtensionDir"),
        *("ImportCredential", "LoadCredentialEncrypted", "LogFilterPatterns", "ManagedOOMMemory"),
        *("MemoryKSM", "MemoryPressure", "MemoryZSwap", "NFTSet", "OpenFile", "PassFileDesc"),
        *("PollLimit", "PrivatePIDs", "RestartMaxDelay", "RestartMode", "RestartSteps"),
        *("RestrictFileSystems", "RestrictNetworkInterfaces", "RootEphemeral"),
        *(
            "SetCredentialEncrypted",
            "StartupAllowed",
            "StartupMemory",
            "SurviveFinalKill",
            "TTYRow",
        ),
    )
)

needs_analyze = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd is not installed: apt install systemd"
)


@pytest.fixture
def units(tmp_path):
    """All units, whose programs are there as far as systemd looks."""
    for name in UNITS:
        text = (SYSTEMD / name).read_text(encoding="utf-8")
        text = re.sub(r"^(Exec\w+=)/usr/bin/\S+", r"\1/bin/true", text, flags=re.MULTILINE)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@needs_analyze
def test_nothing_in_a_unit_is_ignored(units):
    """There is no complaint: systemd, at most mistakes, says a word, goes on and exits with 0."""
    told = subprocess.run(
        ["systemd-analyze", "verify", *(str(units / name) for name in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stdout + told.stderr) == (0, "")


@needs_analyze
@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_exposure(units, name):
    """The sandbox of each unit is at 2.0 or better by systemd's own count."""
    assert exposure(units / name) <= 2.0


def exposure(unit: Path) -> float:
    """Return systemd's own count of what a unit may do."""
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told.stdout)
    assert found, told.stderr
    return float(found[1])


@needs_analyze
def test_exposure_with_the_drop_in_for_processes(units, tmp_path):
    lines = (units / "tegrascope.service").read_text().splitlines()
    drop_in = documented_drop_in("Processes of other users").splitlines()
    lines[lines.index("[Install]") : lines.index("[Install]")] = drop_in
    changed = tmp_path / "tegrascope.service"
    changed.write_text("\n".join(lines))
    assert exposure(changed) <= 2.0


def test_no_option_is_newer_than_jetpack_6():
    """Its systemd 249 would ignore what it does not know, and the defence would not be there."""
    newer = re.compile(rf"^({NEWER_THAN_249})\w*=", re.MULTILINE)
    assert newer.search("PrivatePIDs=yes")
    for name in UNITS:
        assert newer.findall((SYSTEMD / name).read_text(encoding="utf-8")) == [], name


def test_no_defence_is_counted_that_may_not_be_there():
    """Many builds of systemd ignore these in silence, so no unit leans on them."""
    for name in UNITS:
        text = (SYSTEMD / name).read_text(encoding="utf-8")
        assert not re.search(r"^(SocketBind|RestrictFileSystems|AppArmor)", text, re.MULTILINE)


def test_one_interval_for_both_sides():
    """What the helper prints and what the daemon expects has one default and one file."""
    for name in ("tegrascope.service", "tegrascope-tegrastats@.service"):
        text = (SYSTEMD / name).read_text(encoding="utf-8")
        assert "Environment=TEGRASTATS_INTERVAL_MS=1009\nEnvironmentFile=-/etc/default/" in text
