"""Compare the outputs of a model with those of its parts, in a child process.

``python -m tegrascope.workbench.inspect.equality INPUTS MODEL PART...`` prints an ``Equality`` as
one JSON object. ``differences`` runs it, because a foreign model decides the time and the memory
that ONNX Runtime takes to load and to run it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...collectors.backends.base import make_input, make_varied
from ...collectors.board.readers import free_memory
from ...collectors.children.bounded import limit_memory
from ...collectors.children.program import ask_child, python_child
from ...collectors.worker.channels import as_channels
from ...parsers.errors import UserError
from ...parsers.onnx.graph import Tensor
from ...parsers.records import Record

COMPARED_INPUTS = 8
# All of them on one core of a board, for a model of some hundred billion operations.
_MOST_SECONDS = 600.0
# The smallest normal number of FP32: below it there are no steps to compare.
_LEAST_SIZE = 2.0**-126


class Equality(Record):
    """The largest difference of each output of a model, or why there is none.

    ``by_output`` has shares of the size of a channel. It is infinite where numbers stand against
    NaN, shapes differ, or whole numbers do.
    """

    by_output: dict[str, float] = {}
    problem: str = ""


def differences(
    model: Path,
    parts: Sequence[Path],
    inputs: Sequence[Tensor],
    *,
    seconds: float = _MOST_SECONDS,
) -> dict[str, float]:
    """Return the largest difference of each output between a model and its parts.

    Args:
        parts: Models that run after each other, each with the tensors that are there before.
        inputs: Those of the model, of fixed shapes.
        seconds: Time limit. The limit of memory is what is available.

    Raises:
        UserError: ONNX Runtime cannot run them within these limits.
    """
    given = {tensor.name: (tensor.dtype or "", tensor.lengths or ()) for tensor in inputs}
    files = [str(path) for path in (model, *parts)]
    command = python_child(__name__, json.dumps(given), *files, name="equality")
    answer = ask_child(command, Equality, "onnxruntime", f"to run {model.name}", seconds)
    problem = answer.message if isinstance(answer, UserError) else answer.problem
    if problem:
        what = f"onnxruntime cannot run {model.name}, so no parts can be compared: {problem}"
        raise UserError(what, "leave the model whole")
    assert isinstance(answer, Equality)
    return answer.by_output


def _compare(inputs: Mapping[str, tuple[str, Sequence[int]]], paths: Sequence[str]) -> Equality:
    """Run the first model, and the others after each other, on the same inputs."""
    model, *parts = map(_session, paths)
    expected: dict[str, list[Any]] = {value.name: [] for value in model.get_outputs()}
    given: dict[str, list[Any]] = {name: [] for name in expected}
    for number in range(COMPARED_INPUTS):
        tensors = {}
        for name, (dtype, lengths) in inputs.items():
            values = make_input(name, dtype, tuple(lengths))
            tensors[name] = make_varied(values, number * len(values)) if lengths else values
        outputs = _run(model, tensors)
        for part in parts:
            tensors |= _run(part, tensors)
        for name in expected:
            expected[name].append(outputs[name])
            given[name].append(tensors[name])
    by_output = {name: _difference(want, given[name]) for name, want in expected.items()}
    return Equality(by_output=by_output)


def _session(path: str) -> Any:
    """Load a model so that a node computes the same whatever is around it.

    Optimised graphs, several threads and weights that are packed in advance all change the order
    of sums.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _run(session: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a model by name."""
    fed = {value.name: tensors[value.name] for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, fed), strict=True))


def _difference(expected: Sequence[Any], given: Sequence[Any]) -> float:
    """Return the largest difference of an output, in sizes of its channel.

    The size is the spread over all inputs or, if that is more, the largest value.
    """
    import numpy

    # NaN, whole numbers, and the outputs of a detector, which may find nothing, have to be equal.
    if all(map(_is_equal, expected, given)):
        return 0.0
    if len({array.shape for array in (*expected, *given)}) > 1 or expected[0].dtype.kind != "f":
        return float("inf")
    want, got = (
        as_channels(numpy.concatenate(list(map(numpy.atleast_1d, arrays)))).astype("f8")
        for arrays in (expected, given)
    )
    if not (numpy.isfinite(want) & numpy.isfinite(got)).all():
        return float("inf")
    size = numpy.maximum(numpy.ptp(want, axis=(0, 1)), abs(want).max(axis=(0, 1)))
    off = abs(got - want).max(axis=(0, 1))
    return float((off / numpy.maximum(size, _LEAST_SIZE)).max())


def _is_equal(want: Any, got: Any) -> bool:
    import numpy

    return numpy.array_equal(want, got, equal_nan=want.dtype.kind == "f")


def main(arguments: Sequence[str]) -> int:
    """Compare, and print the result or the reason why there is none as one JSON object."""
    inputs, *paths = arguments
    try:
        limit_memory(free_memory())
        answer = _compare(json.loads(inputs), paths)
    except MemoryError:
        answer = Equality(problem="it takes more memory than is available")
    except Exception as error:  # onnxruntime has a class of its own for each failure
        [line, *_] = str(error).splitlines() or [type(error).__name__]
        answer = Equality(problem=line)
    # Escaped to ASCII: a name may contain any separator of lines.
    print(json.dumps(answer.model_dump()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
