"""The figure of a bench: power, load and temperature over time, with the runs, as inline SVG."""

from collections.abc import Callable, Iterator, Sequence
from html import escape

from .curves import Band, Curve, Panel, Piece, nice_step

WIDTH, LEFT, RIGHT = 960, 48, 168
TOP, TITLE, GAP = 44, 22, 14
HEIGHT = {"Power, W": 190, "Load, %": 150, "Temperature, °C": 120}
LABEL_STEP = 14
LETTER = 6.4
# Lines differ in colour, in dashes and in the label at their end: any one is enough.
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4")
SHADES = 4


def figure(title: str, panels: Sequence[Panel], bands: Sequence[Band]) -> str:
    """Draw panels over one axis of time.

    Args:
        title: What it shows.
        panels: One above the other.
        bands: Runs, named by accelerator; the darker part is the steady phase.

    Returns:
        An ``svg`` element for a page of HTML; its colours are the page's.
    """
    ends = [curve.pieces[-1][-1][0] for panel in panels for curve in panel.curves]
    end = max([*ends, *(band.end for band in bands)], default=0.0)
    begin = min([0.0, *(band.begin for band in bands)])
    scale = _Scale(begin, max(end, begin + 1.0))
    height = TOP + sum(TITLE + HEIGHT[panel.title] + GAP for panel in panels) + 24
    devices = list(dict.fromkeys(band.device for band in bands))
    parts = [
        f'<svg class="figure" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(_described(panels, bands))}</desc>",
        *_bands(bands, devices, scale, height - 24),
    ]
    top = TOP
    for panel in panels:
        parts += _panel(panel, scale, top + TITLE)
        top += TITLE + HEIGHT[panel.title] + GAP
    parts += _time_axis(scale, height - 24)
    return "\n".join([*parts, "</svg>"])


class _Scale:
    """Seconds to the width of the figure."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end = begin, end

    def x(self, at: float) -> float:
        share = (at - self.begin) / (self.end - self.begin)
        return LEFT + share * (WIDTH - LEFT - RIGHT)


def _described(panels: Sequence[Panel], bands: Sequence[Band]) -> str:
    """Say in words what is to be seen."""
    order = ", ".join(band.device for band in bands) or "none"
    words = [f"Runs in the order of time: {order}."]
    for panel in panels:
        for curve in panel.curves:
            values = curve.values
            words.append(
                f"{panel.title.split(',')[0]} {curve.name}: {min(values):.1f} to"
                f" {max(values):.1f} {panel.title.split(', ')[1]}."
            )
    return " ".join(words)


def _bands(
    bands: Sequence[Band], devices: Sequence[str], scale: _Scale, bottom: float
) -> Iterator[str]:
    last_end, row = -1.0, 0
    for band in bands:
        shade = devices.index(band.device) % SHADES
        for begin, end, kind in (
            (band.begin, band.end, "idle"),
            (band.steady_begin, band.steady_end, "steady"),
        ):
            x, width = scale.x(begin), scale.x(end) - scale.x(begin)
            yield (
                f'<rect class="band {kind} shade{shade}" x="{x:.1f}" y="{TOP - 8}"'
                f' width="{max(width, 1):.1f}" height="{bottom - TOP + 8:.0f}"/>'
            )
        middle = scale.x((band.steady_begin + band.steady_end) / 2)
        half = LETTER * len(band.device) / 2
        row = 1 - row if middle - half < last_end + 2 else 0
        last_end = middle + half
        yield (
            f'<text class="run" x="{middle:.1f}" y="{TOP - 14 - 14 * row}">{escape(band.device)}'
            "</text>"
        )


def _panel(panel: Panel, scale: _Scale, top: float) -> Iterator[str]:
    height = HEIGHT[panel.title]

    def y(value: float) -> float:
        return top + height * (panel.top - value) / (panel.top - panel.bottom)

    yield f'<text class="title" x="{LEFT}" y="{top - 7}">{escape(panel.title)}</text>'
    value = panel.bottom
    while value <= panel.top + panel.step / 1000:
        yield (
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}"'
            f' y2="{y(value):.1f}"/>'
        )
        yield f'<text class="tick" x="{LEFT - 6}" y="{y(value) + 4:.1f}">{value:g}</text>'
        value += panel.step
    for number, curve in enumerate(panel.curves):
        drawn = "".join(_drawn(piece, scale, y) for piece in curve.pieces)
        dash = DASHES[number % len(DASHES)]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        yield f'<path class="curve line{number % 7}"{dashes} d="{drawn}"/>'
    yield from _labels(panel.curves, [y(curve.values[-1]) for curve in panel.curves], top, height)


def _drawn(piece: Piece, scale: _Scale, y: Callable[[float], float]) -> str:
    """Return one stretch of a line; a lone point is a short dash."""
    places = [f"{scale.x(at):.1f} {y(value):.1f}" for at, value in piece]
    return f"M{'L'.join(places)}" + ("h1" if len(places) == 1 else "")


def _labels(
    curves: Sequence[Curve], ends: Sequence[float], top: float, height: float
) -> Iterator[str]:
    """Put a name, with a piece of its line, beside the end of each curve; none over another."""
    order = sorted(range(len(curves)), key=ends.__getitem__)
    places = [ends[number] for number in order]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + LABEL_STEP)
    over = places[-1] - (top + height) if places else 0.0
    if over > 0:
        places[-1] -= over
        for i in range(len(places) - 2, -1, -1):
            places[i] = min(places[i], places[i + 1] - LABEL_STEP)
    x = WIDTH - RIGHT + 6
    for number, place in zip(order, places, strict=True):
        dash = DASHES[number % len(DASHES)]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        yield (
            f'<line class="curve line{number % 7}"{dashes} x1="{x}" x2="{x + 22}"'
            f' y1="{place:.1f}" y2="{place:.1f}"/>'
        )
        name = escape(curves[number].name)
        yield f'<text class="name" x="{x + 27}" y="{place + 4:.1f}">{name}</text>'


def _time_axis(scale: _Scale, bottom: float) -> Iterator[str]:
    span = scale.end - scale.begin
    unit, name = (60.0, "min") if span > 300 else (1.0, "s")
    step = nice_step(span / unit, ticks=6) * unit
    at = 0.0
    while at <= scale.end:
        yield f'<text class="time" x="{scale.x(at):.1f}" y="{bottom + 14}">{at / unit:g}</text>'
        at += step
    yield f'<text class="name" x="{WIDTH - RIGHT + 6}" y="{bottom + 14}">{name}</text>'
