"""A Python of its own for a package, out of Debian's: for boards whose Python is too old.

JetPack 5 has Python 3.8 and a C library of 2020. Debian's Python runs there together with the
libraries that it was built with, its C library among them. The kernel has to be 3.2 or newer.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RELEASE, VERSION = "bookworm", "3.11"
LOADERS = {"arm64": "ld-linux-aarch64.so.1", "amd64": "ld-linux-x86-64.so.2"}
HOME = Path("usr/lib/tegrascope/python")
WORDS = Path("usr/share/doc/tegrascope/python")


def run(*argv: str) -> None:
    """Run a program, and end with its words if it fails."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}own_python.py: failed: {' '.join(argv)}")


def unpack(arch: str, root: Path) -> "list[Path]":
    """Unpack Debian's Python and all that it needs; return the packages."""
    missing = [name for name in ("mmdebstrap", "patchelf") if not shutil.which(name)]
    if missing:
        sys.exit(f"own_python.py: {' and '.join(missing)} missing: apt install {' '.join(missing)}")
    wanted = f"--include=python{VERSION}-minimal,libpython{VERSION}-stdlib"
    keep = ("--variant=extract", "--skip=cleanup/apt/cache", f"--architectures={arch}", wanted)
    run("mmdebstrap", *keep, RELEASE, str(root))
    return sorted((root / "var/cache/apt/archives").glob("*.deb"))


def add_python(tree: Path, arch: str) -> None:
    """Put a Python into the tree of a package, which finds nothing but its own libraries."""
    home = tree / HOME
    (home / "bin").mkdir(parents=True)
    (tree / WORDS).mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        lines = []
        for package in unpack(arch, root):
            name, version, _ = package.name.split("_")
            digest = hashlib.sha256(package.read_bytes()).hexdigest()
            lines.append(f"{name} {version.replace('%3a', ':')} {digest}\n")
            terms = root / "usr/share/doc" / name / "copyright"
            if terms.is_file():
                shutil.copyfile(terms, tree / WORDS / f"{name}.copyright")
        (tree / WORDS / "packages").write_text("".join(lines))
        no_caches = shutil.ignore_patterns("__pycache__")
        library = home / f"lib/python{VERSION}"
        shutil.copytree(root / f"usr/lib/python{VERSION}", library, ignore=no_caches)
        program = home / "bin" / f"python{VERSION}"
        shutil.copyfile(root / f"usr/bin/python{VERSION}", program)
        program.chmod(0o755)
        for folder in ("lib", "usr/lib"):
            for path in root.glob(f"{folder}/*-linux-gnu/lib*.so.*"):
                if re.search(r"\.so(\.\d+){1,2}$", path.name):
                    shutil.copyfile(path, home / "lib" / path.name)
        (loader,) = root.glob(f"lib/*-linux-gnu/{LOADERS[arch]}")
        shutil.copyfile(loader, home / "lib" / loader.name)
        (home / "lib" / loader.name).chmod(0o755)
    # An old-style path is also that of the libraries of extension modules, in wheels too.
    run("patchelf", "--set-interpreter", f"/{HOME}/lib/{loader.name}", str(program))
    run("patchelf", "--force-rpath", "--set-rpath", f"/{HOME}/lib", str(program))
