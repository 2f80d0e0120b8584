"""Makes ``tegrascope_VERSION_ARCH.deb``: the wheels of all that is needed, and what installs them.

Nothing is compiled and nothing fetched on the board: the package holds the binary wheels of its
architecture for each Python that Ubuntu and Debian ship there, pip among them, and ``postinst``
makes the environment out of these.

    python packaging/deb/build.py --arch arm64 --python 3.10 3.12 -o dist
"""

import argparse
import email
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
GLIBCS = ("2_17", "2_28", "2_31", "2_34", "2_35")
INSTALLED = (
    ("tegrascope.yaml", "etc/tegrascope.yaml"),
    ("tegrascope.default", "etc/default/tegrascope"),
    ("tegrascope.sysusers", "usr/lib/sysusers.d/tegrascope.conf"),
)
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q")


def run(*argv: str, cwd: Path | None = None) -> None:
    """Run a program, whose words are shown, and end with it if it fails."""
    if subprocess.run(argv, cwd=cwd, check=False).returncode:
        sys.exit(f"build.py: failed: {' '.join(argv)}")


def own_wheel(target: Path) -> None:
    """Build our wheel from a copy of the tree, so that no leftovers get in."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "tegrascope"
        left_out = shutil.ignore_patterns(
            ".*", "build", "dist", "*.egg-info", "__pycache__", "tests", "venv"
        )
        shutil.copytree(ROOT, copy, ignore=left_out)
        run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(target), str(copy))


def fetch(requirements: list[str], python: str, arch: str, target: Path) -> None:
    """Fetch a wheel for each requirement, without what these need themselves."""
    platforms = [f"--platform=manylinux_{glibc}_{MACHINES[arch]}" for glibc in GLIBCS]
    platforms += [f"--platform=manylinux2014_{MACHINES[arch]}"]
    run(
        *(*PIP, "download", "--no-deps", "--only-binary=:all:", "-d", str(target)),
        *(f"--python-version={python}", "--implementation=cp", *platforms, *requirements),
    )


def needs(wheel: Path, python: str, arch: str) -> list[Requirement]:
    """Return what a wheel requires on that Python; pip would judge by the one that runs it."""
    with zipfile.ZipFile(wheel) as opened:
        name = next(one for one in opened.namelist() if one.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(opened.read(name)).get_all("Requires-Dist") or []
    there = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": MACHINES[arch],
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    found = map(Requirement, told)
    return [one for one in found if one.marker is None or one.marker.evaluate(there)]


def project(wheel: Path) -> str:
    """Return the name of a wheel's project, as such names are compared."""
    return canonicalize_name(wheel.name.partition("-")[0])


def gather(wheels: Path, python: str, arch: str) -> None:
    """Fetch all that our wheel needs on one Python, directly or not."""
    (own,) = (path for path in wheels.glob("*.whl") if project(path) == "tegrascope")
    wanted = {"pip": SpecifierSet()}
    unread = [own]
    with tempfile.TemporaryDirectory() as scratch:
        mine = Path(scratch)
        while unread:
            for wheel in unread:
                for one in needs(wheel, python, arch):
                    name = canonicalize_name(one.name)
                    wanted[name] = wanted.get(name, SpecifierSet()) & one.specifier
            there = {project(path): path for path in mine.glob("*.whl")}
            missing = []
            for name, versions in wanted.items():
                found = there.get(name)
                if found and not versions.contains(found.name.split("-")[1], prereleases=True):
                    found.unlink()  # another one has asked for less of it since
                    found = None
                if found is None:
                    missing.append(f"{name}{versions}")
            if missing:
                fetch(missing, python, arch, mine)
            before = set(there.values())
            unread = [path for path in mine.glob("*.whl") if missing and path not in before]
        for path in mine.glob("*.whl"):
            shutil.copy(path, wheels / path.name)


def lay_out(tree: Path, version: str, arch: str) -> None:
    """Put everything but the wheels where it is installed."""
    units = tree / "lib/systemd/system"
    units.mkdir(parents=True)
    for path in sorted((ROOT / "systemd").iterdir()):
        if path.suffix in (".service", ".socket"):
            shutil.copy(path, units)
    for name, where in INSTALLED:
        (tree / where).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "systemd" / name, tree / where)
    (tree / "usr/bin").mkdir(parents=True)
    for name in ("tegrascope", "tegrascope-dla-trace"):
        (tree / "usr/bin" / name).symlink_to(f"../lib/tegrascope/venv/bin/{name}")
    words = tree / "usr/share/doc/tegrascope"
    words.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", words / "copyright")
    shutil.copy(ROOT / "CHANGELOG.md", words)

    control = tree / "DEBIAN"
    control.mkdir()
    text = (ROOT / "packaging/deb/control.in").read_text(encoding="utf-8")
    (control / "control").write_text(text.format(version=version, arch=arch), encoding="utf-8")
    settings = [f"/{where}\n" for _, where in INSTALLED if where.startswith("etc/")]
    (control / "conffiles").write_text("".join(settings))
    for name in ("postinst", "prerm", "postrm"):
        shutil.copy(ROOT / "packaging/deb" / name, control)
        (control / name).chmod(0o755)


def debian_version() -> str:
    """Return our version as dpkg sorts it: a development release comes before its release."""
    found = re.search(r'^__version__ = "(.+)"', (ROOT / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return re.sub(r"\.?(dev|a|b|rc)(?=\d)", r"~\1", found[1])


def main() -> None:
    """Build one package for each architecture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", nargs="+", choices=MACHINES, default=list(MACHINES))
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions to hold wheels for")
    parser.add_argument("--version", default=debian_version())
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for arch in arguments.arch:
        with tempfile.TemporaryDirectory() as scratch:
            tree = Path(scratch) / "tree"
            wheels = tree / "usr/lib/tegrascope/wheels"
            wheels.mkdir(parents=True)
            own_wheel(wheels)
            for python in arguments.python:
                gather(wheels, python, arch)
            lay_out(tree, arguments.version, arch)
            run("chmod", "-R", "u=rwX,go=rX", str(tree))
            package = arguments.output / f"tegrascope_{arguments.version}_{arch}.deb"
            run(
                "dpkg-deb",
                "--root-owner-group",
                "-Zgzip",
                "-z1",
                "--build",
                str(tree),
                str(package),
            )


if __name__ == "__main__":
    main()
