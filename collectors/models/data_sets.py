"""Inputs of a model from files: for calibration, and for counting right answers."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from ...parsers.errors import PIP_INSTALL, BackendUnavailable, UserError
from ...parsers.inference.calibration import Preprocess
from ..board.readers import free_memory
from ..paths import exists, is_directory, is_file

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from PIL.Image import Image

    Arrays = Mapping[str, NDArray[numpy.generic]]

_ARRAYS = frozenset({".npy", ".npz"})
_IMAGES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp"})
_PROGRESS_SECONDS = 2.0
Say = Callable[[str], None]


class InputSpec(NamedTuple):
    """One input of a model: numpy's name of its type, and its shape with the batch first."""

    dtype: str
    shape: tuple[int, ...]


class InputBatch(NamedTuple):
    """Arrays by input, and how many inputs of them count: the last is repeated to fill them."""

    arrays: "Arrays"
    number: int


class DataSet:
    """Inputs of a model, from one file of arrays or from a folder of images and arrays.

    Files come in the order of their names. Images are preprocessed; arrays are inputs already, of
    one input (shape of an input without its batch) or of several (one more dimension in front).
    ``count`` is the number of inputs.

    Example:
        data = DataSet(Path("images"), {"image": InputSpec("float32", (8, 3, 224, 224))})
        for batch in data.batches():
            backend.feed(batch.arrays)
    """

    def __init__(
        self, path: Path, inputs: Mapping[str, InputSpec], preprocess: Preprocess | None = None
    ) -> None:
        """Find the files and count their inputs.

        Raises:
            UserError: There are none, or one of them is not fit for the model.
        """
        self._inputs, self._files = inputs, input_files(path)
        self._preprocess = preprocess or Preprocess()
        self.count = sum(map(self._length, self._files))
        if self.count == 0:
            raise UserError(f"{path} has no input in its arrays", "give one or more")

    def batches(self) -> Iterator[InputBatch]:
        """Yield all inputs in order."""
        size = next(iter(self._inputs.values())).shape[0]
        waiting: list[Arrays] = []
        for sample in self._samples():
            waiting.append(sample)
            if len(waiting) == size:
                yield self._stacked(waiting, size)
                waiting.clear()
        if waiting:
            yield self._stacked(waiting, size)

    def _stacked(self, samples: "list[Arrays]", size: int) -> InputBatch:
        """Return inputs as one batch, in which the last is repeated up to its size."""
        import numpy

        filled = samples + samples[-1:] * (size - len(samples))
        arrays = {}
        for name in self._inputs:
            arrays[name] = numpy.stack([sample[name] for sample in filled])
        return InputBatch(arrays, len(samples))

    def _length(self, file: Path) -> int:
        """Return the number of inputs in a file."""
        if _is_image(file):
            return 1
        name, array = next(iter(self._arrays(file).items()))
        has_several = array.ndim == len(self._inputs[name].shape)
        return len(array) if has_several else 1

    def _samples(self) -> "Iterator[Arrays]":
        """Yield one input at a time, without its batch."""
        for file in self._files:
            if _is_image(file):
                yield self._image(file)
            else:
                yield from self._rows(file)

    def _rows(self, file: Path) -> "Iterator[Arrays]":
        """Yield the inputs in a file of arrays."""
        arrays = {}
        for name, array in self._arrays(file).items():
            arrays[name] = _fit(file, name, array, self._inputs[name])
        lengths = {len(array) for array in arrays.values()}
        if len(lengths) != 1:
            raise UserError(
                f"{file} has not the same number of each input", "write one array per input"
            )
        for at in range(lengths.pop()):
            yield {name: array[at] for name, array in arrays.items()}

    def _arrays(self, file: Path) -> "dict[str, NDArray[Any]]":
        """Return the arrays of a file by the name of the input."""
        import numpy

        try:
            if file.suffix.lower() == ".npy":
                arrays = {"": numpy.load(file, mmap_mode="r", allow_pickle=False)}
            else:
                arrays = load_archive(file)
        except (OSError, ValueError, EOFError, BadZipFile, MemoryError) as error:
            raise UserError(
                f"{file} cannot be read as arrays ({error})", "write it again"
            ) from None
        if len(arrays) == len(self._inputs) == 1:
            # A single array needs no name, and may have any.
            return dict(zip(self._inputs, arrays.values(), strict=True))
        if arrays.keys() != self._inputs.keys():
            raise UserError(
                f"{file} has arrays for {', '.join(arrays) or 'nothing'}, and the inputs are"
                f" {', '.join(self._inputs)}",
                "write a .npz with one array per input, under its name",
            )
        return arrays

    def _image(self, file: Path) -> "Arrays":
        """Return an image as the model's only input."""
        import numpy

        how = self._preprocess
        name, dtype, width, height = self._image_input()
        image = _open_image(file, "L" if how.channels == "grey" else "RGB")
        from PIL.Image import Resampling, new  # it is there, since the image was opened

        size, offset = placed(image.size, (width, height), how)
        # The grey of YOLO is where no image lies.
        made = new(image.mode, (width, height), 114 if image.mode == "L" else (114, 114, 114))
        made.paste(image.resize(size, Resampling.BILINEAR), offset)
        pixels = numpy.asarray(made, dtype="float32").reshape(height, width, -1)
        if how.channels == "bgr":
            pixels = pixels[:, :, ::-1]
        mean = numpy.asarray(how.mean, dtype="float32")
        std = numpy.asarray(how.std, dtype="float32")
        values = (pixels * numpy.float32(how.scale) - mean) / std
        if how.layout == "NCHW":
            values = values.transpose(2, 0, 1)
        return {name: numpy.ascontiguousarray(values, dtype=dtype)}

    def _image_input(self) -> tuple[str, str, int, int]:
        """Return name, type, width and height of the input that images are for.

        Raises:
            UserError: The model has several inputs, or one that takes no image.
        """
        how = self._preprocess
        (name, (dtype, shape)), *others = self._inputs.items()
        channels, described = 3, "three channels"
        if how.channels == "grey":
            channels, described = 1, "one channel"
        if not others and len(shape) == 4:
            if how.layout == "NHWC" and shape[3] == channels:
                return name, dtype, shape[2], shape[1]
            if how.layout == "NCHW" and shape[1] == channels:
                return name, dtype, shape[3], shape[2]
        raise UserError(
            f"the input {name!r} of shape {shape} does not take an image of {described} as"
            f" {how.layout}",
            "set layout and channels in preprocess:, or give arrays",
        )


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in _IMAGES


def _open_image(file: Path, mode: str) -> "Image":
    """Return a decoded image with the channels of a mode of pillow."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise BackendUnavailable(
            f"{file} is an image, and pillow is not installed", f"{PIP_INSTALL} pillow"
        ) from None
    try:
        with Image.open(file) as image:
            return image.convert(mode)
    # Its error for a damaged image is an OSError too. It counts the pixels of an image before
    # it decodes them, and refuses too many.
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"{file} cannot be read as an image ({error})", "remove it") from None


def placed(
    size: tuple[int, int], side: tuple[int, int], how: Preprocess
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the size to which an image is scaled, and where it begins in an input, in pixels.

    Args:
        size: Width and height of the image; ``side`` those of the input.

    Raises:
        UserError: ``resize`` is less than the input.
    """
    if how.letterbox:
        factor, least = min(side[0] / size[0], side[1] / size[1]), 1
    elif how.resize is not None:
        factor, least = how.resize / min(size), how.resize
        if least < max(side):
            raise UserError(
                f"resize: {least} is less than the model's {side[0]} x {side[1]}",
                f"set {max(side)} or more",
            )
    else:
        return side, (0, 0)
    # Rounding must not make the shorter side shorter than it is to be.
    wide, high = max(least, round(size[0] * factor)), max(least, round(size[1] * factor))
    # Rounded towards 0, whether the image is the smaller one or the larger one.
    return (wide, high), (int((side[0] - wide) / 2), int((side[1] - high) / 2))


def is_data(path: Path) -> bool:
    """Return whether a path is that of a data set: a folder or a file of arrays."""
    return is_directory(path) or path.suffix.lower() in _ARRAYS


def input_files(path: Path) -> list[Path]:
    """Return the files of a data set in order, or raise ``UserError`` if there are none."""
    if is_file(path) and path.suffix.lower() in _ARRAYS:
        return [path]
    known = _ARRAYS | _IMAGES
    files = []
    if is_directory(path):
        for file in path.rglob("*"):
            is_hidden = file.name.startswith(".")
            if file.suffix.lower() in known and not is_hidden and is_file(file):
                files.append(file)
    if not files:
        problem = f"{path} has no inputs" if exists(path) else f"there is no data at {path}"
        endings = " ".join(sorted(known))
        raise UserError(
            problem, f"give a .npz or .npy file, or a folder of files ending in {endings}"
        )
    return sorted(files)


def load_archive(file: Path, most_bytes: int | None = None) -> "dict[str, NDArray[Any]]":
    """Return the arrays of a ``.npz`` file by name.

    Args:
        most_bytes: Their size, which is known before they are unpacked: a file of 1 MB can hold
            1 GB. The default is the memory that is available.

    Raises:
        ValueError: They are larger. Other errors are those of ``numpy.load`` and ``zipfile``.
    """
    import numpy

    if most_bytes is None:
        most_bytes = free_memory()
    with ZipFile(file) as packed:
        size = sum(entry.file_size for entry in packed.infolist())
    if most_bytes is not None and size > most_bytes:
        limit = f"{most_bytes >> 20} MiB of memory are available"
        raise ValueError(f"its arrays have {size >> 20} MiB, and {limit}")
    with numpy.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _fit(file: Path, name: str, array: "NDArray[Any]", spec: InputSpec) -> "NDArray[Any]":
    """Return an array as several inputs of a model's type, or raise ``UserError``."""
    import numpy

    sample = spec.shape[1:]
    several = array[None] if array.shape == sample else array
    if several.shape[1:] != sample or several.ndim != len(spec.shape):
        raise UserError(
            f"{file} has inputs of shape {array.shape} for {name!r}, which takes {sample} each",
            "give arrays as the model takes them",
        )
    if (array.dtype.kind == "f") != (numpy.dtype(spec.dtype).kind == "f"):
        # Whole numbers in place of fractions are pixels that nobody preprocessed.
        raise UserError(
            f"{file} has {array.dtype} for {name!r}, which is {spec.dtype}",
            "write the inputs as the model takes them",
        )
    if array.dtype.kind == "f" and not numpy.isfinite(several).all():
        raise UserError(f"{file} has NaN or infinity for {name!r}", "remove that input")
    return several.astype(spec.dtype)


def reported(data: DataSet, doing: str, say: Say) -> Iterator[InputBatch]:
    """Yield the batches of a data set, and report how far it is."""
    done, reported_at = 0, time.monotonic()
    say(f"{doing} {data.count} inputs")
    for batch in data.batches():
        yield batch
        done += batch.number
        if time.monotonic() - reported_at >= _PROGRESS_SECONDS:
            reported_at = time.monotonic()
            say(f"{doing} {data.count} inputs: {done} are done")
