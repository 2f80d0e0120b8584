"""A model is read in a process of its own: ONNX's inference of shapes may not survive a bad one.

``python -m tegrascope.collectors.onnx_apart MODEL SHAPES`` prints the graph, or what is wrong.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from ..parsers.errors import Mendable
from ..parsers.graph import Graph
from ..parsers.records import Record
from .onnx_graph import read_graph

_SECONDS = 600.0
_MEND = "export the model again, or give other shapes"


class _Told(Record):
    """What the child found: a graph, or what is wrong and what mends it."""

    graph: Graph | None = None
    what: str = ""
    mend: str = ""


def read_graph_apart(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    seconds: float = _SECONDS,
) -> Graph:
    """Read a model; see ``read_graph``.

    Args:
        path: The file.
        shapes: Input to the length of each dimension.
        seconds: How long the child may take.

    Raises:
        Mendable: What ``read_graph`` raises, or the child died of the model.
    """
    command = [sys.executable, "-m", __spec__.name, str(path), json.dumps(dict(shapes or {}))]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Mendable(f"{path} was not read in {seconds:g} s", _MEND) from None
    try:
        told = _Told.model_validate_json(done.stdout)
    except ValidationError:
        raise Mendable(
            f"{path}: onnx ended {_how(done.returncode)} while reading it", _MEND
        ) from None
    if told.graph is None:
        raise Mendable(told.what, told.mend)
    return told.graph


def _how(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with status {status}"


def main(arguments: list[str]) -> int:
    """Read a model and print what came of it, as one JSON object."""
    path, shapes = arguments
    try:
        given = {name: tuple(lengths) for name, lengths in json.loads(shapes).items()}
        told = _Told(graph=read_graph(Path(path), given))
    except Mendable as error:
        told = _Told(what=error.what, mend=error.mend)
    sys.stdout.write(told.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
