"""Model files: a path or a built-in model, its weights, its digest, and its graph.

Work that needs numpy or the package onnx happens in children.
"""

import hashlib
import json
import mmap
import stat
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from ...parsers.errors import (
    PIP_INSTALL,
    BackendUnavailable,
    UnreadableError,
    UserError,
    file_error,
)
from ...parsers.onnx import ModelFacts, external_locations, read_metadata, read_model, read_nodes
from ...parsers.onnx.graph import Graph
from ...parsers.records import Record
from ...parsers.values import printable
from ..children.bounded import run_bounded
from ..children.program import ask_child, python_child
from ..paths import is_directory, is_file

BUILTIN_PREFIX = "builtin:"
BUILTIN_MODELS = ("mobilenet", "mobilenetv2", "resnet50", "resnet50-fp16")
SEED = 20240229
# Raised whenever the bytes of a built-in model change, so that no cache serves the old ones.
GENERATOR_VERSION = 1
# Exit status of the generator where a package is missing.
MISSING_PACKAGE = 3
_SHOWN_CHARACTERS = 200
# ResNet-50 takes some seconds on a board.
_GENERATE_SECONDS = 600.0
INSTALL_ONNX = f"{PIP_INSTALL} onnx"


def builtin_path(name: str, directory: Path, seed: int = SEED) -> Path:
    """Return where a built-in model is cached; its bytes depend on nothing but this name.

    >>> builtin_path("resnet50", Path("/models"), seed=7).name
    'resnet50-v1-seed7.onnx'
    """
    return directory / f"{name}-v{GENERATOR_VERSION}-seed{seed}.onnx"


def find_model(model: str, directory: Path) -> Path:
    """Return the file of a model: a path, or ``builtin:NAME``, generated at its first use.

    Raises:
        UserError: The model does not exist, or could not be generated.
        BackendUnavailable: numpy, which draws the weights of built-in models, is not installed.
    """
    if not model.startswith(BUILTIN_PREFIX):
        path = Path(model).expanduser()
        try:
            if is_directory(path):
                raise UserError(f"{model} is a directory", "name the ONNX file in it")
            if not is_file(path):
                known = ", ".join(BUILTIN_PREFIX + name for name in BUILTIN_MODELS)
                raise UserError(f"there is no model file {model}", f"give an ONNX file, or {known}")
            path.open("rb").close()
        except OSError as error:
            raise file_error(error, path) from None
        return path
    name = model.removeprefix(BUILTIN_PREFIX)
    if name not in BUILTIN_MODELS:
        raise UserError(f"no built-in model is named {name!r}", f"use {', '.join(BUILTIN_MODELS)}")
    path = builtin_path(name, directory)
    if not is_file(path):
        _generate(name, directory)
    return path


def _generate(name: str, directory: Path) -> None:
    """Generate in a child process, so that its memory is not counted as that of inference."""
    command = python_child(f"{__package__}.builtin", name, str(directory), name=f"model {name}")
    what = f"the built-in model {name} could not be generated in {directory}"
    try:
        done = run_bounded(command, _GENERATE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(what, str(error)) from None
    errors = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode == MISSING_PACKAGE:
        raise BackendUnavailable(errors, f"{PIP_INSTALL} numpy")
    if done.returncode != 0:
        words = errors.splitlines() or [f"exit status {done.returncode}"]
        raise UserError(what, words[-1])


def metadata_of(model: Path) -> dict[str, str]:
    """Return the metadata of an ONNX file; nothing if it cannot be read."""
    try:
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_metadata(data)
    except (OSError, ValueError):
        return {}


def facts_of(model: Path) -> ModelFacts:
    """Return the inputs and operators of an ONNX file, or raise ``UserError`` if it is not one."""
    try:
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_model(data)
    except (OSError, ValueError, UnreadableError) as error:
        raise UserError(f"{model} is not an ONNX model ({error})", "give an ONNX file") from error


# Nodes that only hold or shape constants: none is a layer that computes.
_NOT_LAYERS = frozenset({"Constant", "ConstantOfShape", "Identity", "Shape", "Size"})


def node_names(model: Path) -> list[str]:
    """Return the names of the nodes of an ONNX file that may become layers, in their order.

    Raises:
        UserError: It is not an ONNX file.
    """
    try:
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return [name for name, operator in read_nodes(data) if operator not in _NOT_LAYERS]
    except (OSError, ValueError, UnreadableError) as error:
        raise UserError(f"{model} is not an ONNX model ({error})", "give an ONNX file") from error


def external_files(model: Path) -> list[Path]:
    """Return the files with a model's weights, sorted, each once, or raise ``UserError``.

    A digest of the model file alone would be the same for other weights.
    """
    if model.stat().st_size == 0:
        raise UserError(f"{model} is empty", "export the model again")
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            names = set(external_locations(data))
        except ValueError:
            raise UserError(f"{model} cannot be read as ONNX", "export the model again") from None
    return [_external_file(model, name) for name in sorted(names)]


def _external_file(model: Path, name: str) -> Path:
    """Return the file of weights that a model names, or raise ``UserError``.

    A link that the user made beside the model may lead elsewhere. The model itself may not: it
    could name any file of this user, or a device without an end.
    """
    holds = f"{model} keeps weights in {printable(name, _SHOWN_CHARACTERS)}"
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise UserError(
            f"{holds}, which is not in its directory; ONNX forbids that", "export the model again"
        )
    path = model.parent / name
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise UserError(f"{holds}, which is missing", f"copy it to {model.parent}") from None
        raise UserError(f"{holds}: {error.strerror}", "make it readable") from None
    if not stat.S_ISREG(mode):
        raise UserError(f"{holds}, which is not a regular file", "export the model again")
    return path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; an unchanged file is read once."""
    now = path.stat()
    return _sha256(path, now.st_mtime_ns, now.st_size, now.st_ino)


@lru_cache(maxsize=64)
def _sha256(path: Path, _mtime_ns: int, _size: int, _inode: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class GraphAnswer(Record):
    """The line that the reader of graphs prints: a graph or its memory, or why there is none."""

    graph: Graph | None = None
    session_bytes: int | None = None
    problem: str = ""
    remedy: str = ""


def read_graph_apart(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    seconds: float = 300.0,
    most_bytes: int = 2 << 30,
    reader: Sequence[str] | None = None,
) -> Graph:
    """Read a model as ``read_graph`` does, in a child process.

    Args:
        seconds: Time limit of the child. The graph of a large language model takes some ten.
        most_bytes: The memory that it may take. Such a graph takes some 100 MB.
        reader: Command of the child, if it is not ``onnx_graph``.

    Raises:
        UserError: As ``read_graph``; or the child crashed, or took too long.
    """
    given = json.dumps(dict(shapes or {}))
    command = [
        *(reader or python_child(f"{__package__}.onnx_graph", name="onnx")),
        str(path),
        given,
        str(most_bytes),
    ]
    answer = ask_child(command, GraphAnswer, "onnx", f"to read {path}", seconds)
    if isinstance(answer, UserError):
        raise UserError(answer.message, "export the model again, or give other shapes")
    if answer.graph is None:
        raise UserError(answer.problem, answer.remedy)
    return answer.graph


def session_bytes_apart(
    path: Path, shapes: Mapping[str, tuple[int, ...]], block: int, seconds: float = 10.0
) -> int | None:
    """Return the ``session_bytes`` of a model by a child, or None if it does not find them."""
    command = python_child(f"{__package__}.onnx_graph", name="onnx")
    values = (str(path), json.dumps(dict(shapes)), str(2 << 30), str(block))
    answer = ask_child((*command, *values), GraphAnswer, "onnx", f"to read {path}", seconds)
    if isinstance(answer, UserError):
        return None
    return answer.session_bytes
