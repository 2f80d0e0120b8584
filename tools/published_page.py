"""Write docs/published.md from the published results, by ``make docs``."""

from itertools import groupby
from pathlib import Path

from tegrascope.workbench.results.published import PublishedResult, published

PAGE = Path(__file__).parents[1] / "docs/published.md"
_UNITS = {"ms": "ms", "ns": "ns", "fps": "/s", "qps": "batches/s", "watts": "W"}
_HEAD = """\
# Published results

`make docs` writes this page from `workbench/results/published.toml`, which also has the quoted line
of each row. [`tegrascope bench`](bench.md#beside-published-results) shows the nearest row beside an
own figure.

The numbers are those of their sources, as they were printed. None of them was measured with
tegrascope. An empty cell is not known. `gpu+dla` is the GPU and the DLA cores together. A latency
is that of a whole batch, `/s` is inputs per second. Power is the source's own figure.

{count} results from {sources} sources.
"""
_COLUMNS = ("model", "board", "power mode", "device", "precision", "batch", "printed", "method")


def render() -> str:
    """Return the page: a table of each source."""
    rows = published()
    groups = [(title, list(found)) for title, found in groupby(rows, lambda row: row.title)]
    parts = [_HEAD.format(count=len(rows), sources=len(groups))]
    for title, found in groups:
        notes = {row.note: None for row in found if row.note is not None}
        cells = [_COLUMNS, ("---",) * len(_COLUMNS), *map(_cells, found)]
        table = "".join(f"| {' | '.join(row)} |\n" for row in cells)
        parts.append("\n\n".join((f"## {title}", *notes, table)))
    return "\n".join(parts)


def _cells(row: PublishedResult) -> tuple[str, ...]:
    cores = f", {row.dla_cores} cores" if row.device == "dla" and row.dla_cores != 1 else ""
    printed = ", ".join(f"{text} {_UNITS[unit]}" for unit, text in row.printed.items())
    words = (row.statistic, row.method)
    return (
        row.model,
        row.board or "",
        row.mode or "",
        row.device + cores,
        row.precision or "",
        "" if row.batch is None else str(row.batch),
        f"[{printed}]({row.address})",
        ", ".join(filter(None, words)),
    )


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
