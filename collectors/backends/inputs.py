"""The inputs of an inference: seeded, and the same for every back-end, process and machine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...parsers.errors import Mendable

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_SEED = 20240229
_DTYPES = {
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
}


def input_shape(name: str, shape: Sequence[int | str | None], batch: int) -> tuple[int, ...]:
    """Return the shape of an input at a batch.

    Args:
        shape: As the model declares it; a name or ``None`` is a dynamic dimension.
        batch: Inputs an inference: what the first dimension is or becomes.

    Raises:
        Mendable: The model fixes another batch, or leaves another dimension open.

    >>> input_shape("image", ["N", 3, 224, 224], 4)
    (4, 3, 224, 224)
    """
    if not shape:
        return ()
    first, *others = shape
    if isinstance(first, int) and first != batch:
        raise Mendable(
            f"the model fixes a batch of {first} for input {name!r}, not {batch}",
            f"set batch: {first}, or export the model with a dynamic first dimension",
        )
    fixed = [batch]
    for place, length in enumerate(others, start=1):
        if not isinstance(length, int):
            raise Mendable(
                f"input {name!r} leaves dimension {place} open ({length or 'unnamed'})",
                "export the model with a fixed shape: only the first dimension may be dynamic",
            )
        fixed.append(length)
    return tuple(fixed)


def make_input(name: str, kind: str, shape: tuple[int, ...]) -> "NDArray[numpy.generic]":
    """Return seeded data for an input: the same in every process and on every machine.

    Whole numbers are 0 and 1, which are in range for whatever they index.

    Args:
        kind: Its type as ONNX Runtime prints it: ``tensor(float)``.

    Raises:
        Mendable: No data can be made of that type.
    """
    import numpy

    if kind not in _DTYPES:
        raise Mendable(f"input {name!r} is a {kind}", "export the model with numeric tensor inputs")
    random = numpy.random.RandomState(_SEED)  # its stream is frozen for good, a Generator's is not
    dtype = numpy.dtype(_DTYPES[kind])
    if dtype.kind == "f":
        return numpy.asarray(random.uniform(-1.0, 1.0, shape), dtype=dtype)
    return numpy.asarray(random.randint(0, 2, shape), dtype=dtype)
