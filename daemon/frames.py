"""Samples and runs as pandas tables; imported late, since the daemon itself has no pandas.

>>> from tegrascope.daemon import frames
>>> lines = ["RAM 1/2MB GR3D_FREQ 50%@921", "RAM 1/2MB GR3D_FREQ 60%@921"]
>>> from tegrascope import parse_line
>>> frames.samples_frame(map(parse_line, lines))["gpu.utilization_ratio"].mean()
np.float64(0.55)
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..parsers.errors import Mendable
from ..parsers.flat import flatten
from ..parsers.records import Sample
from .output import open_output

try:
    import pandas
except ImportError:
    raise Mendable("pandas is not installed", "pip install 'tegrascope[frames]'") from None


def samples_frame(samples: Iterable[Sample]) -> pandas.DataFrame:
    """Return one row a sample.

    Columns are ``time`` (as printed, without zone) and the paths of ``flatten``, such as
    ``rails.VDD_IN.instant_watts``; what a line did not say is NaN.
    """
    return pandas.DataFrame.from_records([{"time": s.time, **flatten(s)} for s in samples])


def runs_frame(documents: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return one row a run; nested fields are named by their path, such as ``latency.p50_seconds``.

    Times are UTC; lists, such as the quality flags, are joined by blanks.
    """
    frame = pandas.json_normalize(
        [
            {
                key: " ".join(map(str, value)) if isinstance(value, list) else value
                for key, value in document.items()
            }
            for document in documents
        ]
    )
    if "started_wall_ns" in frame:
        started = pandas.to_datetime(frame["started_wall_ns"], unit="ns", utc=True)
        frame.insert(1, "started", started)
    return frame


def write_frame(frame: pandas.DataFrame, path: Path | None, kind: str) -> None:
    """Write a table as ``csv`` or ``parquet``; to standard output without a path.

    Raises:
        Mendable: The file can't be written, or pyarrow is not installed.
    """
    # Opened here and not by pandas: where that fails to write, it deletes what it was given.
    with open_output(path) as output:
        if kind == "csv":
            frame.to_csv(output, index=False)
            return
        mixed = [name for name, dtype in frame.dtypes.items() if dtype == "object"]
        frame = frame.astype(dict.fromkeys(mixed, "string"))
        try:
            frame.to_parquet(output.buffer, index=False)
        except ImportError:
            raise Mendable("pyarrow is not installed", "pip install 'tegrascope[frames]'") from None
