"""The OpenAPI document: in step with the app, complete, and typed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from telegrad_service.openapi import FILE, render

ROOT = Path(__file__).parents[2]
Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render())
    return found


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_file_is_in_step() -> None:
    assert (ROOT / FILE).read_text(encoding="utf-8") == render(), "run `make openapi`"


def test_the_server_serves_it(client: httpx.Client, document: dict[str, Any]) -> None:
    assert client.get("/openapi.json").json() == document


def test_every_resource_is_there(document: dict[str, Any]) -> None:
    found = {(method.upper(), path) for path, method, _ in operations(document)}
    session = "/v1/sessions/{session}"
    assert found == {
        ("POST", "/v1/sessions"),
        ("GET", "/v1/sessions"),
        *((method, session) for method in ("GET", "PATCH", "DELETE")),
        ("POST", f"{session}/tensors"),
        ("GET", f"{session}/tensors"),
        *((method, f"{session}/tensors/{{id}}") for method in ("GET", "PATCH", "DELETE")),
        *((method, f"{session}/tensors/{{id}}/grad") for method in ("GET", "DELETE")),
        ("POST", f"{session}/ops/{{op}}"),
        *((method, f"{session}/functions") for method in ("POST", "GET")),
        *((method, f"{session}/functions/{{name}}") for method in ("GET", "DELETE")),
        ("POST", f"{session}/functions/{{name}}/apply"),
        ("POST", f"{session}/backward"),
        ("POST", f"{session}/grad"),
        ("GET", f"{session}/pending"),
        *((method, f"{session}/pending/{{call}}") for method in ("GET", "DELETE")),
        ("POST", f"{session}/pending/{{call}}/resume"),
        ("POST", f"{session}/programs"),
        ("GET", f"{session}/graph"),
        ("GET", f"{session}/profile"),
        ("GET", f"{session}/compiled"),
        *(("GET", path) for path in ("/v1/ops", "/v1/ops/{op}", "/v1/devices", "/healthz", "/readyz")),
    }


def test_operations_are_described(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    tags = {tag["name"] for tag in document["tags"]}
    for path, method, operation in operations(document):
        assert operation["operationId"].replace("_", "").isalnum()
        assert operation["summary"] and operation["description"] and set(operation["tags"]) <= tags
        statuses = set(operation["responses"])
        assert {"406", "500"} <= statuses
        if method in ("post", "patch"):
            assert {"400", "413", "415", "422"} <= statuses
            assert (
                any("example" in json.dumps(c) for c in operation["requestBody"]["content"].values())
                or method == "patch"
            )
        if "{session}" in path:
            assert {"404", "503"} <= statuses
            numbered = "Telegrad-Sequence" in [p["name"] for p in operation["parameters"]]
            assert numbered == (method != "get")
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (path, parameter)


def test_errors_are_problem_documents(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        for status, response in operation["responses"].items():
            if status >= "400":
                assert response["$ref"] == f"#/components/responses/Problem{status}", path
    for name, response in document["components"]["responses"].items():
        (media_type,) = response["content"]
        assert media_type == "application/problem+json"
        examples = response["content"][media_type]["examples"]
        assert examples
        assert all(str(example["value"]["status"]) == name.removeprefix("Problem") for example in examples.values())
    assert "Retry-After" in document["components"]["responses"]["Problem503"]["headers"]


def references(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        if "$ref" in data:
            yield data["$ref"]
        for value in data.values():
            yield from references(value)
    elif isinstance(data, list):
        for value in data:
            yield from references(value)


def test_references_lead_somewhere(document: dict[str, Any]) -> None:
    for reference in references(document):
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def test_answers_have_no_optional_fields(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    waiting = [r for _, _, operation in operations(document) for r in references(operation["responses"])]
    waiting += list(references(document["components"]["responses"]))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop().rsplit("/", 1)[1]
        if name in seen or name not in schemas:
            continue
        seen.add(name)
        schema = schemas[name]
        if schema["type"] == "object":
            assert set(schema["required"]) == set(schema["properties"]), name
        waiting += list(references(schema))
    assert {"Tensor", "SessionStatus", "Problem", "ProgramAnswer", "Graph", "OpEntry"} <= seen


def test_binary_bodies_are_documented(document: dict[str, Any]) -> None:
    paths = document["paths"]
    tensors = "/v1/sessions/{session}/tensors"
    binary = {"application/json", "application/vnd.safetensors", "application/x-npy"}
    assert set(paths[tensors]["post"]["requestBody"]["content"]) == binary
    assert set(paths[tensors + "/{id}"]["get"]["responses"]["200"]["content"]) == binary
    program = paths["/v1/sessions/{session}/programs"]["post"]
    assert set(program["requestBody"]["content"]) == binary - {"application/x-npy"}
    assert set(program["responses"]["200"]["content"]) == binary - {"application/x-npy"}
