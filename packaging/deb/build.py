"""Makes ``tegrascope_VERSION_ARCH.deb``: the wheels of all that is needed, and what installs them.

Nothing is compiled and nothing fetched on the board: the package holds the binary wheels of its
architecture for each Python that Ubuntu and Debian ship there, pip among them, and ``postinst``
makes the environment out of these.

    python packaging/deb/build.py --arch arm64 --python 3.10 3.12 -o dist

With ``--own-python`` it is ``tegrascope-jetpack5_VERSION_ARCH.deb``, which brings its Python along.
"""

import argparse
import email
import email.utils
import fnmatch
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from email.message import Message
from pathlib import Path

from manual import pages
from own_python import VERSION as OWN_PYTHON
from own_python import add_python
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tegrascope.workbench.commands.completion import script

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
GLIBCS = ("2_17", "2_28", "2_31", "2_34", "2_35")
# What TensorRT of a JetPack needs and JetPack has not: the binding for its CUDA, and a numpy that
# is as old as its bindings. JetPack 6 has Python 3.10 and CUDA 12, JetPack 7 has 3.12 and 13.
REQUIREMENTS = {
    "amd64": ("tegrascope", "pip"),
    "arm64": (
        *("tegrascope", "pip"),
        'cuda-bindings>=12,<13; python_version == "3.10"',
        'cuda-bindings>=13,<14; python_version == "3.12"',
        'numpy>=1.26,<2; python_version == "3.10"',
        'numpy>=1.26,<2; python_version == "3.12"',
        # Thor's tegrastats has no GPU load.
        'nvidia-ml-py>=12.535; python_version == "3.12"',
    ),
}
# The user's files. They never change, so that an upgrade never asks what to do with an edited one.
SETTINGS = {
    "etc/tegrascope.yaml": "# Examples: /usr/share/doc/tegrascope/examples/tegrascope.yaml\n",
    "etc/default/tegrascope": "# Examples: /usr/share/doc/tegrascope/examples/tegrascope.default\n",
}
DATE = email.utils.formatdate(
    int(os.environ.get("SOURCE_DATE_EPOCH", (ROOT / "CHANGELOG.md").stat().st_mtime))
)
CHANGES = """\
tegrascope ({version}) unstable; urgency=medium

  * The changes are in /usr/share/doc/tegrascope/CHANGELOG.md.gz.

 -- tegrascope maintainers <maintainers@tegrascope.invalid>  {date}
"""
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/tegrascope",
    "zsh": "usr/share/zsh/vendor-completions/_tegrascope",
}
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


def metadata(wheel: Path) -> Message:
    """Return what a wheel says of itself."""
    with zipfile.ZipFile(wheel) as opened:
        names = fnmatch.filter(opened.namelist(), "*.dist-info/METADATA")
        return email.message_from_bytes(opened.read(names[0]))


def required(lines: Iterable[str], python: str, arch: str) -> list[Requirement]:
    """Return what applies on that Python; pip would judge by the one that runs it."""
    environment = {
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
    applying = []
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            applying.append(requirement)
    return applying


def project(wheel: Path) -> str:
    """Return the name of a wheel's project, as such names are compared."""
    return canonicalize_name(wheel.name.partition("-")[0])


def unpacked_bytes(wheel: Path) -> int:
    """Return the size of what a wheel installs."""
    with zipfile.ZipFile(wheel) as opened:
        return sum(file.file_size for file in opened.infolist())


def gather(wheels: Path, python: str, arch: str) -> int:
    """Fetch all that our wheel needs on one Python, directly or not; return its size installed."""
    (own,) = wheels.glob("tegrascope-*.whl")
    wanted: dict[str, SpecifierSet] = {}
    for requirement in required(REQUIREMENTS[arch], python, arch):
        if requirement.name != "tegrascope":
            wanted[requirement.name] = requirement.specifier
    with tempfile.TemporaryDirectory() as scratch:
        fetched = Path(scratch)
        unread = [own]
        while unread:
            for wheel in unread:
                lines = metadata(wheel).get_all("Requires-Dist", ())
                for requirement in required(lines, python, arch):
                    name = canonicalize_name(requirement.name)
                    wanted[name] = wanted.get(name, SpecifierSet()) & requirement.specifier
            missing = remove_unfit(fetched, wanted)
            before = set(fetched.glob("*.whl"))
            if missing:
                fetch(missing, python, arch, fetched)
            unread = [path for path in fetched.glob("*.whl") if path not in before]
        for path in fetched.glob("*.whl"):
            shutil.copy(path, wheels / path.name)
        return sum(map(unpacked_bytes, (own, *fetched.glob("*.whl"))))


def remove_unfit(fetched: Path, wanted: Mapping[str, SpecifierSet]) -> list[str]:
    """Remove wheels that do not fit, and return the requirements that have no wheel.

    A wheel that fitted may no longer do so, because another one has bounded its version since.
    """
    wheels = {project(path): path for path in fetched.glob("*.whl")}
    missing = []
    for name, versions in wanted.items():
        wheel = wheels.get(name)
        if wheel is None:
            missing.append(f"{name}{versions}")
        elif not versions.contains(wheel.name.split("-")[1], prereleases=True):
            wheel.unlink()
            missing.append(f"{name}{versions}")
    return missing


def describe(wheel: Path) -> str:
    """Return one line on a wheel and its license."""
    fields = metadata(wheel)
    classifiers = fnmatch.filter(fields.get_all("Classifier", ()), "License ::*")
    stated = [fields["License-Expression"], *classifiers, fields["License"]]
    license_name = next(filter(None, stated), "in the wheel").splitlines()[0]
    return f" {wheel.name}: {license_name.rpartition(':: ')[2]}\n"


def lay_out(tree: Path, version: str, arch: str) -> None:
    """Put everything but the wheels and the control files where it is installed."""

    def write(where: str, text: str) -> None:
        (tree / where).parent.mkdir(parents=True, exist_ok=True)
        content = text.encode()
        if where.startswith("usr/share") and where.endswith(".gz"):
            content = gzip.compress(content, mtime=0)
        (tree / where).write_bytes(content)

    for path in sorted((ROOT / "systemd").iterdir()):
        if path.suffix in (".service", ".socket"):
            write(f"usr/lib/systemd/system/{path.name}", path.read_text())
    write("usr/lib/sysusers.d/tegrascope.conf", (ROOT / "systemd/tegrascope.sysusers").read_text())
    write("usr/lib/tegrascope/requirements.txt", "\n".join((*REQUIREMENTS[arch], "")))
    for where, text in SETTINGS.items():
        write(where, text)
    (tree / "usr/bin").mkdir(parents=True)
    for name, page in pages().items():
        (tree / "usr/bin" / name).symlink_to(f"../lib/tegrascope/venv/bin/{name}")
        write(f"usr/share/man/man1/{name}.1.gz", page)
    for shell, where in COMPLETIONS.items():
        write(where, script(shell))
    words = "usr/share/doc/tegrascope"
    for name in ("tegrascope.yaml", "tegrascope.default", "tegrascope-remote.conf"):
        write(f"{words}/examples/{name}", (ROOT / "systemd" / name).read_text())
    write(f"{words}/CHANGELOG.md.gz", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    # The units and the sample configuration name this page.
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    write(f"{words}/configuration.md", page)
    write(f"{words}/changelog.gz", CHANGES.format(version=version, date=DATE))
    licenses = sorted(map(describe, (tree / "usr/lib/tegrascope/wheels").glob("*.whl")))
    write(f"{words}/copyright", (HERE / "copyright.in").read_text() + "".join(licenses))


def depends(pythons: Sequence[str]) -> str:
    """Return the bounds of the system's Python."""
    ordered = sorted(int(python.partition(".")[2]) for python in pythons)
    return f"python3 (>= 3.{ordered[0]}), python3 (<< 3.{ordered[-1] + 1}), "


def add_control(tree: Path, version: str, arch: str, needed: str, more: int) -> None:
    """Write the control files; ``more`` bytes are installed later, by postinst."""
    size = sum(path.lstat().st_size for path in tree.rglob("*")) + more
    control = tree / "DEBIAN"
    control.mkdir()
    text = (HERE / "control.in").read_text(encoding="utf-8")
    fields = {"version": version, "arch": arch, "size": size // 1024, "needed": needed}
    (control / "control").write_text(text.format(**fields), encoding="utf-8")
    settings = [f"/{where}\n" for where in SETTINGS]
    (control / "conffiles").write_text("".join(settings))
    (control / "triggers").write_text("interest-noawait /usr/bin/python3\n")
    for name in ("postinst", "prerm", "postrm"):
        shutil.copy(HERE / name, control)
        (control / name).chmod(0o755)


def debian_version() -> str:
    """Return our version as dpkg sorts it: a development release comes before its release."""
    version = re.search(r'^__version__ = "(.+)"', (ROOT / "__init__.py").read_text(), re.MULTILINE)
    assert version is not None
    return re.sub(r"\.?(dev|a|b|rc)(?=\d)", r"~\1", version[1])


def main() -> None:
    """Build one package for each architecture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", nargs="+", choices=MACHINES, default=list(MACHINES))
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions to hold wheels for")
    parser.add_argument("--own-python", action="store_true", help="for JetPack 5, with a Python")
    parser.add_argument("--version", default=debian_version())
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.own_python:
        # It sorts before the package that uses the system's Python, which replaces it one day.
        name, version = "tegrascope-jetpack5", f"{arguments.version}~jetpack5"
        pythons, needed = (OWN_PYTHON,), ""
    else:
        name, version = "tegrascope", arguments.version
        pythons, needed = arguments.python, depends(arguments.python)
    for arch in arguments.arch:
        with tempfile.TemporaryDirectory() as scratch:
            tree = Path(scratch) / "tree"
            wheels = tree / "usr/lib/tegrascope/wheels"
            wheels.mkdir(parents=True)
            own_wheel(wheels)
            sizes = [gather(wheels, python, arch) for python in pythons]
            if arguments.own_python:
                add_python(tree, arch)
            lay_out(tree, version, arch)
            add_control(tree, version, arch, needed, max(sizes))
            run("chmod", "-R", "u=rwX,go=rX", str(tree))
            package = arguments.output / f"{name}_{arguments.version}_{arch}.deb"
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
