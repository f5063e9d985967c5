"""The OpenAPI document: in step with the app, complete, and typed.

Internals: the document is rendered as ``telegrad openapi`` does.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from telegrad_service.app import create_app
from telegrad_service.cli import DOCUMENT
from telegrad_service.openapi import render
from telegrad_service.settings import Settings

ROOT = Path(__file__).parents[2]
Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render(create_app(Settings())))
    return found


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_file_is_in_step() -> None:
    assert (ROOT / DOCUMENT).read_text(encoding="utf-8") == render(create_app(Settings())), "run `make openapi`"


def test_the_server_serves_it(client: httpx.Client, document: dict[str, Any]) -> None:
    assert client.get("/openapi.json").json() == document


def test_operations_are_described(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    tags = {tag["name"] for tag in document["tags"]}
    for path, method, operation in operations(document):
        assert operation["operationId"].replace("_", "").isalnum()
        assert operation["summary"] and operation["description"] and set(operation["tags"]) <= tags
        statuses = set(operation["responses"])
        assert "500" in statuses
        assert ("406" in statuses) == ("204" not in statuses)
        if method in ("post", "patch"):
            assert {"400", "413", "415", "422"} <= statuses
            content = operation["requestBody"]["content"]
            assert "application/json" not in content or {"example", "examples"} & content["application/json"].keys(), (
                path
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


def test_the_schema_is_no_wider_than_the_server(client: httpx.Client, document: dict[str, Any]) -> None:
    parameters = {
        parameter["name"]: parameter["schema"]
        for _, _, operation in operations(document)
        for parameter in operation.get("parameters", [])
    }
    largest = parameters["Telegrad-Sequence"]["maximum"]
    path = client.post("/v1/sessions").headers["location"]
    run = {"content": b"[]", "headers": {"content-type": "application/json"}}
    for number, expected in {largest: 409, largest + 1: 422}.items():
        run["headers"] = {"content-type": "application/json", "Telegrad-Sequence": str(number)}
        assert client.post(path + "/programs", **run).status_code == expected
    schemas = document["components"]["schemas"]
    bounds = [schemas[name]["properties"]["ttl_s"]["maximum"] for name in ("SessionCreate", "SessionUpdate")]
    for ttl, expected in {bounds[0]: 200, bounds[1] + 1: 422}.items():
        assert client.patch(path, json={"ttl_s": ttl}).status_code == expected
    seeds = schemas["SessionCreate"]["properties"]["seed"]
    for seed, expected in {seeds["minimum"]: 201, seeds["maximum"]: 201, seeds["maximum"] + 1: 422}.items():
        made = client.post("/v1/sessions", json={"seed": seed})
        assert made.status_code == expected
        if expected == 201:
            client.delete(made.headers["location"])
    client.delete(path)


def test_the_schema_has_the_servers_own_bounds() -> None:
    schemas = create_app(Settings(max_session_ttl_s=77)).openapi()["components"]["schemas"]
    assert schemas["SessionCreate"]["properties"]["ttl_s"]["maximum"] == 77


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
    assert {"Tensor", "SessionStatus", "Problem", "ProgramResult", "Graph", "OpEntry"} <= seen


def test_binary_bodies_are_documented(document: dict[str, Any]) -> None:
    paths = document["paths"]
    tensors = "/v1/sessions/{session}/tensors"
    binary = {"application/json", "application/vnd.safetensors", "application/x-npy"}
    assert set(paths[tensors]["post"]["requestBody"]["content"]) == binary
    assert set(paths[tensors + "/{id}"]["get"]["responses"]["200"]["content"]) == binary
    program = paths["/v1/sessions/{session}/programs"]["post"]
    assert set(program["requestBody"]["content"]) == binary - {"application/x-npy"}
    assert set(program["responses"]["200"]["content"]) == binary - {"application/x-npy"}


def schemas_of(data: Any) -> Iterator[dict[str, Any]]:
    """Every schema of the document, at any depth."""
    if isinstance(data, list):
        for value in data:
            yield from schemas_of(value)
        return
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        if key in ("schema", "items", "additionalProperties") and isinstance(value, dict):
            yield value
        elif key in ("schemas", "properties"):
            yield from (each for each in value.values() if isinstance(each, dict))
        elif key in ("anyOf", "oneOf", "allOf"):
            yield from value
        if key not in ("example", "examples", "default"):
            yield from schemas_of(value)


def pascal_case(name: str) -> str:
    return "".join(word.capitalize() for word in re.split(r"[_-]", name))


def test_parameters_stand_in_the_order_of_the_path(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        kinds = [parameter["in"] for parameter in operation.get("parameters", [])]
        assert kinds == sorted(kinds, key=("path", "query", "header").index), path
        names = [parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"]
        assert names == re.findall(r"{(\w+)}", path)


def test_every_schema_is_used(document: dict[str, Any]) -> None:
    used = {reference.rpartition("/")[2] for reference in references(document)}
    assert set(document["components"]["schemas"]) <= used


def test_schemas_and_operations_have_different_names(document: dict[str, Any]) -> None:
    """Generators name classes after both, and add suffixes to operations."""
    schemas = {name.lower() for name in document["components"]["schemas"]}
    assert len(schemas) == len(document["components"]["schemas"])
    for _, _, operation in operations(document):
        for suffix in ("", "Request", "Response", "Body", "Params", "Data", "Error"):
            assert (pascal_case(operation["operationId"]) + suffix).lower() not in schemas
    for tag in document["tags"]:
        assert pascal_case(tag["name"]) + "Api" not in document["components"]["schemas"]


def test_schemas_are_what_generators_read(document: dict[str, Any]) -> None:
    found = list(schemas_of(document))
    assert len(found) > 300
    for schema in found:
        assert not {"const", "title", "anyOf"} & schema.keys(), schema
        kinds = schema.get("type", [])
        if {"integer", "number"} & set([kinds] if isinstance(kinds, str) else kinds):
            assert schema.get("format") in ("int64", "double"), schema
            if schema["format"] == "int64":
                assert not {"exclusiveMinimum", "exclusiveMaximum"} & schema.keys()
                assert schema.get("minimum", 0) >= -(2**63) and schema.get("maximum", 0) < 2**63, schema
        if "oneOf" in schema:
            assert all("$ref" in option or "enum" in option or option == {"type": "null"} for option in schema["oneOf"])
    named = Counter(value for schema in document["components"]["schemas"].values() for value in schema.get("enum", []))
    assert "float32" in named
    assert max(named.values()) == 1, "in Go, the values of named enumerations are constants of one package"
    for _, _, operation in operations(document):
        for parameter in operation.get("parameters", []):
            assert "null" not in json.dumps(parameter["schema"]), parameter


def texts(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            if key in ("description", "summary") and isinstance(value, str):
                yield value
            yield from texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from texts(value)


def test_texts_are_plain(document: dict[str, Any]) -> None:
    for text in texts(document):
        assert text and "``" not in text and not re.search(r":\w+:`", text), text


def test_examples_are_what_their_schemas_say(document: dict[str, Any]) -> None:
    components = {"components": document["components"]}
    checked = 0
    for path, _, operation in operations(document):
        bodies = [operation["requestBody"]] if "requestBody" in operation else []
        successes = [r for status, r in operation["responses"].items() if status < "400" and "content" in r]
        for media_type, described in [item for body in successes for item in body["content"].items()]:
            assert "example" in described or described["schema"].get("format") == "binary", (path, media_type)
        for body in (*bodies, *successes):
            if "application/json" not in body["content"]:  # text, or a file
                continue
            content = body["content"]["application/json"]
            examples = [e["value"] for e in content["examples"].values()] if "examples" in content else []
            examples += [content["example"]] if "example" in content else []
            assert examples, path
            validator = jsonschema.Draft202012Validator({**content["schema"], **components})
            for example in examples:
                validator.validate(example)
                checked += 1
    assert checked > 40


def test_one_of_two_bodies_makes_a_tensor(document: dict[str, Any]) -> None:
    schema = document["components"]["schemas"]["TensorCreate"]
    validator = jsonschema.Draft202012Validator({**schema, "components": document["components"]})
    for body in ({"data": [1.0, [2]]}, {"data": "NaN"}, {"factory": "zeros", "shape": [2]}):
        assert validator.is_valid(body), body
    for body in ({}, {"data": 1, "factory": "ones"}, {"data": [1], "shape": [1]}, {"data": {"a": 1}}):  # type: ignore[assignment]
        assert not validator.is_valid(body), body


def test_it_says_who_may_use_it_and_where(document: dict[str, Any]) -> None:
    assert document["info"]["license"]["identifier"] == "Apache-2.0"
    assert [server["url"] for server in document["servers"]] == ["/"]
    assert document["security"] == []
