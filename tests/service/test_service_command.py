"""Units from a pip installation: written whole, removed whole, and never over what is a user's."""

from pathlib import Path

import pytest

from tegrascope.daemon.commands.service import check_visible, installed_files
from tegrascope.parsers.errors import UserError
from tegrascope.workbench.cli import main

PROGRAM = "/opt/t/bin/tegrascope"
ROOT = Path(__file__).parents[2]


def tree(root: Path) -> "dict[str, str]":
    """Return all files below a root, with what is in them."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_text() for path in files}


def install(root: Path, *more: str) -> int:
    return main(["service", "install", "--root", str(root), "--program", PROGRAM, *more])


def remove(root: Path, *more: str) -> int:
    return main(["service", "remove", "--root", str(root), *more])


def test_install_writes_all_that_the_service_needs(tmp_path, capsys):
    """Units that start this installation, the user, and settings; nothing is enabled."""
    assert install(tmp_path) == 0
    found = tree(tmp_path)
    units = {f"etc/systemd/system/{path.name}" for path in (ROOT / "systemd").glob("*.s[eo][rc]*")}
    assert units <= set(found)
    unit = found["etc/systemd/system/tegrascope.service"]
    assert f"\nExecStart={PROGRAM} run -c /etc/tegrascope.yaml\n" in unit
    assert "u tegrascope" in found["etc/sysusers.d/tegrascope.conf"]
    assert not list(tmp_path.rglob("*.wants"))
    assert "next: systemctl enable --now tegrascope" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "reader", "memory", "power"),
    [
        (
            "/opt/t/bin/tegrascope",
            "/opt/t/bin/tegrascope-dla-trace",
            "/opt/t/bin/tegrascope-memory",
            "/opt/t/bin/tegrascope-power",
        ),
        (
            "/opt/py -m tegrascope",
            "/opt/py -m tegrascope.collectors.dla.reader",
            "/opt/py -m tegrascope.collectors.processes.memory_reader",
            "/opt/py -m tegrascope.collectors.board.power",
        ),
    ],
)
def test_helpers_of_root_are_those_of_this_installation(program, reader, memory, power):
    """Each unit starts its own program, although one name begins like the other."""
    found = {Path(path).name: text for path, text in installed_files(program).items()}
    assert f"\nExecStart={reader}\n" in found["tegrascope-dla-trace@.service"]
    assert f"\nExecStart={memory}\n" in found["tegrascope-memory@.service"]
    assert f"\nExecStart={power}\n" in found["tegrascope-power.service"]
    assert f"\nExecStart={program} run " in found["tegrascope.service"]


def test_settings_that_it_writes_are_good(tmp_path):
    """The first configuration is valid as it stands."""
    install(tmp_path)
    assert main(["check-config", str(tmp_path / "etc/tegrascope.yaml")]) == 0


def test_second_install_upgrades_units_and_keeps_settings(tmp_path):
    """What the user changed stays; what is ours is that of this version."""
    install(tmp_path)
    (tmp_path / "etc/tegrascope.yaml").write_text("telemetry: {interval: 103ms}\n")
    (tmp_path / "etc/systemd/system/tegrascope.service").write_text("# an older one\n")
    before = tree(tmp_path)
    assert install(tmp_path) == 0
    after = tree(tmp_path)
    changed = {path for path in after if after[path] != before[path]}
    assert changed == {"etc/systemd/system/tegrascope.service"}


def test_remove_takes_the_units_and_leaves_runs_without_purge(tmp_path, capsys):
    """Without --purge settings and runs stay, and this is printed."""
    install(tmp_path)
    (tmp_path / "var/lib/tegrascope").mkdir(parents=True)
    (tmp_path / "var/lib/tegrascope/tegrascope.db").write_text("runs")
    (tmp_path / "etc/systemd/system/other.service").write_text("[Service]\n")
    assert remove(tmp_path) == 0
    assert set(tree(tmp_path)) == {
        "etc/tegrascope.yaml",
        "etc/default/tegrascope",
        "etc/systemd/system/other.service",
        "var/lib/tegrascope/tegrascope.db",
    }
    assert "--purge deletes settings and all runs" in capsys.readouterr().out
    assert remove(tmp_path, "--purge") == 0
    assert set(tree(tmp_path)) == {"etc/systemd/system/other.service"}


def test_unit_of_somebody_else_is_not_removed(tmp_path):
    """A unit of that name that install did not write is not its to delete."""
    unit = tmp_path / "etc/systemd/system/tegrascope.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/bin/mine\n")
    assert remove(tmp_path) == 0
    assert unit.exists()


@pytest.mark.parametrize("action", ["install", "remove"])
def test_dry_run_says_and_does_nothing(tmp_path, capsys, action):
    """Each path is named, and the root is as it was."""
    if action == "remove":
        install(tmp_path)
    before = tree(tmp_path)
    capsys.readouterr()
    assert main(["service", action, "--root", str(tmp_path), "--dry-run"]) == 0
    assert str(tmp_path / "etc/systemd/system/tegrascope.service") in capsys.readouterr().out
    assert tree(tmp_path) == before


def test_package_and_pip_do_not_mix(tmp_path, capsys):
    """Where the Debian package is installed, its units stand."""
    unit = tmp_path / "lib/systemd/system/tegrascope.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    assert install(tmp_path) == 1
    assert "came with a package" in capsys.readouterr().err


def test_installation_that_the_service_could_not_see_is_refused(tmp_path):
    """In a home directory, or behind a closed door: one line, with the commands that help."""
    with pytest.raises(UserError, match="may not look into /home") as told:
        check_visible("/home/ann/.local/bin/tegrascope")
    assert "/opt/tegrascope/bin/pip install . &&" in str(told.value)
    shut = tmp_path / "shut"
    (shut / "bin").mkdir(parents=True)
    shut.chmod(0o700)
    with pytest.raises(UserError, match="only some users may enter"):
        check_visible(str(shut / "bin/tegrascope"))
