"""A release: what it contains, that two builds are the same, and that apt installs from it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERSION = "9.8.7"
NEEDED = ("apt-ftparchive", "apt-get", "dpkg-deb", "git", "gpg")


def run(*argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, check=False, **more)


def git(tree, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = run("git", *identity, *words, cwd=tree)
    assert done.returncode == 0, done.stderr


def clone(target, heading=f"{VERSION} (2026-01-02)", version=VERSION):
    """Return a checkout of this tree, whose last commit has a version and a changelog."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    git(ROOT, "clone", "-q", "--no-tags", str(ROOT), str(target))
    told = run("git", "diff", "HEAD", "--binary", cwd=ROOT).stdout
    if told:
        assert run("git", "apply", "-", cwd=target, input=told).returncode == 0
    own = target / "__init__.py"
    own.write_text(re.sub('__version__ = ".*"', f'__version__ = "{version}"', own.read_text()))
    changes = f"# Changelog\n\n## Unreleased\n\n## {heading}\n\n- One change.\n\n## 0.0.1\n\nOld.\n"
    (target / "CHANGELOG.md").write_text(changes)
    git(target, "add", "--all")
    git(target, "commit", "-q", "-m", "A release", "--date=2026-01-02T00:00:00Z")
    return target


def release(tree, *words, **more):
    script = tree / "packaging/release/build.py"
    return run(sys.executable, str(script), *words, cwd=tree, **more)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return clone(tmp_path_factory.mktemp("checkout") / "tegrascope")


@pytest.mark.parametrize("heading", ["9.8.6 (2026-01-02)", "Unreleased", "9.8.7"])
def test_version_and_changelog_that_disagree_are_refused(tmp_path, heading):
    done = release(clone(tmp_path / "tegrascope", heading), "-o", str(tmp_path))
    assert done.returncode == 1
    assert f"__init__.py has version {VERSION}" in done.stderr
    assert f'CHANGELOG.md are "{heading}"' in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_another_tag_is_refused(checkout, tmp_path):
    done = release(checkout, "--tag", "v1.0.0", "-o", str(tmp_path))
    assert (done.returncode, done.stderr) == (
        1,
        f"the tag v1.0.0 is not that of version {VERSION}: tag v{VERSION}\n",
    )


def test_changes_that_are_not_committed_are_refused(checkout, tmp_path):
    readme = checkout / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text("changed", encoding="utf-8")
    done = release(checkout, "-o", str(tmp_path))
    readme.write_text(text, encoding="utf-8")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "not committed" in done.stderr


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """Environment with a key that signs, and its fingerprint."""
    if missing := [name for name in NEEDED if not shutil.which(name)]:
        pytest.skip(f"{', '.join(missing)} missing: apt install apt-utils git gpg")
    home = tmp_path_factory.mktemp("k")
    home.chmod(0o700)
    environment = {**os.environ, "GNUPGHOME": str(home)}
    gpg = ("gpg", "--batch", "--passphrase", "", "--faked-system-time", "20250101T000000!")
    made = run(*gpg, "--quick-gen-key", "a@example.org", "ed25519", "sign", env=environment)
    assert made.returncode == 0, made.stderr
    listing = run("gpg", "--list-keys", "--with-colons", env=environment).stdout
    yield (
        environment,
        next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr")),
    )
    run("gpgconf", "--kill", "all", env=environment)


@pytest.fixture(scope="module")
def built(checkout, key, tmp_path_factory):
    """Two builds of one commit: other folder, umask, time zone and language."""
    if run(sys.executable, "-m", "pip", "index", "versions", "cronsim").returncode:
        pytest.skip("no package index can be reached")
    environment, fingerprint = key
    folder = tmp_path_factory.mktemp("builds")
    git(ROOT, "clone", "-q", str(checkout), str(folder / "other"))
    python = "{}.{}".format(*sys.version_info)
    words = ("--arch", "amd64", "--python", python, "--key", fingerprint, "-o")
    for tree, name, umask, more in (
        (checkout, "one", 0o022, {}),
        (folder / "other", "two", 0o077, {"TZ": "Asia/Tokyo", "LC_ALL": "C", "COLUMNS": "40"}),
    ):
        done = release(tree, *words, str(folder / name), env=environment | more, umask=umask)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "one" / VERSION, folder / "two" / VERSION


def digests(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def test_two_builds_of_a_commit_are_identical(built):
    first, second = map(digests, built)
    assert first == second


def test_release_has_all_files_and_their_sums(built):
    expected = {
        f"tegrascope-{VERSION}-py3-none-any.whl",
        f"tegrascope-{VERSION}.tar.gz",
        f"tegrascope_{VERSION}_amd64.deb",
        f"tegrascope_{VERSION}_amd64.cdx.json",
        "changes.md",
        "schemas.tar.gz",
    }
    done = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=built[0])
    assert done.returncode == 0
    assert {line.partition(":")[0] for line in done.stdout.splitlines()} == expected
    assert (built[0] / "changes.md").read_text() == "- One change.\n"


def test_sums_are_signed(built, key):
    environment, fingerprint = key
    words = ("--status-fd=1", "--verify", "SHA256SUMS.asc", "SHA256SUMS")
    told = run("gpg", "--batch", *words, cwd=built[0], env=environment).stdout
    assert f"VALIDSIG {fingerprint}" in told


def test_package_and_wheel_have_the_modes_of_the_commit(built):
    """A strict umask of the maintainer would make files that others cannot read."""
    with zipfile.ZipFile(built[1] / f"tegrascope-{VERSION}-py3-none-any.whl") as wheel:
        modes = {one.external_attr >> 16 & 0o777 for one in wheel.infolist()}
    assert modes <= {0o644, 0o755, 0o664}
    listing = run("dpkg-deb", "-c", str(built[1] / f"tegrascope_{VERSION}_amd64.deb")).stdout
    assert {line.split()[1] for line in listing.splitlines()} == {"root/root"}


def test_sbom_is_valid_and_names_each_wheel_of_the_package(built):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = (built[0] / f"tegrascope_{VERSION}_amd64.cdx.json").read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = json.loads(text)
    listing = run("dpkg-deb", "-c", str(built[0] / f"tegrascope_{VERSION}_amd64.deb")).stdout
    wheels = set(re.findall(r"([^/\n]+\.whl)$", listing, re.MULTILINE))
    assert {one["bom-ref"] for one in bom["components"]} == wheels
    assert all(one["licenses"] for one in bom["components"])
    (own,) = (one for one in bom["components"] if one["name"] == "tegrascope")
    wheel = (built[0] / f"tegrascope-{VERSION}-py3-none-any.whl").read_bytes()
    assert own["hashes"][0]["content"] == hashlib.sha256(wheel).hexdigest()


def apt(home, repository, suite, *words):
    """Run apt-get with one repository and a state of its own."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "status").touch()
    source = f"deb [signed-by={repository}/tegrascope.gpg] file:{repository} {suite} main\n"
    (home / "sources").write_text(source)
    settings = {
        "Dir::Etc::sourcelist": home / "sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": home / "state",
        "Dir::State::status": home / "status",
        "Dir::Cache": home / "cache",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Sandbox::User": "root",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    return run("apt-get", *options, *words, cwd=home)


def test_apt_takes_the_package_from_the_signed_repository(built, tmp_path):
    done = apt(tmp_path, built[0] / "apt", "stable", "update", "--error-on=any")
    assert done.returncode == 0, done.stderr
    done = apt(tmp_path, built[0] / "apt", "stable", "download", f"tegrascope={VERSION}")
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("*.deb")
    assert package.read_bytes() == (built[0] / f"tegrascope_{VERSION}_amd64.deb").read_bytes()


def test_apt_refuses_a_repository_that_was_changed(built, tmp_path):
    copy = shutil.copytree(built[0] / "apt", tmp_path / "apt")
    signed = copy / "dists/stable/InRelease"
    signed.write_text(signed.read_text().replace("Label: tegrascope", "Label: tegrascopf"))
    (copy / "dists/stable/Release.gpg").unlink()
    done = apt(tmp_path, copy, "stable", "update", "--error-on=any")
    assert done.returncode != 0
    assert "BADSIG" in done.stderr


def test_brought_python_uses_no_library_of_the_system(tmp_path):
    """For boards whose C library is older than any of its own."""
    if missing := [name for name in ("mmdebstrap", "patchelf") if not shutil.which(name)]:
        pytest.skip(f"{' and '.join(missing)} missing: apt install mmdebstrap patchelf")
    if os.uname().machine != "x86_64" or os.geteuid():
        pytest.skip("runs as root, on x86-64")
    code = (
        "import own_python, sys, pathlib; own_python.add_python(pathlib.Path(sys.argv[1]), 'amd64')"
    )
    folder = {**os.environ, "PYTHONPATH": str(ROOT / "packaging/deb")}
    done = run(sys.executable, "-c", code, str(tmp_path), env=folder)
    if "Could not resolve" in done.stderr or "Failed to fetch" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    home = tmp_path / "usr/lib/tegrascope/python"
    program = home / "bin/python3.11"
    for option, value in (("interpreter", "lib/ld-linux-x86-64.so.2"), ("rpath", "lib")):
        told = run("patchelf", f"--print-{option}", str(program)).stdout
        assert told == f"/usr/lib/tegrascope/python/{value}\n"
    loader = (str(home / "lib/ld-linux-x86-64.so.2"), "--library-path", str(home / "lib"))
    code = "import ctypes, ssl, sqlite3, bz2, lzma, zlib, hashlib, sys; print(sys.prefix);"
    code += "print(*{line.split()[-1] for line in open('/proc/self/maps') if '.so' in line})"
    done = run(*loader, str(program), "-c", code, env={"PYTHONHOME": str(home)})
    prefix, used = done.stdout.splitlines()
    assert prefix == str(home)
    assert [path for path in used.split() if not path.startswith(str(home))] == []
    listing = (tmp_path / "usr/share/doc/tegrascope/python/packages").read_text()
    names = {line.split()[0] for line in listing.splitlines()}
    assert {"libc6", "libssl3", "python3.11-minimal"} <= names
    assert (tmp_path / "usr/share/doc/tegrascope/python/libc6.copyright").is_file()
