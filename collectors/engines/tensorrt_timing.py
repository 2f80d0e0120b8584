"""How fast TensorRT found kernels to be, kept in a file for the next build."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..engine_cache import write_whole
from .tensorrt_log import LogLines


class TimingCache:
    """The file; that it can't be used, or not be written, is no failure of a build."""

    def __init__(self, path: Path | None, has: Callable[[str], bool], lines: LogLines) -> None:
        """Take a place.

        Args:
            path: The file; ``None`` for none.
            has: Whether the library has an optional symbol.
            lines: Where it is said what went wrong.
        """
        self._path = path if has("IBuilderConfig.create_timing_cache") else None
        self._lines = lines

    def use(self, config: Any) -> None:
        """Give a build what earlier builds measured."""
        if self._path is None:
            return
        content = b""
        with suppress(OSError):
            content = self._path.read_bytes()
        cache = config.create_timing_cache(content)
        if cache is None or not config.set_timing_cache(cache, False):
            self._lines.take("INFO", "the timing cache could not be used; an empty one is")
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def keep(self, config: Any) -> None:
        """Write down what a build measured."""
        cache = None if self._path is None else config.get_timing_cache()
        if cache is None or self._path is None:
            return
        try:
            write_whole(self._path, bytes(cache.serialize()))
        except OSError as error:
            self._lines.take("INFO", f"the timing cache could not be written ({error})")
