"""Find out, in a child process, what TensorRT on this machine can do.

Without a driver, making a TensorRT object may end the process by SIGSEGV, and a broken
installation in other ways: so only a child asks.

    python -m tegrascope.collectors.backends.tensorrt_probe
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt

from ...parsers.errors import PIP_INSTALL, BackendUnavailable, UserError
from ...parsers.inference.events import Order
from ...parsers.inference.placement import LayerAnswer, LayerAnswers
from ...parsers.records import Record
from ..children.program import DRIVER, ask_child, python_child
from .cuda_runtime import load_cuda
from .tensorrt_build import Builder, layers_of, load_plugins, logger_of, type_name

MODULE = "tensorrt"
_NO_MEMORY = re.compile(r"out of memory|cudaErrorMemoryAllocation", re.IGNORECASE)
_INSTALL_TENSORRT = (
    "on a Jetson apt install python3-libnvinfer, in an environment made with"
    f" --system-site-packages; elsewhere {PIP_INSTALL} tensorrt"
)

DlaPrecision = Literal["fp16", "int8"]
Shapes = Mapping[str, tuple[int, ...]]


class Capabilities(Record):
    """Capabilities of one TensorRT module on this machine, or why it cannot be used.

    ``dla_cores`` counts the cores that TensorRT sees: only this count decides. ``is_full`` means
    that it could be used if the device had memory left, which is a failure of the run.
    """

    module: str = MODULE
    problem: str | None = None
    remedy: str | None = None
    is_full: bool = False
    free_bytes: NonNegativeInt | None = None
    versions: dict[str, str] = {}
    device: str | None = None
    compute_capability: str | None = None
    dla_cores: NonNegativeInt | None = None

    def require(self) -> None:
        """Raise ``BackendUnavailable`` if TensorRT cannot be used; ``UserError`` without memory."""
        if self.problem is not None and self.is_full:
            raise UserError(self.problem, self.remedy or "")
        if self.problem is not None:
            raise BackendUnavailable(self.problem, self.remedy or _INSTALL_TENSORRT)


def look(module: str = MODULE) -> Capabilities:
    """Find out in this process; it may not survive that."""
    findings: dict[str, Any] = {"module": module}
    with _problem_noted(findings, module):
        trt = import_tensorrt(module)
        findings["versions"] = {"tensorrt": str(trt.__version__)}
        cuda = load_cuda()
        findings["versions"] |= cuda.versions()
        cuda.initialise()
        findings["free_bytes"] = cuda.free_bytes()
        findings["device"], findings["compute_capability"] = cuda.device()
        # A runtime and no builder: making the first builder of a process takes seconds.
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        findings["dla_cores"] = max(0, int(runtime.num_DLA_cores))
    return Capabilities.model_validate(findings)


def look_at_layers(
    model: Path, precision: DlaPrecision | None, shapes: Shapes, module: str = MODULE
) -> LayerAnswers:
    """Ask the builder in this process; it may not survive that."""
    findings: dict[str, Any] = {}
    with _problem_noted(findings, module):
        trt = import_tensorrt(module)
        findings["tensorrt"] = str(trt.__version__)
        cores = findings["dla_cores"] = max(0, int(trt.Builder(logger_of(trt)[0]).num_DLA_cores))
        order = Order(run_id="", backend=MODULE, device="gpu", model_directory="")
        if cores > 0:
            # Without a DLA it is only asked whether its parser takes the model.
            order = order.model_copy(update={"device": "dla0", "precision": precision})
        for lengths in shapes.values():
            if lengths:
                order = order.model_copy(update={"batch": lengths[0]})
                break
        load_plugins(trt, ())
        made = Builder(trt, model, order).prepare(shapes)
        answers = []
        for layer in layers_of(made.network):
            on_dla = None
            if cores > 0:
                on_dla = bool(made.config.can_run_on_DLA(layer))
            marks = str(getattr(layer, "metadata", "") or "")
            kind = type_name(layer.type)
            answers.append(LayerAnswer(name=layer.name, kind=kind, marks=marks, on_dla=on_dla))
        findings["layers"] = answers
    return LayerAnswers.model_validate(findings)


@contextmanager
def _problem_noted(found: dict[str, Any], module: str) -> Iterator[None]:
    """Keep what was found until the problem that ends the block, and note the problem."""
    try:
        yield
    except UserError as error:
        found |= {"problem": error.message, "remedy": error.remedy}
    except Exception as error:
        words = " ".join(str(error).split())
        problem, remedy = f"{module} cannot be used here ({type(error).__name__}: {words})", DRIVER
        if _NO_MEMORY.search(words):
            problem = f"the GPU has too little memory left for {module}"
            if "free_bytes" in found:
                problem += f": {found['free_bytes'] / 2**20:.0f} MiB are free"
            problem += f" ({words})"
            remedy = "end other programs that use the GPU, and run it again"
            found["is_full"] = True
        found |= {"problem": problem, "remedy": remedy}


def import_tensorrt(module: str = MODULE) -> Any:
    """Import a TensorRT module; raise ``BackendUnavailable`` if it or its libraries are missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        needs = error.name or module
        why = f"cannot be imported (it needs {needs})"
        if needs.split(".")[0] == module:
            why = "is not installed"
        raise BackendUnavailable(f"{module} {why}", _INSTALL_TENSORRT) from None
    except (ImportError, OSError) as error:
        words = " ".join(str(error).split())
        raise BackendUnavailable(
            f"{module} cannot be imported ({words})",
            "install the libraries of the same TensorRT version",
        ) from None


def probe(module: str = MODULE, seconds: float = 120.0) -> Capabilities:
    """Find out in a child process, which may die of it; return why not, and raise nothing."""
    command = python_child(__spec__.name, "--module", module, name="probe")
    answer = ask_child(command, Capabilities, module, "what it can do", seconds)
    if isinstance(answer, Capabilities):
        return answer
    return Capabilities(module=module, problem=answer.message, remedy=answer.remedy)


def ask_layers(
    model: Path,
    precision: DlaPrecision | None,
    shapes: Shapes,
    module: str = MODULE,
) -> LayerAnswers:
    """Ask the builder, in a child process, which layers of a model it would put on the DLA.

    ``shapes`` are those of the open inputs. An error is in the answer, and is not raised.
    """
    given = ("--module", module, "--model", str(model), "--shapes", json.dumps(dict(shapes)))
    command = [*python_child(__spec__.name, *given, name="probe")]
    if precision is not None:
        command += ["--precision", precision]
    question = "which layers the DLA takes"
    answer = ask_child(command, LayerAnswers, module, question, 600.0)
    if isinstance(answer, LayerAnswers):
        return answer
    return LayerAnswers(problem=answer.message, remedy=answer.remedy)


@lru_cache(maxsize=4)
def capabilities(module: str = MODULE, ask: Callable[[str], Capabilities] = probe) -> Capabilities:
    """Return the capabilities, asked for until found once, or raise ``BackendUnavailable``."""
    found = ask(module)
    found.require()
    return found


def tensorrt_version() -> str | None:
    """Return the release of the TensorRT package of this Python; ``None`` without one."""
    try:
        return version("tensorrt")
    except PackageNotFoundError:
        return None


def main(argv: list[str] | None = None) -> int:
    """Print what TensorRT can do here, as one JSON object; 3 where it cannot be used.

    With --model, print instead which layers of the model its builder would put on the DLA.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tegrascope.collectors.backends.tensorrt_probe", description=main.__doc__
    )
    parser.add_argument("--model", type=Path)
    parser.add_argument("--precision", choices=("fp16", "int8"))
    parser.add_argument("--shapes", type=json.loads, default={})
    parser.add_argument("--module", default=MODULE, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    answer: Capabilities | LayerAnswers
    if given.model is None:
        answer = look(given.module)
    else:
        shapes = {name: tuple(lengths) for name, lengths in given.shapes.items()}
        answer = look_at_layers(given.model, given.precision, shapes, given.module)
    print(answer.model_dump_json(exclude_none=True), flush=True)
    return 0 if answer.problem is None else 3


if __name__ == "__main__":
    sys.exit(main())
