"""Scales for int8: from a calibration cache, or by TensorRT's own calibrators from inputs.

TensorRT is an argument, as in ``tensorrt_build``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...parsers.errors import UnreadableError, UserError, file_error
from ...parsers.inference.calibration import (
    ALGORITHMS,
    CalibrationCache,
    parse_calibration,
    release_number,
)
from ...parsers.inference.events import Order
from ...parsers.values import decode_text, some_of
from ..files import write_atomic
from ..models.data_sets import DataSet, InputSpec, Say, input_files, is_data, reported
from ..models.files import sha256_of
from ..paths import is_file
from .cuda_runtime import load_cuda
from .engine_cache import engine_key, model_digest

if TYPE_CHECKING:
    from ..models.data_sets import Arrays

QUANTISE = "put Q/DQ nodes into the model (ModelOpt does that)"
CALIBRATE = "tegrascope engines calibrate MODEL --data DIR -o CACHE makes one"


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
    parts = {str(file.relative_to(path)): sha256_of(file) for file in files}
    parts |= {"preprocess": "", "data": "1"}
    if order.preprocess is not None:
        # A key that is off stays out: calibrations of older releases are those of the same inputs.
        unused = None if order.preprocess.letterbox else {"letterbox"}
        parts["preprocess"] = order.preprocess.model_dump_json(exclude=unused)
    return {
        "calibration": engine_key(parts),
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
                if arrays is None:
                    return None
                return [self._copy(name, arrays[name]) for name in names]
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
        known = None
        if self.cache is not None:
            known = text_for(self.cache, self._release).encode()
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
