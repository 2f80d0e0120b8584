"""Which layers of a model the builder on this machine would put on the DLA, asked in a child.

python -m tegrascope.collectors.backends.layer_answers MODEL --precision fp16
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ...parsers.errors import BackendUnavailable, Mendable
from ...parsers.inference.placement import LayerAnswer, LayerAnswers
from ..children.start import DRIVER, ask_child, python_child
from .tensorrt_build import Builder
from .tensorrt_network import BuildSpec, Prepared, logger_of
from .tensorrt_probe import MODULE, import_tensorrt, symbols_of

_SECONDS = 600.0
_Shapes = Mapping[str, tuple[int, ...]]


def ask(
    model: Path,
    precision: Literal["fp16", "int8"] | None,
    shapes: _Shapes,
    module: str = MODULE,
    seconds: float = _SECONDS,
) -> LayerAnswers:
    """Ask in a child process.

    Args:
        precision: Precision of the build; ``None`` leaves it to what the model is.
        shapes: Input to its shape, of inputs that are open.
        module: ``tensorrt``; another name is for tests.

    Returns:
        The answers of the builder, or why there are none; never an exception.
    """
    command = [*python_child(__spec__.name), str(model), "--module", module]
    if precision is not None:
        command += ["--precision", precision]
    for name, lengths in shapes.items():
        command += ["--shape", f"{name}:{'x'.join(map(str, lengths))}"]
    found = ask_child(command, LayerAnswers, module, "which layers the DLA takes", seconds)
    return (
        found
        if isinstance(found, LayerAnswers)
        else LayerAnswers(problem=found.what, remedy=found.mend)
    )


def look(
    model: Path, precision: Literal["fp16", "int8"] | None, shapes: _Shapes, module: str = MODULE
) -> LayerAnswers:
    """Ask in this process; it may not survive that."""
    found: dict[str, Any] = {}
    try:
        trt = import_tensorrt(module)
        found["tensorrt"] = str(trt.__version__)
        logger, lines = logger_of(trt)
        builder = Builder(trt, symbols_of(trt), logger, lines)
        found["dla_cores"] = max(0, int(trt.Builder(logger).num_DLA_cores))
        batch = next((lengths[0] for lengths in shapes.values() if lengths), 1)
        if found["dla_cores"]:
            spec = BuildSpec(model, "dla", batch=batch, precision=precision)
        else:
            # Without a DLA it is only asked whether its parser takes the model.
            spec = BuildSpec(model, "gpu", batch=batch)
        found["layers"] = _layers(builder.prepare(spec, shapes), bool(found["dla_cores"]))
    except (BackendUnavailable, Mendable) as error:
        found["problem"], found["remedy"] = error.what, error.mend
    except Exception as error:
        words = " ".join(str(error).split())
        found["problem"] = f"{module} cannot be asked here ({type(error).__name__}: {words})"
        found["remedy"] = DRIVER
    return LayerAnswers.model_validate(found)


def _layers(made: Prepared, has_dla: bool) -> tuple[LayerAnswer, ...]:
    network, config = made.network, made.config
    return tuple(
        LayerAnswer(
            name=layer.name,
            kind=str(getattr(layer.type, "name", layer.type)).rpartition(".")[2],
            marks=str(getattr(layer, "metadata", "") or ""),
            on_dla=bool(config.can_run_on_DLA(layer)) if has_dla else None,
        )
        for layer in map(network.get_layer, range(network.num_layers))
    )


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, lengths = text.rpartition(":")
    return name, tuple(int(length) for length in lengths.split("x"))


def main(argv: list[str] | None = None) -> int:
    """Print what the builder says of a model, as one JSON object; 3 where it cannot be asked."""
    parser = argparse.ArgumentParser(
        prog="python -m tegrascope.collectors.backends.layer_answers", description=main.__doc__
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--precision", choices=("fp16", "int8"))
    parser.add_argument("--shape", action="append", type=_shape, default=[])
    parser.add_argument("--module", default=MODULE, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    found = look(given.model, given.precision, dict(given.shape), given.module)
    print(found.model_dump_json(exclude_none=True), flush=True)
    return 0 if found.problem is None else 3


if __name__ == "__main__":
    sys.exit(main())
