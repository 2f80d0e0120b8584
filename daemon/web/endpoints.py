"""Every path that the daemon answers: the one place for its parameters, answers and statuses.

The router, the checks of parameters, the OpenAPI document, the paths in a 404 and the test of
``docs/http.md`` use this table.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from ..measure.run_report import RunReport

# The year 2255; SQLite's integers end a little later.
LATEST_SECONDS = 9e9
_RUN = "#/components/schemas/RunReport"
_STATUSES = {
    202: "accepted",
    304: "the client already has it",
    400: "a parameter or the body is wrong",
    401: "the token is missing",
    404: "nothing is there; `paths` has every path",
    408: "the body took too long",
    409: "it cannot be done now",
    413: "the body is too long",
    503: "not ready, or too many others ask now",
}


@dataclass(frozen=True)
class Parameter:
    """A number in the query, or a text without limits.

    Attributes:
        high: Greatest number; None for a text.
        default: Value of an omitted number; None leaves it to the endpoint, as ``help`` says.
    """

    name: str
    help: str
    low: float = 0
    high: float | None = LATEST_SECONDS
    default: float | None = None
    is_integer: bool = False

    def read(self, text: str | None) -> float | None:
        """Return the number of a query.

        Raises:
            HTTPException: It is not a number within the limits.
        """
        if text is None or self.high is None:
            return self.default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not self.low <= value <= self.high:
            limits = f"from {self.low:g} to {self.high:g}"
            raise HTTPException(400, f"{self.name} is a number {limits}, not {text[:100]!a}")
        return math.floor(value) if self.is_integer else value

    def schema(self) -> dict[str, Any]:
        """Return the parameter as OpenAPI describes it."""
        kind: dict[str, Any] = {"type": "string"}
        if self.high is not None:
            kind = {"type": "number", "minimum": self.low, "maximum": self.high}
            kind |= {"type": "integer"} if self.is_integer else {}
            kind |= {} if self.default is None else {"default": self.default}
        return {"name": self.name, "in": "query", "description": self.help, "schema": kind}


def _limit(high: int, default: int) -> Parameter:
    return Parameter("limit", "most entries", 1, high, default, is_integer=True)


_BEFORE = Parameter("before", "only runs that started before this time")


@dataclass(frozen=True)
class Endpoint:
    """One path with one method.

    Attributes:
        handler: Method of the application that answers.
        media: Type of the answer.
        keys: JSON types of the keys of the answer; ``run`` is the whole report of a run.
        body: JSON types of the keys of the request; a request with a body needs the token.
        statuses: Those of an answer besides 200.
    """

    path: str
    handler: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    media: str = "application/json"
    keys: Mapping[str, str | tuple[str, ...]] | None = None
    body: Mapping[str, str] | None = None
    statuses: tuple[int, ...] = ()

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return "GET" if self.body is None else "POST"

    def read(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the numbers of a query by name."""
        return {one.name: one.read(query.get(one.name)) for one in self.parameters}

    def schema(self) -> dict[str, Any]:
        """Return the operation as OpenAPI describes it."""
        in_path = [part[1:-1] for part in self.path.split("/") if part.startswith("{")]
        answer = {"type": "string"} if self.keys is None else _object(self.keys)
        good = 200 if self.body is None else 202
        content = {self.media: {"schema": {"$ref": _RUN} if self.handler == "run" else answer}}
        made: dict[str, Any] = {
            "operationId": self.handler,
            "summary": self.summary,
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in in_path
            ]
            + [one.schema() for one in self.parameters],
            "responses": {str(good): {"description": "good", "content": content}}
            | {str(status): {"description": _STATUSES[status]} for status in self.statuses},
        }
        if self.body is not None:
            schema = {"schema": _object(self.body)}
            made["requestBody"] = {"required": True, "content": {"application/json": schema}}
            made["security"] = [{"bearer": []}, {"token": []}]
        return made


def _object(keys: Mapping[str, str | tuple[str, ...]]) -> dict[str, Any]:
    kinds: dict[str, Any] = {name: {"type": kind} for name, kind in keys.items()}
    if keys.get("runs") == "reports":
        kinds["runs"] = {"type": "array", "items": {"$ref": _RUN}}
    return {"type": "object", "properties": kinds, "required": list(keys)}


_PAGE, _TEXT = "text/html", "text/plain"
_ASKED = "seconds since 1970"
ENDPOINTS = (
    Endpoint(
        "/metrics", "metrics", "The page for Prometheus, or OpenMetrics on request", media=_TEXT
    ),
    Endpoint("/healthz", "healthz", "`ok` while the process lives", media=_TEXT),
    Endpoint(
        "/readyz", "readyz", "Ready or the reason why not, and a note", media=_TEXT, statuses=(503,)
    ),
    Endpoint(
        "/api/v1/runs",
        "runs",
        "Finished runs, newest first, as whole reports; `active` has the run in flight by workload",
        (
            _limit(1000, 100),
            _BEFORE,
            Parameter("workload", "only runs of this workload", high=None),
        ),
        keys={"runs": "reports", "active": "object"},
        statuses=(400, 503),
    ),
    Endpoint(
        "/api/v1/runs",
        "start_run",
        "Starts a configured workload now",
        keys={"run_id": "string"},
        body={"workload": "string"},
        statuses=(400, 401, 404, 408, 409, 413),
    ),
    Endpoint(
        "/api/v1/runs/{run_id}",
        "run",
        "One finished run, by its id or a unique beginning or end of it",
        keys={},
        statuses=(404, 503),
    ),
    Endpoint(
        "/api/v1/samples",
        "samples",
        "Samples after a time, oldest first, each with `time`, `source` and `values` by column",
        (
            Parameter("since", f"{_ASKED}; default: a minute ago"),
            _limit(36_000, 3600),
        ),
        keys={"samples": "array"},
        statuses=(400, 503),
    ),
    Endpoint(
        "/api/v1/windows",
        "mark_window",
        "Marks the begin or the end of an application's window, or a past window",
        keys={"run_id": "string"},
        body={"event": "string"},
        statuses=(400, 401, 408, 409, 413, 503),
    ),
    Endpoint(
        "/api/v1/status",
        "status",
        "The present state: board, troubles, sources, workloads, store",
        keys={
            "time": "number",
            "version": "string",
            "simulated": "boolean",
            **dict.fromkeys(("board", "now", "limits", "trips", "companions", "store"), "object"),
            **dict.fromkeys(("total_rails", "troubles", "sources", "workloads"), "array"),
            "skipped": "object",
            **dict.fromkeys(("problem", "note"), ("string", "null")),
        },
    ),
    Endpoint(
        "/api/v1/models",
        "models",
        "Each model with its figures by device, from its last good runs, and which is better",
        keys={"models": "array"},
        statuses=(503,),
    ),
    Endpoint(
        "/api/v1/series",
        "series",
        "Telemetry in steps",
        (
            Parameter("since", f"{_ASKED}; default: 15 minutes before `until`"),
            Parameter("until", f"{_ASKED}; default: now"),
            Parameter("step", "seconds per step", 0.1, 3600, 2.0),
        ),
        keys={"step": "number", "parts": "array"},
        statuses=(400, 503),
    ),
    Endpoint(
        "/api/v1/bands",
        "bands",
        "When runs took place, newest first, without those that did not start",
        (
            Parameter("since", f"only runs that ended after this time; {_ASKED}", default=0.0),
            _limit(2000, 2000),
            _BEFORE,
        ),
        keys={"since": "number", "bands": "array"},
        statuses=(400, 503),
    ),
    Endpoint(
        "/api/v1/summaries",
        "summaries",
        "Runs in flight and finished runs, newest first, with a few fields each",
        (_limit(100, 50), _BEFORE),
        keys={"in_flight": "array", "runs": "array"},
        statuses=(400, 503),
    ),
    Endpoint("/api/v1/openapi.json", "openapi", "This table as OpenAPI 3.1", keys={}),
    Endpoint("/", "index", "The status page", media=_PAGE, statuses=(304,)),
    Endpoint("/runs/{run_id}", "run_page", "The page of a run", media=_PAGE, statuses=(304,)),
)
BY_HANDLER = {one.handler: one for one in ENDPOINTS}
PATHS = list(dict.fromkeys(one.path for one in ENDPOINTS))


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of all paths: ``static/openapi.json`` after ``make docs``."""
    paths: dict[str, dict[str, Any]] = {path: {} for path in PATHS}
    for one in ENDPOINTS:
        paths[one.path][one.method.lower()] = one.schema()
    report = RunReport.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = {**report.pop("$defs"), "RunReport": report}
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "token": {"type": "apiKey", "in": "header", "name": "X-Tegrascope-Token"},
        "user": {"type": "http", "scheme": "basic"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "tegrascope", "version": "1"},
        "security": [{}, {"user": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": schemes},
    }
