"""Where a model is and which it is: a path, or one of the built-in models, made when needed."""

import hashlib
import subprocess
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from ..parsers.errors import Mendable
from .backends.base import EngineUnavailable

BUILTIN_PREFIX = "builtin:"
BUILTIN_MODELS = (
    "mobilenet",
    "mobilenetv2",
    "resnet50",
    "resnet50-fp16",
    "vit-tiny",
    "yololike",
)
SEED = 20240229
# Raised whenever the bytes of a built-in model change, so that no cache serves the old ones.
GENERATOR_VERSION = 1


def builtin_path(name: str, directory: Path, seed: int = SEED) -> Path:
    """Return where a built-in model is cached; the name says all that its bytes depend on.

    >>> builtin_path("resnet50", Path("/models"), seed=7).name
    'resnet50-v1-seed7.onnx'
    """
    return directory / f"{name}-v{GENERATOR_VERSION}-seed{seed}.onnx"


def find_model(model: str, directory: Path) -> Path:
    """Return the file of a model; a built-in one is generated at its first use.

    Args:
        model: A path, or ``builtin:NAME``.
        directory: Where built-in models are cached.

    Raises:
        Mendable: There is no such model, or it could not be generated.
        EngineUnavailable: The package that generates models is not installed.
    """
    if not model.startswith(BUILTIN_PREFIX):
        path = Path(model).expanduser()
        if path.is_dir():
            raise Mendable(f"{model} is a directory", "name the ONNX file in it")
        if not path.is_file():
            known = ", ".join(BUILTIN_PREFIX + name for name in BUILTIN_MODELS)
            raise Mendable(f"there is no model file {model}", f"give an ONNX file, or {known}")
        return path
    name = model.removeprefix(BUILTIN_PREFIX)
    if name not in BUILTIN_MODELS:
        raise Mendable(f"no built-in model is named {name!r}", f"use {', '.join(BUILTIN_MODELS)}")
    path = builtin_path(name, directory)
    if not path.is_file():
        _generate(name, directory)
    return path


def _generate(name: str, directory: Path) -> None:
    """Generate in a process of its own: what that takes is not the memory of inference."""
    if find_spec("onnx") is None:
        raise EngineUnavailable("onnx is not installed", "pip install 'tegrascope[onnx]'")
    command = [sys.executable, "-m", f"{__package__}.engines.builtin_models", name, str(directory)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise Mendable(f"the built-in model {name} could not be generated in {directory}", said[-1])


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal; a file that has not changed is read once."""
    now = path.stat()
    return _sha256(path, now.st_mtime_ns, now.st_size, now.st_ino)


@lru_cache(maxsize=64)
def _sha256(path: Path, _mtime_ns: int, _size: int, _inode: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
