"""An OTLP receiver that decodes by ``opentelemetry-proto`` and keeps all that comes, in order.

By hand, ``python -m tests.fakes.otlp_receiver PORT FILE [HOST]`` appends a line per page and run.
"""

import contextlib
import gzip
import json
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TYPES = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}


class Receiver:
    """Serves until ``stop``; a later ``start`` has the same port and the same record.

    Attributes:
        got: Path and decoded request of each that was accepted.
        headers: Those of the last request, accepted or not.
        status: Of the next answers, of all or by path; ``body`` and ``media`` go with it.
        asked: Number of requests.
        silent: Whether requests wait for an answer.
    """

    def __init__(
        self, port: int = 0, tls: "ssl.SSLContext | None" = None, host: str = "127.0.0.1"
    ) -> None:
        self.got: list[tuple[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.status: int | dict[str, int] = 200
        self.body, self.media = b"", "application/x-protobuf"
        self.asked = 0
        self.silent = threading.Event()
        self._host, self._port, self._tls = host, port, tls
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://{self._host}:{self._port}"

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                while receiver.silent.is_set():
                    time.sleep(0.05)
                status = receiver.take(self.path, dict(self.headers), data)
                with contextlib.suppress(BrokenPipeError):  # a client that gave up
                    self.send_response(status)
                    self.send_header("content-type", receiver.media)
                    self.send_header("content-length", str(len(receiver.body)))
                    self.end_headers()
                    self.wfile.write(receiver.body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((self._host, self._port), Handler)
        self._port = self._server.server_address[1]
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def take(self, path: str, headers: dict[str, str], data: bytes) -> int:
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.asked += 1
        status = self.status if isinstance(self.status, int) else self.status.get(path, 200)
        if status == 200:
            assert self.headers["content-encoding"] == "gzip"
            self.got.append((path, TYPES[path].FromString(gzip.decompress(data))))
        return status

    def pages(self) -> list[Any]:
        """Return the metrics of each page: by name."""
        found = [one for path, one in self.got if path == "/v1/metrics"]
        return [{metric.name: metric for metric in scope(one).metrics} for one in found]

    def spans(self) -> list[Any]:
        """Return the span of each run."""
        return [span for path, one in self.got if path == "/v1/traces" for span in scope(one).spans]


def scope(request: Any) -> Any:
    """Return the one scope of a request."""
    (resource,) = getattr(request, "resource_metrics", None) or request.resource_spans
    (found,) = getattr(resource, "scope_metrics", None) or resource.scope_spans
    return found


def refused_part(message: str, points: int = 3) -> bytes:
    """Return the answer of a receiver that did not take all points."""
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = points
    answer.partial_success.error_message = message
    return answer.SerializeToString()


def attributes(owner: Any) -> dict[str, Any]:
    """Return the attributes of a resource, a point or a span."""

    def value(one: Any) -> Any:
        kind = one.WhichOneof("value")
        found = getattr(one, kind)
        return [value(each) for each in found.values] if kind == "array_value" else found

    return {one.key: value(one.value) for one in owner.attributes}


def points(page: dict[str, Any]) -> "dict[tuple[str, frozenset[tuple[str, str]]], float]":
    """Return each series of a page as Prometheus names it, and its value."""
    found = {}
    for name, metric in page.items():
        data = getattr(metric, metric.WhichOneof("data"))
        for point in data.data_points:
            labels = attributes(point)
            if metric.HasField("histogram"):
                found[f"{name}_count", frozenset(labels.items())] = float(point.count)
                found[f"{name}_sum", frozenset(labels.items())] = point.sum
                bounds = [*map(float, point.explicit_bounds), float("inf")]
                count = 0
                for bound, more in zip(bounds, point.bucket_counts, strict=True):
                    count += more
                    found[f"{name}_bucket", frozenset({**labels, "le": bound}.items())] = count
            else:
                found[name, frozenset(labels.items())] = point.as_double
    return found


def main(port: str, file: str, host: str = "127.0.0.1") -> None:
    """Append a line per page and run to a file, for ever."""

    class Printing(Receiver):
        def take(self, path: str, headers: dict[str, str], data: bytes) -> int:
            status = super().take(path, headers, data)
            _, request = self.got.pop()
            with Path(file).open("a") as out:
                if path == "/v1/metrics":
                    page = {metric.name: metric for metric in scope(request).metrics}
                    time_ns = page["tegra_info"].sum.data_points[0].time_unix_nano
                    series = points(page)
                    samples = [v for (n, _), v in series.items() if n == "tegrascope_samples_total"]
                    print(json.dumps(["page", time_ns, len(series), *samples]), file=out)
                for span in getattr(scope(request), "spans", ()):
                    print(json.dumps(["run", span.trace_id.hex()]), file=out)
            return status

    Printing(int(port), host=host)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
