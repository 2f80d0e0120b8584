"""What a dashboard is made of, without Grafana: data that ``render`` draws and tests read."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["stat", "timeseries", "table", "heatmap", "timeline", "bars"]

GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"
BLUE, PURPLE, GREY = "blue", "purple", "text"
NEUTRAL = "transparent"
# Of lines that are limits: no palette of Grafana has it, so no other line is drawn in it.
LIMIT = "dark-red"
INFERENCES, INPUTS = "suffix:inf/s", "suffix:inputs/s"

COLUMNS = 24


@dataclass(frozen=True)
class Query:
    """One PromQL query of a panel.

    Attributes:
        expr: The query; variables of the dashboard stand in it as ``$name``.
        legend: Name of a series, with ``{{label}}``; in a table, unused.
        empty: Why it may answer nothing where all is well; without it, no answer is a fault.
        exemplars: Whether the runs behind the numbers are asked for too.
    """

    expr: str
    legend: str = ""
    empty: str = ""
    exemplars: bool = False


@dataclass(frozen=True)
class Step:
    """A threshold: the colour from a value on; ``None`` is the lowest. What is absent has none."""

    value: float | None
    color: str


@dataclass(frozen=True)
class Word:
    """A value that is shown as a word."""

    value: int
    text: str
    color: str


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        source: A label, or the letter of the query whose value it shows.
        title: As it is headed.
        unit: Grafana's id.
        words: Values shown as words.
        steps: Colours of the cell.
        link: Where a click leads, with ``${__data.fields.label}``.
        width: In pixels, for long text; 0 shares what is left.
    """

    source: str
    title: str
    unit: str = ""
    words: tuple[Word, ...] = ()
    steps: tuple[Step, ...] = ()
    link: str = ""
    width: int = 0


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        kind: How it is drawn; ``bars`` are a bar gauge, ``timeline`` a state timeline.
        title: What it shows, told apart from all others of its dashboard.
        description: What the number is, and what it is not.
        queries: shape (n,), named A, B, C … in this order.
        unit: Grafana's id.
        width: Of 24 columns; a phone shows one panel below the other anyway.
        height: In rows of Grafana's grid.
        steps: Colours by value, lowest first.
        words: Values shown as words.
        columns: Of a table, in order; what is not named is not shown.
        is_stacked: Whether series add up; only those that do may be stacked.
        apart: Pattern of the legends that are drawn as dashed lines beside the stack or curves.
        colors: Patterns of legends and their colours, where the palette could confuse two.
        between: Two legends: the room from the first down to the second is filled.
        sort: Titles of columns by which a table is sorted; one that begins with ``-`` falls.
        low: Least of the axis.
        high: Most of the axis.
        is_large: Whether the rows of a table are high.
        shows_name: Whether a stat tells the series' name in place of its value.
    """

    kind: Kind
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    height: int = 8
    steps: tuple[Step, ...] = ()
    words: tuple[Word, ...] = ()
    columns: tuple[Column, ...] = ()
    is_stacked: bool = False
    apart: str = ""
    colors: tuple[tuple[str, str], ...] = ()
    between: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    is_large: bool = False
    shows_name: bool = False


@dataclass(frozen=True)
class Row:
    """A headline and the panels below it; those of one line are equally high."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A choice above the dashboard, filled by a query.

    Attributes:
        name: As queries name it.
        label: As it is headed.
        query: ``label_values(selector, label)``.
        is_many: Whether several or all may be chosen; all are, to begin with.
        every: Pattern that stands for all values.
        empty: Why it may have no value where all is well.
    """

    name: str
    label: str
    query: str
    is_many: bool = True
    every: str = ".*"
    empty: str = ""


@dataclass(frozen=True)
class Band:
    """Spans of time that are marked on every panel: each series of the query, while above 0.

    Attributes:
        name: The switch above the dashboard.
        expr: The query.
        color: Of the band.
        title: With ``{{label}}``.
        text: With ``{{label}}``.
        tags: Labels that become tags.
        empty: Why it may answer nothing where all is well.
    """

    name: str
    expr: str
    color: str
    title: str
    text: str
    tags: tuple[str, ...]
    empty: str = ""


@dataclass(frozen=True)
class Dashboard:
    """All of one dashboard.

    Attributes:
        uid: Its name in links; the file is called so, without ``tegrascope-``.
        title: As it is listed.
        description: The question that it answers.
        variables: After the data source, in order; a later one may use an earlier one.
        bands: Annotations.
        rows: From top to bottom.
        since: How far back it looks when opened.
    """

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    bands: tuple[Band, ...]
    rows: tuple[Row, ...]
    since: str = "now-1h"

    @property
    def file(self) -> str:
        """Its file name."""
        return f"{self.uid.removeprefix('tegrascope-')}.json"
