"""The OpenAPI document of the daemon, from the declarations of its handlers."""

from collections.abc import Mapping
from typing import Any

from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.web.application import ENDPOINTS, Endpoint, Parameter

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


def openapi() -> dict[str, Any]:
    """Return the document of all paths: ``static/openapi.json`` after ``make docs``."""
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
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


def _operation(one: Endpoint) -> dict[str, Any]:
    in_path = [part[1:-1] for part in one.path.split("/") if part.startswith("{")]
    answer = {"type": "string"} if one.keys is None else _object(one.keys)
    good = 200 if one.body is None else 202
    content = {one.media: {"schema": {"$ref": _RUN} if one.handler == "run" else answer}}
    made: dict[str, Any] = {
        "operationId": one.handler,
        "summary": one.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in in_path
        ]
        + [_parameter(parameter) for parameter in one.parameters],
        "responses": {str(good): {"description": "good", "content": content}}
        | {str(status): {"description": _STATUSES[status]} for status in one.statuses},
    }
    if one.body is not None:
        schema = {"schema": _object(one.body)}
        made["requestBody"] = {"required": True, "content": {"application/json": schema}}
        made["security"] = [{"bearer": []}, {"token": []}]
    return made


def _parameter(one: Parameter) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "string"}
    if one.high is not None:
        kind = {"type": "number", "minimum": one.low, "maximum": one.high}
        kind |= {"type": "integer"} if one.is_integer else {}
        kind |= {} if one.default is None else {"default": one.default}
    return {"name": one.name, "in": "query", "description": one.help, "schema": kind}


def _object(keys: Mapping[str, str | tuple[str, ...]]) -> dict[str, Any]:
    reports = {"type": "array", "items": {"$ref": _RUN}}
    kinds = {name: reports if kind == "reports" else {"type": kind} for name, kind in keys.items()}
    return {"type": "object", "properties": kinds, "required": list(keys)}
