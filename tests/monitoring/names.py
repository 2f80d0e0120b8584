"""What a page of metrics may not be: rules of naming, units and values, over a parsed page.

promtool passes percent, megahertz, ``_mw``, ``rpm`` and misspelt units; these rules do not. They
are those of "Metric and label naming" and "Writing exporters" of the Prometheus documentation, and
our own: one prefix for the board and one for the daemon, known labels, bounded values.
"""

import math
import re
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

UNITS = frozenset(
    {"amperes", "bytes", "celsius", "hertz", "joules", "ratio", "seconds", "volts", "watts",
     "joules_per_inference", "joules_per_unit", "per_second"}
)  # fmt: skip
"""Base units as they end a name, and the quotients that have names of their own."""

COUNTED = frozenset(
    {"active", "backlog", "damages", "dropped", "errors", "events", "failures", "flag",
     "inferences", "layers", "length", "lost", "misses", "missing", "online", "points", "refused",
     "restarts", "runs", "samples", "sent", "skipped", "tasks", "units", "unparsed", "unknown",
     "unreadable", "up"}
)  # fmt: skip
"""What stands at the end of a name without a unit: things counted, and states of 0 or 1."""

STATES = frozenset({"active", "flag", "missing", "online", "up"})

LABELS = frozenset(
    {"backend", "batch", "battery", "board", "core", "device", "engine", "engine_key", "fan",
     "flag", "gpc", "jetpack", "kind", "l4t", "memory", "model", "module", "outcome", "owner",
     "part", "placement", "power_mode", "precision", "process", "python", "rail", "reason",
     "signal", "simulated", "source", "stage", "unit", "version", "workload", "zone"}
)  # fmt: skip
"""Every label of docs/metrics.md; ``le`` and ``quantile`` are the format's own."""

TYPES = frozenset({"counter", "gauge", "histogram", "summary", "metric", "value", "enum"})
MOST_VALUES = 64
"""A label with more values than that in one family is not bounded by the hardware."""

_PREFIX = re.compile(r"(tegra|tegrascope)_[a-z0-9]+(_[a-z0-9]+)*")
_NO_BASE = re.compile(
    r"(milli|micro|nano|kilo|mega|giga|kibi|mebi|gibi)\w*"
    r"|percent(age)?|minutes?|hours?|days?|weeks?|fahrenheit|kelvin|celcius|farenheit|rpm"
    r"|m?w|mwh|wh|k?hz|mhz|ghz|k?b|mb|gb|kib|mib|gib|ms|us|ns|mv|ma|mj|degc|pct"
    r"|watt|joule|second|byte|degrees?|amps?|volt|ampere|hz|bits?|created|temp|freq|util"
)
# Of the client library; their names are not ours to choose.
_FOREIGN = ("process_", "python_")
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}|[0-9a-f]{32,}")


def lint(text: str) -> list[str]:
    """Return all that is wrong with the text of a page, in either format: ``name: what``."""
    if text.endswith("# EOF\n"):
        return complaints(read_openmetrics(text))
    # The parser of this format gives a counter its ending where the page does not.
    counters = re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE)
    bare = [name for name in counters if not name.endswith(("_total", "_created"))]
    found = [f"{name}: is a counter without _total" for name in bare]
    return found + complaints(read_text(text))


def complaints(page: Iterable[Metric]) -> list[str]:
    """Return all that is wrong with a page, in its order: ``name: what``.

    Args:
        page: Families, as a parser of the text or the OpenMetrics format makes them: a counter's
            name is without ``_total``. Of infos the text format makes gauges.
    """
    seen: set[str] = set()
    told = []
    for family in page:
        if family.name.startswith(_FOREIGN):
            continue
        if family.type == "gauge" and family.name.endswith("_info"):
            family = _as_info(family)
        name = family.name
        told += [f"{name}: {what}" for what in (*_of_name(family), *_of_samples(family))]
        if name in seen:
            told.append(f"{name}: stands on the page twice")
        seen.add(name)
    return told


def _as_info(family: Metric) -> Metric:
    made = Metric(family.name.removesuffix("_info"), family.documentation, "info")
    made.samples = family.samples
    return made


def _of_name(family: Metric) -> Iterator[str]:
    name = family.name
    words = name.removesuffix("_per_second").split("_")
    if not _PREFIX.fullmatch(f"{name}_info" if family.type == "info" else name):
        yield "is not tegra_… or tegrascope_… in lower case"
    for word in words:
        if _NO_BASE.fullmatch(word):
            yield f"{word} is no base unit in the plural, or an abbreviation"
        if word in TYPES:
            yield f"{word} is a type, and no part of a name"
    for word in re.findall("_(total|info|count|sum|bucket|max|min|avg|mean)(?=_|$)", name):
        # How much there is of something, and the highest of a span, are quantities of their own.
        if not name.endswith(("_total_bytes", "_temperature_max_celsius")):
            yield f"{word} belongs to another type, or into a label"
    if family.type in ("unknown", "untyped", "stateset", "gaugehistogram"):
        yield f"has the type {family.type}"
    yield from _of_unit(family)
    if not family.documentation.strip().endswith("."):
        yield "has no sentence of help"
    used = {label for sample in family.samples for label in sample.labels}
    for label in sorted(used - {"le", "quantile"}):
        if label not in LABELS:
            yield f"{label} is no known label"
        if label in words and not (family.type == "info" or _is_quantity(name, label)):
            yield f"the label {label} is in the name"


def _is_quantity(name: str, label: str) -> bool:
    # What is measured, of each of which there is one: the rails, the engines, the sources. Or the
    # end of a quotient, of which the label has the name.
    return name.endswith(f"_per_{label}") or name.startswith(
        (f"tegra_{label}_", f"tegrascope_{label}_", f"tegra_inference_quality_{label}")
    )


def _of_unit(family: Metric) -> Iterator[str]:
    if family.type == "info":
        return
    name = family.name
    found = [unit for unit in UNITS if name.endswith(f"_{unit}")]
    words = name.split("_")
    if not found and words[-1] not in COUNTED:
        yield f"{words[-1]} is neither a unit nor a thing that is counted"
    unit = max(found, key=len, default=words[-1])
    rest = name.removesuffix(f"_{unit}")
    for other in rest.split("_"):
        if other in UNITS:
            yield f"has two units, {other} and {unit}"
    if family.type == "histogram" and unit not in UNITS:
        yield "is a histogram of nothing that has a unit"
    if "timestamp" in words and not name.endswith("_timestamp_seconds"):
        yield "is a time, and does not end in _timestamp_seconds"


def _of_samples(family: Metric) -> Iterator[str]:
    name = family.name
    suffixes = {
        "counter": {"_total"},
        "info": {"_info"},
        "histogram": {"_bucket", "_count", "_sum"},
        "summary": {"", "_count", "_sum"},
    }.get(family.type, {""})
    values: dict[str, set[str]] = {}
    points: set[tuple[object, ...]] = set()
    if not family.samples:
        yield "has no series"
    for sample in family.samples:
        where = f"{sample.name}{dict(sample.labels)}"
        if sample.name.removeprefix(name) not in suffixes:
            yield f"{sample.name} is no series of a {family.type}"
        if sample.timestamp is not None:
            yield f"{where} has a timestamp of its own"
        point = (sample.name, *sorted(sample.labels.items()))
        if point in points:
            yield f"{where} stands there twice"
        points.add(point)
        for label, value in sample.labels.items():
            values.setdefault(label, set()).add(value)
            if _UUID.search(value):
                yield f"{label}={value} is an id: no label value is ever new"
        if "kind" in sample.labels and sample.labels["kind"] in ("max", "min", "avg", "mean"):
            yield f"{where} must not be added up with its sisters"
        yield from _of_value(family, sample.name, where, sample.value)
    for label, found in values.items():
        if len(found) > MOST_VALUES and label != "le":
            yield f"{label} has {len(found)} values"


def _of_value(family: Metric, series: str, where: str, value: float) -> Iterator[str]:
    last = family.name.rpartition("_")[2]
    if math.isnan(value):
        yield f"{where} is no number: what is not known has no series"
    elif last == "ratio" and not 0 <= value <= 1:
        yield f"{where} is {value:g}, and a ratio is from 0 to 1"
    elif family.type == "gauge" and last in STATES and value not in (0, 1):
        yield f"{where} is {value:g}, and a state is 0 or 1"
    elif family.type == "info" and value != 1:
        yield f"{where} is {value:g}, and an info is 1"
    elif value < 0 and (
        family.type == "counter"
        or series.endswith("_count")
        or last in ("amperes", "bytes", "hertz", "volts", "watts")
    ):
        yield f"{where} is below 0"
    elif last == "celsius" and not -60 <= value <= 200:
        yield f"{where} is {value:g}, which no board survives"
    elif family.name.endswith("_timestamp_seconds") and value > 1e11:
        yield f"{where} is {value:g}: seconds since 1970, and not a fraction of them"
