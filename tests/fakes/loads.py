"""A back-end that notes which process loads what, and the command of a real worker that has it."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from tegrascope.collectors.backends.base import Inferring
from tegrascope.parsers.inference.events import Order

NAMES = ("tensorrt", "onnxruntime")
COMMAND = (
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    "from tegrascope.collectors.worker.child import main\n"
    f"sys.exit(main(None, dict.fromkeys({NAMES}, 'tests.fakes.loads:NotedLoads')))",
)


class NotedLoads(Inferring):
    """Appends a line per load to the file ``loads`` in the model's folder."""

    def load(self, model: Path, order: Order) -> None:
        """Note the process, the model and the device."""
        with model.with_name("loads").open("a") as file:
            file.write(f"{os.getpid()} {model.name} {order.device}\n")

    def infer(self) -> None:
        """Take a millisecond."""
        time.sleep(0.001)

    def inputs(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """Return an input that says nothing."""
        return {"given": numpy.zeros((1, 4), "f4")}

    def feed(self, _inputs: Mapping[str, numpy.ndarray[Any, Any]]) -> None:
        """Take no notice of the input."""

    def outputs(self) -> dict[str, object]:
        """Return the same answer on every device."""
        return {"scores": numpy.ones((1, 20))}


def loads(folder: Path) -> list[tuple[str, str, str]]:
    """Return process, model and device of each load, in their order."""
    lines = (folder / "loads").read_text().splitlines()
    return [(pid, model, device) for pid, model, device in map(str.split, lines)]
