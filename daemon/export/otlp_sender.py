"""The child that sends pages of metrics, and runs, to an OTLP receiver.

It makes one attempt for each line of standard input, a JSON object, and answers with a line, a
``SendResult``. The SDK's exporters are not used: they read an answer of any length, and their
time-out is of one read. The answer is read by ``http_peer``, with one deadline for the whole
attempt.

- Names and types of metrics: opentelemetry.io/docs/specs/otel/compatibility, "Prometheus and
  OpenMetrics". A summary of OTLP has a count and a sum, which ours lack, so its quantiles are sent
  as a gauge. Start times are not known: some counters began before the daemon.
- ``gen_ai.*``: github.com/open-telemetry/semantic-conventions-genai (in development).
- Answers of the receiver: opentelemetry.io/docs/specs/otlp, "OTLP/HTTP Response".
"""

import gzip
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from ssl import SSLContext, SSLError, create_default_context
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from ... import __version__
from ...collectors.files import read_regular
from ...collectors.http_peer import (
    HttpPeer,
    OversizeError,
    PeerLimits,
    Secrets,
    error_words,
    header_secrets,
    one_line,
)

try:
    from google.protobuf.message import DecodeError
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
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

# Statuses of the 400s after which another attempt can succeed.
_LATER = (408, 429)
_HEADERS_BYTES = 1 << 16
_SCOPE = InstrumentationScope("tegrascope", __version__)
_CUMULATIVE = otlp.AggregationTemporality.CUMULATIVE


_MEDIA = "application/x-protobuf"
_ANSWER_BYTES = _HEADERS_BYTES = 64 * 1024


class SendResult(NamedTuple):
    """The end of an attempt.

    Attributes:
        end: ``sent``, or why the page or run is dropped; ``None`` if another attempt can succeed.
        problem: The error for a person, or ``None``.
        refused_points: Points of a page that the receiver refused, while it took the others.
    """

    end: str | None
    problem: str | None = None
    refused_points: int = 0


class _Request(NamedTuple):
    """An encoded page or run: the end of its address, the body, and the points in it."""

    path: str
    body: bytes
    points: int


class _Received(NamedTuple):
    """The whole answer of a receiver."""

    status: int
    media: str
    body: bytes


class Sender:
    """Sends one page or run at a time, with the settings of ``otlp:`` and two more."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._address = urlsplit(settings["endpoint"])
        self._limits = PeerLimits(seconds=settings["attempt_seconds"], body_bytes=_ANSWER_BYTES)
        # Read at the first attempt, and again after an answer of 401 or 403.
        self._headers: Mapping[str, str] | None = None
        self._context: SSLContext | None = None
        self._secrets = Secrets()

    def send(self, document: Mapping[str, Any]) -> SendResult:
        """Send ``page`` of ``time_ns``, or the run ``report``; return how the attempt ended."""
        try:
            request = self._request(document)
        except Exception as error:  # it must not keep the others back
            return SendResult("invalid", f"it cannot be sent: {type(error).__name__}: {error}")
        try:
            self._read_files()
        except (OSError, ValueError) as error:
            return SendResult(None, str(error))
        endpoint = self._settings["endpoint"]
        try:
            received = self._post(request)
        except TimeoutError:  # a packet filter shows nothing else
            seconds = f"{self._limits.seconds:g} s"
            why = f"no answer in time ({seconds}): the service may reach this host only"
            return SendResult(None, f"{endpoint} cannot be reached: {why} (docs/otlp.md)")
        except OversizeError as error:
            why = f"it answers with {error}"
            return SendResult(
                None, f"{endpoint} is not an OTLP receiver ({why}): check the address"
            )
        except (OSError, HTTPException, ValueError) as error:
            why = error_words(error, self._secrets)
            return SendResult(None, f"{endpoint} cannot be reached: {why}")
        answer = self._judge(received, request.points)
        if received.status in (401, 403):
            self._headers = None  # the file may change
        return answer

    def _request(self, document: Mapping[str, Any]) -> _Request:
        if "page" in document:
            return self._page(document)
        return self._run(document["report"])

    def _read_files(self) -> None:
        """Read the secrets and the certificates; raise OSError or ValueError."""
        if self._headers is not None:
            return
        settings = self._settings
        headers = {
            "Content-Type": _MEDIA,
            "Content-Encoding": "gzip",
            "User-Agent": f"tegrascope/{__version__}",
        }
        path = settings.get("headers_file")
        given: dict[str, str] = {}
        lines: list[str] = []
        try:
            if path:
                lines = read_regular(Path(path), _HEADERS_BYTES).decode("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise ValueError(f"headers_file cannot be read: {error}") from None
        for line in lines:
            name, colon, value = line.partition(":")
            if colon and not (value.strip().isascii() and value.strip().isprintable()):
                raise ValueError(f"{path}: {name.strip()} has a character that no header can have")
            if colon:
                given[name.strip()] = value.strip()
            elif line.strip():
                raise ValueError(f"headers_file cannot be read: {path}: a line is NAME: VALUE")
        self._secrets = header_secrets(given)
        if self._address.scheme == "https":
            self._context = _tls(settings)
        self._headers = headers | given

    def _post(self, request: _Request) -> _Received:
        with HttpPeer(self._address, self._limits, self._context) as peer:
            path = f"{self._address.path}{request.path}"
            answer = peer.ask("POST", path, request.body, self._headers or {})
            media = answer.getheader("Content-Type", "")
            if answer.status < 300:
                return _Received(answer.status, media, peer.read())
            # A proxy may answer an error with a long page: its first words say enough.
            return _Received(answer.status, media, peer.read_words().encode())

    def _judge(self, received: _Received, points: int) -> SendResult:
        """Return the end of a request by its answer."""
        endpoint, status = self._settings["endpoint"], received.status
        what = f"{endpoint} answers {status}"
        if status < 200:
            return SendResult(None, f"{what}: it does not answer as HTTP/1.1")
        if status < 300:
            return self._judge_success(received, points)
        if status < 400:
            return SendResult(None, f"{what}: give the address to which it redirects")
        if status in (401, 403):
            return SendResult(None, f"{what}: check headers_file")
        end = None if status in _LATER or status >= 500 else "refused"
        return SendResult(end, f"{what}: {self._shown(received.body.decode('utf-8', 'replace'))}")

    def _judge_success(self, received: _Received, points: int) -> SendResult:
        """Return how many points of a page or run a receiver took, by the body of its answer."""
        endpoint = self._settings["endpoint"]
        try:
            refused, words = _refused_points(received)
        except (DecodeError, ValueError, TypeError, OverflowError, RecursionError):
            # A page of a web server, or anything else: nobody took the points.
            return SendResult(None, f"{endpoint} is not an OTLP receiver: check the address")
        if refused <= 0:
            return SendResult("sent")
        problem = f"{endpoint} refuses {refused} of {points}: {self._shown(words)}"
        if refused >= points:
            return SendResult("refused", problem)
        return SendResult("sent", problem, refused)

    def _shown(self, words: str) -> str:
        return one_line(words, self._secrets)

    def _page(self, document: Mapping[str, Any]) -> _Request:
        request = encode_metrics(self._metrics(document))
        return _Request(
            "/v1/metrics", gzip.compress(request.SerializeToString()), _count_points(request)
        )

    def _run(self, report: Mapping[str, Any]) -> _Request:
        request = encode_spans([self._span(report)])
        return _Request("/v1/traces", gzip.compress(request.SerializeToString()), 1)

    def _metrics(self, document: Mapping[str, Any]) -> otlp.MetricsData:
        text, time_ns = document["page"], document["time_ns"]
        metrics: list[otlp.Metric] = []
        about: Mapping[str, str] = {}
        for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
            metrics.extend(metrics_of(family, time_ns))
            if family.name == "tegra":
                about = family.samples[0].labels
        scope = otlp.ScopeMetrics(_SCOPE, metrics, "")
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


def _tls(settings: Mapping[str, Any]) -> SSLContext:
    """Return how TLS is set up; raise ValueError with the name of a bad file."""
    names = [name for name in ("ca_file", "cert_file", "key_file") if settings.get(name)]
    try:
        context = create_default_context(cafile=settings.get("ca_file"))
        if settings.get("cert_file"):
            context.load_cert_chain(settings["cert_file"], settings.get("key_file"), password="")
    except (OSError, SSLError) as error:
        files = ", ".join(f"{name} {settings[name]}" for name in names)
        raise ValueError(f"TLS cannot be set up ({error}): check {files}") from None
    return context


def _count_points(request: Any) -> int:
    """Return the number of points in an encoded page."""
    count = 0
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                count += len(getattr(metric, metric.WhichOneof("data")).data_points)
    return count


def _refused_points(received: _Received) -> tuple[int, str]:
    """Return how many points, or spans, the receiver refused, and why.

    Raises:
        DecodeError, ValueError, TypeError, OverflowError: It is not the answer of a receiver.
    """
    if "html" in received.media:
        raise ValueError("it is a page")
    if not received.body:
        return 0, ""
    if received.media.partition(";")[0].strip().lower() == "application/json":
        document = json.loads(received.body)
        if not isinstance(document, dict):
            raise ValueError("it is not an object")
        part = document.get("partialSuccess") or {}
        if not isinstance(part, dict):
            raise ValueError("partialSuccess is not an object")
        refused = part.get("rejectedDataPoints") or part.get("rejectedSpans") or 0
        return int(refused), str(part.get("errorMessage", ""))
    # The answer to spans has the same fields.
    answer = metrics_service_pb2.ExportMetricsServiceResponse.FromString(received.body)
    part = answer.partial_success
    return part.rejected_data_points, part.error_message


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
            points = [_point(sample, time_ns) for sample in samples]
            data = _data(family.type, points)
        # Without a unit, no receiver appends one to the name.
        yield otlp.Metric(name, family.documentation, "", data)


def _data(kind: str, points: list[otlp.NumberDataPoint]) -> otlp.Sum | otlp.Gauge:
    if kind in ("counter", "info"):
        return otlp.Sum(points, _CUMULATIVE, is_monotonic=kind == "counter")
    return otlp.Gauge(points)


def _point(sample: Sample, time_ns: int) -> otlp.NumberDataPoint:
    labels = dict(sample.labels)
    return otlp.NumberDataPoint(labels, 0, time_ns, sample.value, _exemplars([sample]))


def _histogram(samples: Iterable[Sample], time_ns: int) -> otlp.Histogram:
    """Return the histogram of each set of labels, whose counts are not cumulative."""
    parts: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple(pair for pair in sample.labels.items() if pair[0] != "le")
        parts.setdefault(labels, []).append(sample)
    points = []
    for labels, series in parts.items():
        points.append(_histogram_point(dict(labels), series, time_ns))
    return otlp.Histogram(points, _CUMULATIVE)


def _histogram_point(
    labels: dict[str, str], series: Iterable[Sample], time_ns: int
) -> otlp.HistogramDataPoint:
    buckets: list[Sample] = []
    counts: list[int] = []
    totals: dict[str, float] = {}
    counted = 0
    for sample in series:
        if "le" in sample.labels:
            buckets.append(sample)
            counts.append(int(sample.value) - counted)
            counted = int(sample.value)
        else:
            totals[sample.name.rpartition("_")[2]] = sample.value
    bounds = [float(bucket.labels["le"]) for bucket in buckets[:-1]]
    # The least and the greatest value are optional in OTLP.
    least: Any = None
    return otlp.HistogramDataPoint(
        labels,
        0,
        time_ns,
        int(totals["count"]),
        totals["sum"],
        counts,
        bounds,
        least,
        least,
        _exemplars(buckets),
    )


def _exemplars(samples: Iterable[Sample]) -> list[Exemplar]:
    """Return the exemplars, which name the span of their run."""
    exemplars = []
    for sample in samples:
        latest = sample.exemplar
        if latest is not None:
            trace_id, span_id = run_ids(latest.labels["run_id"])
            at_ns = int(float(latest.timestamp or 0) * 1e9)
            labels = dict(latest.labels)
            exemplars.append(Exemplar(labels, latest.value, at_ns, span_id, trace_id))
    return exemplars


def run_ids(run_id: str) -> tuple[int, int]:
    """Return the ids of a run's trace and span: all of its UUID, and the second half."""
    number = UUID(run_id).int
    return number, number & (1 << 64) - 1


def span_of(report: Mapping[str, Any], resource: Resource) -> ReadableSpan:
    """Return the span of a run.

    Its attributes are the values of the record, its events the phases, and its links the runs that
    overlapped it.
    """
    attributes = {}
    for name, value in _flat(report):
        # The phases are events, and a log is no attribute.
        if name != "worker_log" and not name.startswith("phases."):
            attributes[f"tegrascope.run.{name}"] = value
    if report.get("unit") == "token" and report.get("units") is not None:
        attributes["gen_ai.request.model"] = report.get("model") or report["workload"]
        attributes["gen_ai.usage.output_tokens"] = round(report["units"])
    shift_ns = report["started_wall_ns"] - report["started_ns"]
    events = []
    for name, phase in report.get("phases", {}).items():
        seconds = {"tegrascope.phase.duration_seconds": (phase["end_ns"] - phase["begin_ns"]) / 1e9}
        events.append(Event(name, seconds, phase["begin_ns"] + shift_ns))
    if report["outcome"] == "ok":
        status = Status(StatusCode.OK)
    elif report["outcome"] in ("failed", "timeout"):
        status = Status(StatusCode.ERROR, report.get("reason"))
    else:
        status = Status(StatusCode.UNSET)
    links = []
    for run_id in report.get("overlapping_runs", ()):
        links.append(Link(SpanContext(*run_ids(run_id), is_remote=True)))
    return ReadableSpan(
        f"run {report['workload']}",
        SpanContext(*run_ids(report["run_id"]), is_remote=False),
        resource=resource,
        attributes=attributes,
        events=events,
        links=links,
        status=status,
        start_time=report["started_wall_ns"],
        end_time=report["ended_ns"] + shift_ns,
        instrumentation_scope=_SCOPE,
    )


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a document by dotted name; no lists but those of one simple type."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif not isinstance(value, list) or _is_list_of_one_type(value):
            yield prefix + name, value


def _is_list_of_one_type(values: list[Any]) -> bool:
    """Return whether a list can be an attribute: not empty, and all text or all numbers."""
    if not values or not isinstance(values[0], (str, int, float)):
        return False
    return all(type(value) is type(values[0]) for value in values)


def main(settings: Mapping[str, Any]) -> None:
    """Send each line of standard input, and answer it."""
    sender = Sender(settings)
    print(json.dumps(SendResult(None)), flush=True)  # the imports are done
    for line in sys.stdin:
        print(json.dumps(sender.send(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
