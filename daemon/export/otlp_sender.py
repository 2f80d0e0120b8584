"""The child that sends pages of metrics, and runs, to an OTLP receiver.

It makes one attempt for each line of standard input, a JSON object, and answers with a line: its
end (``sent``, or why it is dropped; null if another attempt can succeed), and the problem.

- Names and types of metrics: opentelemetry.io/docs/specs/otel/compatibility, "Prometheus and
  OpenMetrics". A summary of OTLP has a count and a sum, which ours lack, so its quantiles are sent
  as a gauge. Start times are not known: some counters began before the daemon.
- ``hw.*``: opentelemetry.io/docs/specs/semconv/hardware, and ``gen_ai.*``:
  github.com/open-telemetry/semantic-conventions-genai (both in development).
- Answers of the receiver: opentelemetry.io/docs/specs/otlp, "OTLP/HTTP Response".
"""

import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from ... import __version__

try:
    import requests
    from google.protobuf.message import DecodeError
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
    from opentelemetry.sdk.metrics import Exemplar
    from opentelemetry.sdk.metrics import export as otlp
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, Status, StatusCode
except ImportError as error:
    from ..settings.config import OTLP_REMEDY

    sys.exit(f"{error}: {OTLP_REMEDY}")

Answer: TypeAlias = tuple[str | None, str | None]
# How an object of urllib3 begins a message; its address would make each message another one.
_OBJECT = re.compile(r"^(<[^>]*>|\w+\([^)]*\)): ")
# Statuses of the 400s after which another attempt can succeed.
_LATER = (408, 429)
_SCOPE = InstrumentationScope("tegrascope", __version__)
_CUMULATIVE = otlp.AggregationTemporality.CUMULATIVE


class _Watch(requests.adapters.HTTPAdapter):
    """Keeps the last answer, or why there is none: the exporters return only yes or no."""

    answer: requests.Response | None = None
    problem = ""

    def send(self, *arguments: Any, **options: Any) -> requests.Response:
        self.answer = None
        try:
            self.answer = super().send(*arguments, **options)
        except requests.Timeout:  # which is all that a packet filter shows
            self.problem = "no answer in time: the service may reach this host only (docs/otlp.md)"
            raise
        except (OSError, ValueError) as error:
            reason = str(getattr(error.args[0] if error.args else None, "reason", error))
            self.problem = _OBJECT.sub("", reason)
            raise
        return self.answer


class Sender:
    """Sends one page or run at a time, with the settings of ``otlp:`` and two more."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._watch = _Watch()
        self._exporters: tuple[OTLPMetricExporter, OTLPSpanExporter] | None = None

    def send(self, document: Mapping[str, Any]) -> Answer:
        """Send ``page`` of ``time_ns``, or the run ``report``; return the end and the problem."""
        try:
            is_page = "page" in document
            given = self._metrics(document) if is_page else self._span(document["report"])
        except Exception as error:  # it must not keep the others back
            return "invalid", f"it cannot be sent: {type(error).__name__}: {error}"
        try:
            self._exporters = self._exporters or self._open()
        except (OSError, ValueError) as error:
            return None, f"headers_file cannot be read: {error}"
        self._watch.answer, self._watch.problem = None, "no answer"
        if isinstance(given, otlp.MetricsData):
            self._exporters[0].export(given)
        else:
            self._exporters[1].export([given])
        return self._judge(self._watch.answer)

    def _open(self) -> tuple[OTLPMetricExporter, OTLPSpanExporter]:
        """Return the exporters with the present secrets; raise OSError or ValueError."""
        settings, session, headers = self._settings, requests.Session(), {}
        session.trust_env = False  # a bundle or a netrc of the environment would take precedence
        session.mount("http://", self._watch)
        session.mount("https://", self._watch)
        path = settings.get("headers_file")
        for line in Path(path).read_text("utf-8").splitlines() if path else ():
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip()] = value.strip()
            elif line.strip():
                raise ValueError(f"{path}: a line is NAME: VALUE")
        options: dict[str, Any] = {
            "headers": headers,
            "certificate_file": settings.get("ca_file"),
            "client_certificate_file": settings.get("cert_file"),
            "client_key_file": settings.get("key_file"),
            "timeout": settings["attempt_seconds"],
            "compression": Compression.Gzip,
            "session": session,
        }
        return (
            OTLPMetricExporter(f"{settings['endpoint']}/v1/metrics", **options),
            OTLPSpanExporter(f"{settings['endpoint']}/v1/traces", **options),
        )

    def _judge(self, answer: requests.Response | None) -> Answer:
        endpoint = self._settings["endpoint"]
        if answer is None:
            return None, f"{endpoint} cannot be reached: {self._watch.problem}"
        status, what = answer.status_code, f"{endpoint} answers {answer.status_code}"
        if status < 300:
            if "html" in answer.headers.get("content-type", ""):
                return None, f"{endpoint} is not an OTLP receiver: check the address"
            with suppress(DecodeError):  # the answer to spans has the same fields
                found = metrics_service_pb2.ExportMetricsServiceResponse.FromString(answer.content)
                if found.partial_success.rejected_data_points:
                    words = found.partial_success.error_message
                    return "refused", f"{endpoint} refuses a part: {words}"
            return "sent", None
        if status < 400:
            return None, f"{what}: give the address to which it redirects"
        if status in (401, 403):
            self._exporters = None  # the file may change
            return None, f"{what}: check headers_file"
        end = None if status in _LATER or status >= 500 else "refused"
        return end, f"{what}: {' '.join(answer.text[:300].split())}"

    def _metrics(self, document: Mapping[str, Any]) -> otlp.MetricsData:
        text, time_ns = document["page"], document["time_ns"]
        families = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
        found = [one for family in families for one in metrics_of(family, time_ns)]
        if self._settings.get("hardware_names"):
            found += [one for family in families for one in hardware_metrics(family, time_ns)]
        (about,) = (one.samples[0].labels for one in families if one.name == "tegra")
        scope = otlp.ScopeMetrics(_SCOPE, found, "")
        return otlp.MetricsData([otlp.ResourceMetrics(self._resource(about), [scope], "")])

    def _span(self, report: Mapping[str, Any]) -> ReadableSpan:
        place = report.get("environment", {})
        simulated = str(place.get("simulated", False)).lower()
        return span_of(report, self._resource({**place, "simulated": simulated}))

    def _resource(self, about: Mapping[str, Any]) -> Resource:
        """Return the service, the host and the facts about the board that do not change."""
        machine = platform.machine()
        given = {
            "service.name": "tegrascope",
            "service.version": __version__,
            "service.instance.id": self._settings["instance"],
            "host.name": platform.node(),
            "host.arch": {"aarch64": "arm64", "x86_64": "amd64"}.get(machine, machine),
            "os.type": "linux",
            "device.model.name": about.get("board"),
            "device.model.identifier": about.get("module"),
            "tegra.l4t": about.get("l4t"),
            "tegra.simulated": about.get("simulated"),
            **self._settings.get("attributes", {}),
        }
        return Resource.create({name: value for name, value in given.items() if value})


def metrics_of(family: Metric, time_ns: int) -> Iterator[otlp.Metric]:
    """Yield the OTLP metrics of a family; each has the name of its series on the page."""
    by_name: dict[str, list[Sample]] = {}
    for sample in family.samples:
        name = family.name if family.type == "histogram" else sample.name
        by_name.setdefault(name, []).append(sample)
    for name, samples in by_name.items():
        if family.type == "histogram":
            data: Any = _histogram(samples, time_ns)
        else:
            data = _data(family.type, [_point(one, one.labels, time_ns) for one in samples])
        # Without a unit, no receiver appends one to the name.
        yield otlp.Metric(name, family.documentation, "", data)


def _data(kind: str, points: list[otlp.NumberDataPoint]) -> otlp.Sum | otlp.Gauge:
    if kind in ("counter", "info"):
        return otlp.Sum(points, _CUMULATIVE, is_monotonic=kind == "counter")
    return otlp.Gauge(points)


def _point(sample: Sample, labels: Mapping[str, str], time_ns: int) -> otlp.NumberDataPoint:
    return otlp.NumberDataPoint(dict(labels), 0, time_ns, sample.value, _exemplars([sample]))


def _histogram(samples: Iterable[Sample], time_ns: int) -> otlp.Histogram:
    """Return the histogram of each set of labels, whose counts are not cumulative."""
    parts: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple(pair for pair in sample.labels.items() if pair[0] != "le")
        parts.setdefault(labels, []).append(sample)
    points = []
    for labels, series in parts.items():
        buckets = [one for one in series if "le" in one.labels]
        sums = {one.name.rpartition("_")[2]: one.value for one in series}
        counts = [0, *(int(one.value) for one in buckets)]
        each = [count - before for before, count in pairwise(counts)]
        bounds = [float(one.labels["le"]) for one in buckets[:-1]]
        totals = (int(sums["count"]), sums["sum"])
        # The least and the greatest value are optional in OTLP.
        shape: Any = (each, bounds, None, None, _exemplars(buckets))
        points.append(otlp.HistogramDataPoint(dict(labels), 0, time_ns, *totals, *shape))
    return otlp.Histogram(points, _CUMULATIVE)


def _exemplars(samples: Iterable[Sample]) -> list[Exemplar]:
    """Return the exemplars, which name the span of their run."""
    found = []
    for one in (sample.exemplar for sample in samples if sample.exemplar is not None):
        trace_id, span_id = run_ids(one.labels["run_id"])
        at_ns = int(float(one.timestamp or 0) * 1e9)
        found.append(Exemplar(dict(one.labels), one.value, at_ns, span_id, trace_id))
    return found


# By family of the page: name, unit and ``hw.type`` of the conventions, and the label that is the
# ``hw.id``. ``hw.gpu.*`` is for discrete GPUs.
_HARDWARE = {
    "tegra_module_energy_joules": ("hw.host.energy", "J", "", ""),
    "tegra_rail_energy_joules": ("hw.energy", "J", "power_rail", "rail"),
    "tegra_rail_power_watts": ("hw.power", "W", "power_rail", "rail"),
    "tegra_rail_volts": ("hw.voltage", "V", "voltage", "rail"),
    "tegra_temperature_celsius": ("hw.temperature", "Cel", "temperature", "zone"),
    "tegra_cpu_frequency_hertz": ("hw.cpu.speed", "Hz", "cpu", "core"),
    "tegra_fan_speed_ratio": ("hw.fan.speed_ratio", "1", "fan", "fan"),
}


def hardware_metrics(family: Metric, time_ns: int) -> Iterator[otlp.Metric]:
    """Yield the metric of the semantic conventions that has a family's values, if there is one."""
    if family.name in _HARDWARE:
        name, unit, kind, label = _HARDWARE[family.name]
        points = []
        for one in family.samples:
            labels = {"hw.id": one.labels[label], "hw.type": kind} if label else {}
            points.append(_point(one, labels, time_ns))
        yield otlp.Metric(name, family.documentation, unit, _data(family.type, points))


def run_ids(run_id: str) -> tuple[int, int]:
    """Return the ids of a run's trace and span: all of its UUID, and the second half."""
    number = UUID(run_id).int
    return number, number & (1 << 64) - 1


def span_of(report: Mapping[str, Any], resource: Resource) -> ReadableSpan:
    """Return the span of a run.

    Its attributes are the values of the record, its events the phases, and its links the runs that
    overlapped it.
    """
    kept = {name: value for name, value in report.items() if name not in ("phases", "worker_log")}
    attributes = {f"tegrascope.run.{name}": value for name, value in _flat(kept)}
    if report.get("unit") == "token" and report.get("units") is not None:
        attributes["gen_ai.request.model"] = report.get("model") or report["workload"]
        attributes["gen_ai.usage.output_tokens"] = round(report["units"])
    shift_ns = report["started_wall_ns"] - report["started_ns"]
    events = []
    for name, phase in report.get("phases", {}).items():
        seconds = {"tegrascope.phase.duration_seconds": (phase["end_ns"] - phase["begin_ns"]) / 1e9}
        events.append(Event(name, seconds, phase["begin_ns"] + shift_ns))
    outcomes = {"ok": StatusCode.OK, "failed": StatusCode.ERROR, "timeout": StatusCode.ERROR}
    status = outcomes.get(report["outcome"], StatusCode.UNSET)
    why = report.get("reason") if status is StatusCode.ERROR else None
    overlapping = map(run_ids, report.get("overlapping_runs", ()))
    return ReadableSpan(
        f"run {report['workload']}",
        SpanContext(*run_ids(report["run_id"]), is_remote=False),
        resource=resource,
        attributes=attributes,
        events=events,
        links=[Link(SpanContext(*ids, is_remote=True)) for ids in overlapping],
        status=Status(status, why),
        start_time=report["started_wall_ns"],
        end_time=report["ended_ns"] + shift_ns,
        instrumentation_scope=_SCOPE,
    )


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a document by dotted name; no lists but those of one simple type."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif not isinstance(value, list) or (
            len({type(one) for one in value}) == 1 and isinstance(value[0], (str, int, float))
        ):
            yield prefix + name, value


def main(settings: Mapping[str, Any]) -> None:
    """Send each line of standard input, and answer it."""
    sender = Sender(settings)
    print(json.dumps((None, None)), flush=True)  # the imports are done
    for line in sys.stdin:
        print(json.dumps(sender.send(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
