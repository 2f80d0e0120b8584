"""Makes the files of a release out of the last commit, in ``dist/VERSION``.

Wheel, sdist, both Debian packages, an SBOM of each package, the JSON schemas, the changes,
checksums and, with a key of GnuPG, an apt repository. The same commit, tools and wheels of others
give the same bytes.

    python packaging/release/build.py --key 0123456789ABCDEF0123456789ABCDEF01234567 --verify
"""

import argparse
import filecmp
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from email.utils import formatdate
from pathlib import Path

from sbom import write_sbom

ROOT = Path(__file__).resolve().parents[2]
BUILD = "from setuptools import build_meta as b; b.build_sdist({0!r}); b.build_wheel({0!r})"
ARCHES = ("amd64", "arm64")
# Suites of the repository and their packages. That of JetPack 5 has a Python of its own.
SUITES = {"stable": "tegrascope_*.deb", "jetpack5": "tegrascope-jetpack5_*.deb"}


def run(*argv: str, cwd: Path = ROOT, more: "dict[str, str] | None" = None) -> bytes:
    """Return the output of a program, or end with its words if it fails."""
    try:
        done = subprocess.run(
            argv, cwd=cwd, env=os.environ | (more or {}), stdout=subprocess.PIPE, check=False
        )
    except FileNotFoundError:
        sys.exit(f"{argv[0]} is not installed: apt install git dpkg-dev apt-utils gpg")
    if done.returncode:
        sys.exit(f"failed with status {done.returncode}: {' '.join(argv)}")
    return done.stdout


def version_of(tree: Path) -> str:
    """Return the version that a tree has."""
    found = re.search(r'^__version__ = "(.+)"', (tree / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def changes(changelog: str, version: str) -> str:
    """Return the section of a version.

    Raises:
        ValueError: The changelog has no dated section of it, or lists changes above it.
    """
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    with_changes = [section for section in sections if section.partition("\n")[2].strip()]
    heading, _, text = (with_changes or [""])[0].partition("\n")
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading):
        raise ValueError(
            f"__init__.py has version {version}, and the changes on top of CHANGELOG.md are "
            f'"{heading}": commit both as one version, with the heading "## {version} (YYYY-MM-DD)"'
        )
    return text.strip() + "\n"


def check(version: str, tag: "str | None") -> None:
    """End with one line if the checkout is not a release."""
    if tag and tag != f"v{version}":
        sys.exit(f"the tag {tag} is not that of version {version}: tag v{version}")
    if run("git", "status", "--porcelain", "--untracked-files=no"):
        sys.exit("the checkout has changes that are not committed: commit them, or give --draft")
    try:
        changes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    except ValueError as error:
        sys.exit(f"{error}; --draft builds without")


def packed_again(sdist: Path, epoch: int) -> None:
    """Write an sdist again: sorted, without owners and times of this machine."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            member.pax_headers = {}
            is_executable = member.isdir() or member.mode & 0o100
            member.mode = 0o755 if is_executable else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def pack_schemas(folder: Path, archive: Path, epoch: int) -> None:
    """Write the JSON schemas in a folder into one archive, with the time of the commit."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(folder.glob("*.json")):
            member = tarfile.TarInfo(f"schemas/{path.name}")
            member.size = path.stat().st_size
            member.mtime = epoch
            with path.open("rb") as file:
                tar.addfile(member, file)
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def build(commit: str, target: Path, arguments: argparse.Namespace) -> None:
    """Build all files of one commit into an empty folder."""
    epoch = int(run("git", "show", "-s", "--format=%ct", commit))
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "tegrascope"
        # Modes are part of a wheel, and git makes them out of a setting of the user.
        source = run("git", "-c", "tar.umask=022", "archive", "--prefix=tegrascope/", commit)
        with tarfile.open(fileobj=io.BytesIO(source)) as packed:
            packed.extractall(scratch)
        version = version_of(copy)
        # The packages hold man pages, which are made by the program: that of this commit.
        fixed = {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": scratch, "LC_ALL": "C.UTF-8"}
        run(sys.executable, "-c", BUILD.format(str(target)), cwd=copy, more=fixed)
        packed_again(target / f"tegrascope-{version}.tar.gz", epoch)
        script = (sys.executable, str(copy / "packaging/deb/build.py"), "-o", str(target))
        python = ("--python", *arguments.python) if arguments.python else ()
        run(*script, "--arch", *arguments.arch, *python, more=fixed)
        if "arm64" in arguments.arch:
            run(*script, "--arch", "arm64", "--own-python", more=fixed)
        schemas = Path(scratch) / "schemas"
        run(sys.executable, "-m", "tools.schemas", str(schemas), cwd=copy, more=fixed)
        pack_schemas(schemas, target / "schemas.tar.gz", epoch)
        text = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
        try:
            text = changes(text, version)
        except ValueError:
            text = "A draft, which is not a release.\n"
        (target / "changes.md").write_text(text, encoding="utf-8")
    for package in sorted(target.glob("*.deb")):
        write_sbom(package, package.with_suffix(".cdx.json"), version, epoch)
    sums = []
    for path in sorted(target.iterdir()):
        sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    (target / "SHA256SUMS").write_text("".join(sums))
    if arguments.key:
        write_repository(target, arguments.key, epoch)


def write_repository(target: Path, key: str, epoch: int) -> None:
    """Write the folder ``apt``: a static, signed repository of the packages in a folder."""
    apt = target / "apt"
    # The time of a signature is that of the commit, so that two signatures are the same.
    gpg = ("gpg", "--batch", "--yes", "--local-user", f"{key}!", "--digest-algo", "SHA256")
    gpg += ("--faked-system-time", f"{epoch}!", "--output")
    for name, packages in SUITES.items():
        suite, pool = apt / "dists" / name, apt / "pool" / name
        pool.mkdir(parents=True)
        for package in target.glob(packages):
            (pool / package.name).hardlink_to(package)
        for arch in ARCHES:
            index = suite / f"main/binary-{arch}/Packages"
            index.parent.mkdir(parents=True)
            listing = ("apt-ftparchive", "--arch", arch, "packages", f"pool/{name}")
            index.write_bytes(run(*listing, cwd=apt))
            Path(f"{index}.gz").write_bytes(gzip.compress(index.read_bytes(), mtime=0))
        fields = {"Origin": "tegrascope", "Label": "tegrascope", "Suite": name, "Codename": name}
        fields |= {"Architectures": " ".join(ARCHES), "Components": "main"}
        fields["Date"] = formatdate(epoch).replace("-0000", "+0000")
        options = [f"-oAPT::FTPArchive::Release::{field}={text}" for field, text in fields.items()]
        release = run("apt-ftparchive", *options, "release", str(suite), cwd=apt)
        (suite / "Release").write_bytes(release)
        run(*gpg, str(suite / "InRelease"), "--clearsign", str(suite / "Release"))
        run(*gpg, str(suite / "Release.gpg"), "--detach-sign", "--armor", str(suite / "Release"))
    sums = target / "SHA256SUMS"
    run(*gpg, f"{sums}.asc", "--detach-sign", "--armor", str(sums))
    export = run("gpg", "--batch", "--export-options", "export-minimal", "--export", key)
    (apt / "tegrascope.gpg").write_bytes(export)


def files(folder: Path) -> "set[Path]":
    """Return the files below a folder, by their names in it."""
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def main() -> None:
    """Build a release, and a second time to compare with ``--verify``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--key", default=os.environ.get("RELEASE_KEY"), help="fingerprint of GnuPG")
    parser.add_argument("--verify", action="store_true", help="build twice and compare the bytes")
    parser.add_argument("--tag", help="refuse if this is not the tag of the version")
    parser.add_argument("--draft", action="store_true", help="build tracked files as they are")
    parser.add_argument("--arch", nargs="+", choices=ARCHES, default=list(ARCHES))
    parser.add_argument("--python", nargs="+", help="versions that the packages have wheels for")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    os.umask(0o022)  # setuptools makes modes in a wheel out of it
    version = version_of(ROOT)
    commit = "HEAD"
    if arguments.draft:
        commit = run("git", "stash", "create").decode().strip() or "HEAD"
    else:
        check(version, arguments.tag)
    target = (arguments.output / version).resolve()
    if target.exists():
        sys.exit(f"{target} is there: remove it")
    target.mkdir(parents=True)
    build(commit, target, arguments)
    if arguments.verify:
        with tempfile.TemporaryDirectory() as scratch:
            again = Path(scratch)
            build(commit, again, arguments)
            same, _, _ = filecmp.cmpfiles(target, again, files(target), shallow=False)
            differing = (files(target) | files(again)) - set(same)
        if differing:
            sys.exit(f"two builds differ: {', '.join(sorted(map(str, differing)))}")
        print(f"a second build has the same {len(same)} files, byte for byte")
    if not arguments.key:
        print("no apt repository and no signature: give --key or RELEASE_KEY")
    print(target)


if __name__ == "__main__":
    main()
