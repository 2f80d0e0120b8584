"""The table of endpoints, its OpenAPI document and ``docs/http.md`` describe the same daemon."""

import json
import re
from pathlib import Path

import pytest

from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.web.application import ENDPOINTS
from tools.openapi import openapi

from .page_server import Server

DOCS = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
S = 1_000_000_000


@pytest.fixture
def server(tmp_path):
    made = Server(tmp_path)
    made.store.finish(
        RunReport(
            run_id="r1", workload="w", backend="b", device="gpu", outcome="ok",
            started_wall_ns=5 * S, started_ns=1, ended_ns=2,
        )
    )  # fmt: skip
    yield made
    made.stop()


def references(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        node = list(node.values())
    for one in node if isinstance(node, list) else ():
        yield from references(one)


def names_in(components):
    """Return the names of schemas and of their properties."""
    schemas = components["schemas"].items()
    return {name: sorted(one.get("properties", ())) for name, one in schemas}


def test_document_is_served_and_whole(server):
    """Every reference leads to a schema, and every operation has its own name."""
    status, headers, text = server.ask("GET", "/api/v1/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    told = json.loads(text)
    made = json.loads(json.dumps(openapi()))
    # Releases of pydantic describe the same type in different words.
    assert names_in(told.pop("components")) == names_in(made.pop("components")), "run: make docs"
    assert told == made, "run: make docs"
    told = json.loads(text)
    for reference in references(told):
        _, root, kind, name = reference.split("/")
        assert (root, kind) == ("components", "schemas")
        assert name in told["components"]["schemas"]
    operations = [one for path in told["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations) == len(ENDPOINTS)
    assert told["paths"]["/api/v1/runs"]["post"]["security"] == [{"bearer": []}, {"token": []}]


@pytest.mark.parametrize("one", ENDPOINTS, ids=lambda one: one.handler)
def test_answers_are_as_described(server, one):
    """The live answer has the described type and keys; a wrong number is refused as described."""
    path = one.path.format(run_id="r1", tool="dcgm")
    if one.method == "POST":
        body = json.dumps(dict.fromkeys(one.body, "w")).encode()
        status, answer = server.post(body, path)
        assert status == 202
        assert answer.keys() == one.keys.keys()
        return
    status, headers, text = server.ask("GET", path)
    assert status == 200
    assert headers["content-type"].startswith(one.media)
    if one.keys:
        assert json.loads(text).keys() == one.keys.keys()
    for number in one.parameters:
        if number.high is not None:
            for bad in ("x", "nan", number.low - 1, number.high * 2):
                assert server.ask("GET", f"{path}?{number.name}={bad}")[0] == 400
            assert 400 in one.statuses


def test_keys_of_a_run_are_those_of_its_schema(server):
    run = json.loads(server.ask("GET", "/api/v1/runs/r1")[2])
    schema = openapi()["components"]["schemas"]["RunReport"]
    assert run.keys() <= schema["properties"].keys()
    assert set(schema["required"]) <= run.keys()


@pytest.mark.parametrize("one", ENDPOINTS, ids=lambda one: one.handler)
def test_page_of_docs_has_every_path_and_parameter(one):
    """``docs/http.md`` has a row with the path, and names its parameters with their defaults."""
    path = one.path.format(run_id="ID", tool="TOOL")
    called = f"`POST {path}`" if one.method == "POST" else f"`{path}`"
    row = next((line for line in DOCS.splitlines() if line.startswith(f"| {called} |")), "")
    assert row
    for number in one.parameters:
        assert re.search(rf"`{number.name}`", row), number.name
        if number.default:
            assert f"{number.default:g}" in row
