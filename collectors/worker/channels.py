"""The channels of an output: how much each varies over the inputs, and how far it is off.

One norm over a whole output hides its small channels: the boxes of a detector reach 640, its scores
stay below 1. So each channel has its own error, against its own spread.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rounding to the seven bits of bf16, the least relative error that is assumed of a rounded channel;
# and the error that is assumed if the model could not be run with rounded weights.
_LEAST_ROUNDING, _USUAL_ROUNDING = 2.0**-9, 2.0**-7
_SHOWN_RANGES = 12
# With fewer values per channel, the sizes of channels differ by chance.
_FEW_VALUES = 64


class ChannelErrors(NamedTuple):
    """Root mean squares by channel, in the unit of the output; each has shape (channels,).

    ``size`` and ``spread`` are those of the reference. For the spread over the inputs, the mean of
    each position over the inputs is taken out. ``given_spread`` is that of the outputs that are
    judged. ``rounding`` is the error that weights rounded to bf16 make. ``largest`` is the largest
    error of the ``values`` in all channels.
    """

    size: "NDArray[Any]"
    spread: "NDArray[Any]"
    given_spread: "NDArray[Any]"
    error: "NDArray[Any]"
    rounding: "NDArray[Any]"
    largest: float
    values: int

    @property
    def relative(self) -> float:
        """The norm of the error over that of the reference, of all channels together."""
        size, error = (math.hypot(*values) for values in (self.size, self.error))
        if size == 0:
            return float(error > 0)
        return error / size


def channel_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of an output whose slices are its channels; the first axis is the inputs.

    >>> channel_axes((8, 84, 8400)), channel_axes((8, 25200, 85)), channel_axes((8, 1000))
    ((1,), (2,), (1,))
    >>> channel_axes((8, 21, 65, 65)), channel_axes((8, 65, 65, 21)), channel_axes((8,))
    ((1,), (3,), ())
    >>> channel_axes((8, 3, 80, 80, 85))
    (1, 4)
    """
    if len(shape) < 3:
        return tuple(range(1, len(shape)))
    if len(shape) == 3:
        return (1,) if shape[1] <= shape[2] else (2,)
    if len(shape) == 4:
        # A square map comes before its channels only in the order of TensorFlow.
        return (3,) if shape[1] == shape[2] != shape[3] else (1,)
    return (1, len(shape) - 1)


def as_channels(output: "NDArray[Any]") -> "NDArray[Any]":
    """Return an output of several inputs with shape (inputs, positions, channels)."""
    chosen = channel_axes(output.shape)
    positions = [axis for axis in range(1, output.ndim) if axis not in chosen]
    channels = math.prod(output.shape[axis] for axis in chosen)
    moved = output.transpose([0, *positions, *chosen])
    return moved.reshape(len(output), -1 if output.size else 0, channels)


def channel_errors(
    expected: "NDArray[Any]", given: "NDArray[Any]", rounded: "NDArray[Any] | None"
) -> ChannelErrors:
    """Return the errors of an output by channel; values that are not finite do not count.

    Args:
        expected: Of the reference, the inputs in the first axis.
        given: Of the same shape.
        rounded: Of the reference with rounded weights; ``None`` if it did not run.
    """
    import numpy

    want, got = as_channels(expected), as_channels(given)
    other = None if rounded is None else as_channels(rounded)
    inputs, positions, channels = want.shape
    mean, given_mean = (
        numpy.nan_to_num(one.mean(axis=0, dtype="f8"), posinf=0.0, neginf=0.0)
        for one in (want, got)
    )
    size, spread, given_spread, error, rounding = numpy.zeros((5, channels))
    largest = 0.0
    # One input at a time: in double precision, a data set would take twice its memory.
    for number in range(inputs):
        row = want[number].astype("f8")
        counts = numpy.isfinite(row) & numpy.isfinite(got[number])
        row[~counts] = mean[~counts]
        size += (row**2).sum(axis=0)
        spread += ((row - mean) ** 2).sum(axis=0)
        given_spread += (numpy.where(counts, got[number] - given_mean, 0.0) ** 2).sum(axis=0)
        off = numpy.where(counts, got[number] - row, 0.0)
        error += (off**2).sum(axis=0)
        largest = max(largest, float(abs(off).max(initial=0.0)))
        if other is not None:
            off = numpy.nan_to_num(other[number] - row, posinf=0.0, neginf=0.0)
            rounding += (off**2).sum(axis=0)
    count = max(1, inputs * positions)
    size, error = numpy.sqrt(size / count), numpy.sqrt(error / count)
    # The mean of n inputs takes one of their n degrees of freedom.
    freedom = max(1, (inputs - 1) * positions)
    spread, given_spread = numpy.sqrt(spread / freedom), numpy.sqrt(given_spread / freedom)
    if other is None:
        rounding = size * _USUAL_ROUNDING
    else:
        rounding = _usual(numpy.sqrt(rounding / count), spread)
        rounding = numpy.maximum(rounding, size * _LEAST_ROUNDING)
    return ChannelErrors(size, spread, given_spread, error, rounding, largest, want.size)


def _usual(rounding: "NDArray[Any]", spread: "NDArray[Any]") -> "NDArray[Any]":
    """Return the errors of rounding, none of which is below that of a usual channel.

    One way to round is one draw: by chance, some channels of a classifier hardly move.
    """
    import numpy

    varies = spread > 0
    if not varies.any():
        return rounding
    typical = numpy.median(rounding[varies] / spread[varies])
    usual: NDArray[Any] = numpy.maximum(rounding, typical * spread)
    return usual


def not_by_chance(sizes: "NDArray[Any]", values: int) -> "NDArray[Any]":
    """Return the sizes of channels, none of which is small because it has few values.

    A score of a classifier is one value per input. Near 0 by chance, it would make any error large,
    so that the size of a usual channel takes its place.

    Args:
        values: Number of values in all channels.
    """
    import numpy

    if values >= _FEW_VALUES * len(sizes) or not (sizes > 0).any():
        return sizes
    usual: NDArray[Any] = numpy.maximum(sizes, numpy.median(sizes[sizes > 0]))
    return usual


def difference_by_channel(first: "NDArray[Any]", now: "NDArray[Any]") -> float:
    """Return the norm of the difference over that of the first, of the worst channel, at most 1.

    Args:
        first: Shape (inputs, positions, channels), as ``now``.
    """
    import numpy

    expected, given = first.astype("f8"), now.astype("f8")
    is_finite = numpy.isfinite(expected)
    if not numpy.array_equal(is_finite, numpy.isfinite(given)):
        return 1.0
    expected, given = numpy.where(is_finite, expected, 0.0), numpy.where(is_finite, given, 0.0)
    size = not_by_chance(numpy.sqrt((expected**2).sum(axis=(0, 1))), first.size)
    off = numpy.sqrt(((given - expected) ** 2).sum(axis=(0, 1)))
    differs = off > 0
    if not differs.any():
        return 0.0
    # Half precision has no digits left below this share of the largest channel.
    least = max(float(size.max()) * 2.0**-24, float(numpy.finfo("f8").tiny))
    return min(1.0, float((off[differs] / numpy.maximum(size[differs], least)).max()))


def ranges(numbers: "Sequence[int] | NDArray[Any]") -> str:
    """Return numbers in ascending order as ranges, the first of them if there are many.

    >>> ranges([4, 5, 6, 9])
    '4-6, 9'
    """
    import numpy

    ends = numpy.flatnonzero(numpy.diff(numbers) > 1) + 1
    texts = []
    for run in numpy.split(numpy.asarray(numbers), ends)[:_SHOWN_RANGES]:
        texts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    if len(ends) >= _SHOWN_RANGES:
        texts.append("…")
    return ", ".join(texts)
