"""Scales for int8: from a calibration cache, or by TensorRT's own calibrators from inputs.

TensorRT is an argument, as in ``tensorrt_build``. A data set is also what ``bench`` runs a model on
to count right answers.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from ...parsers.errors import BackendUnavailable, UnreadableError, UserError, file_error
from ...parsers.inference.calibration import (
    ALGORITHMS,
    CalibrationCache,
    Preprocess,
    parse_calibration,
    release_number,
)
from ...parsers.inference.events import Order
from ...parsers.values import decode_text, some_of
from ..base import write_atomic
from ..board.readers import available_bytes, read_text
from ..models.files import sha256_of
from ..paths import exists, is_directory, is_file
from .cuda_runtime import load_cuda
from .engine_cache import engine_key, model_digest

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[numpy.generic]]

_ARRAYS = frozenset({".npy", ".npz"})
_IMAGES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp"})
_PROGRESS_SECONDS = 2.0
QUANTISE = "put Q/DQ nodes into the model (ModelOpt does that)"
CALIBRATE = "tegrascope engines calibrate MODEL --data DIR -o CACHE makes one"
Say = Callable[[str], None]


class InputSpec(NamedTuple):
    """One input of a model: numpy's name of its type, and its shape with the batch first."""

    dtype: str
    shape: tuple[int, ...]


# --- data sets ------------------------------------------------------------------------------------


class InputBatch(NamedTuple):
    """Arrays by input, and how many inputs of them count: the last is repeated to fill them."""

    arrays: "Arrays"
    number: int


class DataSet:
    """Inputs of a model, from one file of arrays or from a folder of images and arrays.

    Files come in the order of their names. Images are preprocessed; arrays are inputs already, of
    one input (shape of an input without its batch) or of several (one more dimension in front).
    ``count`` is the number of inputs.
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
        import numpy

        size = next(iter(self._inputs.values())).shape[0]
        waiting: list[Arrays] = []

        def stacked() -> InputBatch:
            filled = waiting + waiting[-1:] * (size - len(waiting))
            names = self._inputs
            arrays = {name: numpy.stack([one[name] for one in filled]) for name in names}
            return InputBatch(arrays, len(waiting))

        for sample in self._samples():
            waiting.append(sample)
            if len(waiting) == size:
                yield stacked()
                waiting.clear()
        if waiting:
            yield stacked()

    def _length(self, file: Path) -> int:
        if file.suffix.lower() in _IMAGES:
            return 1
        name, array = next(iter(self._arrays(file).items()))
        return len(array) if array.ndim == len(self._inputs[name].shape) else 1

    def _samples(self) -> "Iterator[Arrays]":
        """Yield one input at a time, without its batch."""
        for file in self._files:
            if file.suffix.lower() in _IMAGES:
                yield self._image(file)
                continue
            arrays = self._arrays(file)
            fitting = {name: _fit(file, name, arrays[name], self._inputs[name]) for name in arrays}
            if len({len(array) for array in fitting.values()}) != 1:
                raise UserError(
                    f"{file} has not the same number of each input", "write one array per input"
                )
            for at in range(len(next(iter(fitting.values())))):
                yield {name: array[at] for name, array in fitting.items()}

    def _arrays(self, file: Path) -> "dict[str, NDArray[Any]]":
        """Return the arrays of a file by the name of the input."""
        import numpy

        try:
            if file.suffix.lower() == ".npy":
                found = {"": numpy.load(file, mmap_mode="r", allow_pickle=False)}
            else:
                found = load_archive(file)
        except (OSError, ValueError, EOFError, BadZipFile, MemoryError) as error:
            raise UserError(
                f"{file} cannot be read as arrays ({error})", "write it again"
            ) from None
        if len(found) == len(self._inputs) == 1:
            return dict(zip(self._inputs, found.values(), strict=True))
        if found.keys() != self._inputs.keys():
            raise UserError(
                f"{file} has arrays for {', '.join(found) or 'nothing'}, and the inputs are"
                f" {', '.join(self._inputs)}",
                "write a .npz with one array per input, under its name",
            )
        return found

    def _image(self, file: Path) -> "Arrays":
        """Return an image as the model's only input."""
        import numpy

        try:
            from PIL import Image
        except ModuleNotFoundError:
            raise BackendUnavailable(
                f"{file} is an image, and pillow is not installed", "pip install pillow"
            ) from None
        how = self._preprocess
        (name, (dtype, shape)), *others = self._inputs.items()
        grey, last = how.channels == "grey", how.layout == "NHWC"
        if others or len(shape) != 4 or shape[3 if last else 1] != (1 if grey else 3):
            wanted = "one channel" if grey else "three channels"
            raise UserError(
                f"the input {name!r} of shape {shape} does not take an image of {wanted} as"
                f" {how.layout}",
                "set layout and channels in preprocess:, or give arrays",
            )
        height, width = shape[1:3] if last else shape[2:4]
        try:
            with Image.open(file) as opened:
                image = opened.convert("L" if grey else "RGB")
        # Its error for a damaged image is an OSError too. It counts the pixels of an image before
        # it decodes them, and refuses too many.
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise UserError(f"{file} cannot be read as an image ({error})", "remove it") from None
        if how.resize is None:
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        else:
            if how.resize < max(width, height):
                raise UserError(
                    f"resize: {how.resize} is less than the model's {width} x {height}",
                    f"set {max(width, height)} or more",
                )
            factor = how.resize / min(image.size)
            wide, high = (max(how.resize, round(side * factor)) for side in image.size)
            image = image.resize((wide, high), Image.Resampling.BILINEAR)
            left, top = (wide - width) // 2, (high - height) // 2
            image = image.crop((left, top, left + width, top + height))
        pixels = numpy.asarray(image, dtype="float32").reshape(height, width, -1)
        if how.channels == "bgr":
            pixels = pixels[:, :, ::-1]
        mean, std = (numpy.asarray(value, dtype="float32") for value in (how.mean, how.std))
        values = (pixels * numpy.float32(how.scale) - mean) / std
        values = values if last else values.transpose(2, 0, 1)
        return {name: numpy.ascontiguousarray(values, dtype=dtype)}


def input_files(path: Path) -> list[Path]:
    """Return the files of a data set in order, or raise ``UserError`` if there are none."""
    if is_file(path) and path.suffix.lower() in _ARRAYS:
        return [path]
    known = sorted(_ARRAYS | _IMAGES)
    found = [one for one in path.rglob("*") if is_file(one)] if is_directory(path) else []
    files = sorted(one for one in found if one.suffix.lower() in known and one.name[0] != ".")
    if not files:
        raise UserError(
            f"{path} has no inputs" if exists(path) else f"there is no data at {path}",
            f"give a .npz or .npy file, or a folder of files ending in {' '.join(known)}",
        )
    return files


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
        most_bytes = _available_bytes()
    with ZipFile(file) as packed:
        size = sum(entry.file_size for entry in packed.infolist())
    if most_bytes is not None and size > most_bytes:
        limit = f"{most_bytes >> 20} MiB of memory are available"
        raise ValueError(f"its arrays have {size >> 20} MiB, and {limit}")
    with numpy.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _available_bytes() -> int | None:
    available = available_bytes(read_text(Path("/proc/meminfo")) or "")
    return None if available is None else int(available)


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
    done, said = 0, time.monotonic()
    say(f"{doing} {data.count} inputs")
    for batch in data.batches():
        yield batch
        done += batch.number
        if time.monotonic() - said >= _PROGRESS_SECONDS:
            said = time.monotonic()
            say(f"{doing} {data.count} inputs: {done} are done")


# --- scales ---------------------------------------------------------------------------------------


def is_data(path: Path) -> bool:
    """Return whether a calibration is made of inputs; otherwise it is a cache."""
    return is_directory(path) or path.suffix.lower() in _ARRAYS


def read_cache(path: Path) -> CalibrationCache:
    """Read a calibration cache, or raise ``UserError``."""
    try:
        return parse_calibration(decode_text(path.read_bytes()))
    except OSError as error:
        raise file_error(error, path) from None
    except (UnreadableError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a calibration cache ({error})", CALIBRATE) from None


def check_request(name: str, order: Order, *, is_quantised: bool) -> None:
    """Raise ``UserError`` if a calibration contradicts an order or its model."""
    if order.precision != "int8":
        raise UserError(
            f"a calibration is for int8, and {name} is to run in {order.precision or 'fp16'}",
            "set precision: int8, or leave calibration out",
        )
    if is_quantised:
        raise UserError(
            f"{name} has scales of its own (Q/DQ nodes), so a calibration cannot apply",
            "leave calibration out, or give the model without Q/DQ nodes",
        )


def text_for(cache: CalibrationCache, release: int) -> str:
    """Return a cache under the header of this TensorRT, which ignores any other.

    A scale is the same whatever found it, and a DLA takes those of one algorithm only.
    """
    own = {"release": release, "algorithm": ALGORITHMS["entropy"]}
    return cache.model_copy(update=own).render()


def key_parts(order: Order) -> dict[str, str]:
    """Return what a calibration adds to the key of an engine: the digest of its content."""
    if order.calibration is None:
        return {}
    path = Path(order.calibration).expanduser()
    if not is_data(path):
        read_cache(path)  # whatever is wrong with it is better known before a build
        return {"calibration": sha256_of(path)}
    files = input_files(path)
    names = {str(file.relative_to(path)): sha256_of(file) for file in files}
    how = None if order.preprocess is None else order.preprocess.model_dump_json()
    return {
        "calibration": engine_key({**names, "preprocess": how or "", "data": "1"}),
        "calibration_method": order.calibration_method,
    }


@lru_cache(maxsize=4)
def _calibrator_class(base: Any) -> Any:
    """Return a calibrator, derived from one of TensorRT's own.

    TensorRT calls it from C++, which an exception would end: the first one is kept as ``error``.
    """

    class Calibrator(base):  # type: ignore[misc]
        def __init__(
            self, batch: int, known: bytes | None, batches: "Iterator[Arrays]", cuda: Any
        ) -> None:
            base.__init__(self)
            self._batch, self._known, self._batches, self._cuda = batch, known, batches, cuda
            self._buffers: dict[str, int] = {}
            self.made: bytes | None = None
            self.error: Exception | None = None

        def get_batch_size(self) -> int:
            return self._batch

        def get_batch(self, names: Sequence[str], *_: object) -> list[int] | None:
            try:
                arrays = next(self._batches, None)
                return None if arrays is None else [self._copy(n, arrays[n]) for n in names]
            except Exception as error:
                self.error = error
                return None

        def read_calibration_cache(self) -> bytes | None:
            return self._known

        def write_calibration_cache(self, cache: Any) -> None:
            self.made = bytes(cache)

        def _copy(self, name: str, array: Any) -> int:
            api, check = self._cuda.api, self._cuda.check
            if name not in self._buffers:
                self._buffers[name] = int(check(api.cudaMalloc(max(1, array.nbytes))))
            address, kind = self._buffers[name], api.cudaMemcpyKind.cudaMemcpyHostToDevice
            check(api.cudaMemcpy(address, array.ctypes.data, array.nbytes, kind))
            return address

        def release(self) -> None:
            for address in self._buffers.values():
                self._cuda.api.cudaFree(address)
            self._buffers.clear()

    return Calibrator


class Calibration:
    """The scales of one build; ``calibrator`` has to live until it ends.

    From inputs, TensorRT returns the scales when it has seen all of them, and nothing before: a
    calibration that was interrupted begins again. A finished one is kept beside the engines, and
    used for every engine of the same model, data and TensorRT.
    """

    def __init__(
        self,
        trt: Any,
        model: Path,
        order: Order,
        inputs: Mapping[str, InputSpec],
        say: Say,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        """Take the scales given, or the cache or data of an order, or raise ``UserError``."""
        path = Path(order.calibration or "").expanduser()
        self._release = release_number(str(trt.__version__))
        self._out = order.calibration_file
        self._kept: Path | None = None
        self.cache: CalibrationCache | None = None
        self.notes: list[str] = []
        batches: Iterator[Arrays] = iter(())
        base = trt.IInt8EntropyCalibrator2
        if scales is not None:
            self.cache = CalibrationCache(release=self._release, scales=dict(scales))
        elif not is_data(path):
            self.cache = read_cache(path)
            if self.cache.origin is not None:
                words = f"{path.name} is of {self.cache.origin}, not of TensorRT"
                self.notes.append(f"{words}: its scales are used")
            elif self.cache.release != self._release:
                words = f"{path.name} is of TensorRT {self.cache.version}, not of this one"
                self.notes.append(f"{words}: its scales are used as they are")
        else:
            if order.engine_directory is not None:
                parts = {"model": model_digest(model), "release": str(self._release)}
                key = engine_key({**key_parts(order), **parts})
                self._kept = Path(order.engine_directory) / f"calibration-{key[:32]}.cache"
                if is_file(self._kept):
                    self.cache = read_cache(self._kept)
                    say(f"the scales of {path} are known already")
            if self.cache is None:
                if order.calibration_method == "minmax":
                    base = trt.IInt8MinMaxCalibrator
                data = DataSet(path, inputs, order.preprocess)
                batches = (batch.arrays for batch in reported(data, "calibrating with", say))
        known = None if self.cache is None else text_for(self.cache, self._release).encode()
        size = next(iter(inputs.values())).shape[0]
        self.calibrator = _calibrator_class(base)(size, known, batches, load_cuda())

    def check(self, tensors: Iterable[str], model: str) -> None:
        """Note the tensors without a scale; raise ``UserError`` if no tensor has one."""
        if self.cache is None:
            return
        names = list(dict.fromkeys(tensors))
        lacking = [name for name in names if name not in self.cache.scales]
        if len(lacking) == len(names):
            raise UserError(
                f"the calibration cache has no scale for any tensor of {model}", CALIBRATE
            )
        if lacking:
            words = f"{len(lacking)} of {len(names)} tensors have no scale, so the layers at them"
            self.notes.append(f"{words} may not run in int8: {some_of(lacking)}")

    def finish(self, tensors: Iterable[str], model: str, *, is_built: bool) -> None:
        """Release the buffers, raise the error of the data if any, and keep new scales."""
        self.calibrator.release()
        if self.calibrator.error is not None:
            raise self.calibrator.error
        made = self.calibrator.made
        if self.cache is None and made is not None:
            try:
                self.cache = parse_calibration(made.decode())
            except UnreadableError as error:
                what = f"TensorRT made scales that cannot be used ({error})"
                raise UserError(what, "give inputs as the model sees them in its work") from None
            if self._kept is not None:
                write_atomic(self._kept, made)
            self.check(tensors, model)
        if self._out is not None and is_built and self.cache is not None:
            try:
                write_atomic(Path(self._out), self.cache.render().encode())
            except OSError as error:
                raise file_error(error, self._out) from None
