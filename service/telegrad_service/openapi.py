"""The OpenAPI document; ``telegrad openapi`` writes or compares it.

FastAPI describes the requests and responses of routes. This module adds the rest for all routes: errors, derived from
a route's properties (it has a body, it is below a session, …) and the engine's table of errors; and examples of
responses, derived from their schemas. Its texts are in ``openapi_texts.toml``, the examples of requests in
``request_examples.json``.

Pydantic's schemas are correct, but client generators name classes after ``title``, read integers without a ``format``
as 32 bits wide, and do not support ``const``. They are rewritten here for the whole document.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from telegrad_engine.errors import ERRORS

from . import problems
from .http.representations import JSON
from .resources.programs import Program
from .routing.route import Route

REQUEST_ID = "5f0c7d1b2a3e4f60"
"""The id of the requests in examples."""
EXAMPLES = json.loads(Path(__file__).with_name("request_examples.json").read_text(encoding="utf-8"))
"""The examples of request bodies, by operation."""
SCHEMA_REF = "#/components/schemas/{model}"
LICENSE = {"name": "Apache License 2.0", "identifier": "Apache-2.0"}
SERVERS = [{"url": "/", "description": "The server that serves this document."}]
KEY_SCHEME = "ApiKey"
SECURITY_SCHEMES = {
    KEY_SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "tg_…",
        "description": "An API key, which `telegrad keys create` makes. A server on loopback without keys needs none.",
    }
}
LOCATIONS = {"201": "The address of the new resource.", "202": "The address of the call that the pass waits for."}
"""The descriptions of ``Location``, by status."""
ETAG = {
    "ETag": {"description": "The tag of the content, for `If-None-Match` and `If-Match`.", "schema": {"type": "string"}}
}
DESCRIBED_BY_FASTAPI = "Successful Response"
TEXTS = tomllib.loads(Path(__file__).with_name("openapi_texts.toml").read_text(encoding="utf-8"))
TAGS = [{"name": name, "description": text} for name, text in TEXTS["tags"].items()]
MEANINGS = {int(status): text for status, text in TEXTS["statuses"].items()}


def install(app: FastAPI) -> None:
    """Make the app, whose ``state.routes`` are the routes of the API, serve this document."""
    app.openapi = cache(partial(document, app))  # type: ignore[method-assign]


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document."""
    found = FastAPI.openapi(app)
    routes: dict[str | None, Route] = {route.operation_id: route for route in app.state.routes}
    for operations in found["paths"].values():
        for operation in operations.values():
            if (examples := EXAMPLES.get(operation["operationId"])) is not None:
                operation["requestBody"]["content"][JSON]["examples"] = examples
            _complete(operation, routes[operation["operationId"]])
            _link(operation, routes[operation["operationId"]], routes.values())
    schemas = found["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _, more = models_json_schema(
        [(problems.Problem, "serialization"), (Program, "validation")], ref_template=SCHEMA_REF
    )
    schemas.update(more["$defs"])
    for schema in schemas.values():
        for choice in schema.get("properties", {}).get("ttl_s", {}).get("anyOf", ()):
            if "exclusiveMinimum" in choice:
                choice["maximum"] = app.state.settings.max_session_ttl_s
    found["security"] = []  # each operation says what it needs
    found["components"]["securitySchemes"] = SECURITY_SCHEMES
    found["components"]["schemas"] = dict(sorted(schemas.items()))
    found["components"]["responses"] = {f"Problem{status}": _problem(status) for status in MEANINGS}
    finished: dict[str, Any] = simplified_document(found)
    for operations in finished["paths"].values():
        for operation in operations.values():
            _finish(operation, finished["components"]["schemas"])
    return finished


def _complete(operation: dict[str, Any], route: Route) -> None:
    """Sort the operation's parameters; add its errors and the headers of its response."""
    if parameters := operation.get("parameters"):
        parameters.sort(key=lambda parameter: _place(parameter, route.path))
    operation["security"] = [] if route.scope is None else [{KEY_SCHEME: [route.scope]}]
    responses = operation["responses"]
    responses.pop("422", None)
    if route.options.tagged:
        responses["304"] = {"description": "The client has the current content.", "headers": ETAG}
    for status in sorted(_statuses(route, operation)):
        responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    for success, description in LOCATIONS.items():
        if success in responses:
            location = {"description": description, "required": True, "schema": {"type": "string"}}
            responses[success]["headers"] = {"Location": location}
    if route.options.tagged or (route.options.guarded and "200" in responses):
        responses["200"]["headers"] = ETAG


def _link(operation: dict[str, Any], route: Route, routes: Iterable[Route]) -> None:
    """Link the responses that name a new resource, or a call that a pass waits for, to the operations on it."""
    links = []
    if route.creates:
        for each in routes:
            if (child := re.match(re.escape(route.path) + r"/{(\w+)}", each.path)) is not None:
                # A function and a procedure are identified by a name, everything else by an id.
                links.append((each, "201", child[1], "name" if child[1] == "name" else "id"))
    elif "202" in operation["responses"]:
        waiting = [each for each in routes if "/pending/{call}" in each.path]
        links = [(each, "202", "call", "pending/call") for each in waiting]
    for target, status, name, field in links:
        outer = {parameter: f"$request.path.{parameter}" for parameter in re.findall(r"{(\w+)}", route.path)}
        parameters = {parameter: outer[parameter] for parameter in outer if f"{{{parameter}}}" in target.path}
        parameters[name] = f"$response.body#/{field}"
        found = operation["responses"][status].setdefault("links", {})
        found[target.operation_id] = {"operationId": target.operation_id, "parameters": parameters}


def _place(parameter: dict[str, Any], path: str) -> tuple[int, int]:
    """The sort key of a parameter: those of the path come first, in the path's order."""
    kind = ("path", "query", "header").index(parameter["in"])
    return kind, path.index(f"{{{parameter['name']}}}") if kind == 0 else 0


def _finish(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add an example to each JSON response, and correct FastAPI's schemas of parameters and bodies."""
    body = operation.get("requestBody", {})
    # FastAPI allows null for optional parameters and bodies, and some generated clients then send it.
    never_null = [*operation.get("parameters", ()), *(body["content"].values() if body.get("required") else ())]
    for holder in never_null:
        holder["schema"] = without_null(holder["schema"])
    for parameter in operation.get("parameters", ()):
        parameter["schema"].pop("description", None)  # the parameter itself has it
    for status, response in operation["responses"].items():
        if response.get("description") == DESCRIBED_BY_FASTAPI:
            response["description"] = "Done." if "content" not in response else "The request succeeded."
        content = response.get("content", {}).get(JSON)
        if content is not None:
            content["example"] = example(content["schema"], schemas)
            if status == "202":
                # A pass that waits has a call, and no results yet.
                pending = example(schemas["PendingCall"], schemas)
                content["example"] = {name: [] for name in content["example"]} | {"pending": pending}


def _statuses(route: Route, operation: dict[str, Any]) -> set[int]:
    """The statuses of the errors that an operation can answer with."""
    query = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
    statuses = {400, 403, 421, 431, 500} | ({406} if route.negotiated else set())
    if route.scope is not None:
        statuses |= {401, 422, 503}
    if route.with_body:
        statuses |= {408, 413, 415}
    if "{" in route.path:
        statuses.add(404)
    if "{session}" in route.path or route.creates:
        statuses.add(409)  # the session may end while a request waits for it
    if "data" in query:
        statuses.add(413)
    if route.options.guarded:
        statuses.add(412)
    if "{session}" in route.path or route.operation_id == "create_session":
        statuses.add(429)
    if route.operation_id != "get_health":  # all others are refused while the server has too many connections
        statuses.add(503)
    return statuses


def _problem(status: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": MEANINGS[status],
        "content": {
            problems.MEDIA_TYPE: {
                "schema": {"$ref": SCHEMA_REF.format(model="Problem")},
                "examples": {
                    slug: {"summary": error.title, "value": problems.content(error("…")) | {"request_id": REQUEST_ID}}
                    for slug, error in sorted(ERRORS.items())
                    if error.status == status
                },
            }
        },
    }
    if status in problems.RETRIED:
        found["headers"] = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    return found


def render(app: FastAPI) -> str:
    """The document of an app as text."""
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n"


# Schemas ------------------------------------------------------------------------------------------

Schema = dict[str, Any]
NULL = {"type": "null"}
FORMATS = {"integer": "int64", "number": "double"}
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# The keys whose values contain schemas.
IN_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
IN_VALUES = ("items", "additionalProperties")
# The keys whose values are data, not schemas.
DATA = frozenset({"example", "examples", "default", "enum"})
_CODE = re.compile(r"``(.+?)``")
_ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]*\.)?([^`]+)`")


def simplified_document(part: Any) -> Any:
    """A part of an OpenAPI document, with simplified schemas and Markdown descriptions."""
    if isinstance(part, list):
        return [simplified_document(item) for item in part]
    if not isinstance(part, dict):
        return part
    found: dict[str, Any] = {}
    for key, value in part.items():
        if key in DATA:
            found[key] = value
        elif key == "schemas":
            found[key] = {name: simplified(schema) for name, schema in value.items()}
        elif key == "schema":
            found[key] = simplified(value)
        elif key in ("description", "summary") and isinstance(value, str):
            found[key] = plain_text(value)
        else:
            found[key] = simplified_document(value)
    return found


def simplified(schema: Any) -> Any:
    """A schema without titles and ``const``, with formats, Markdown text, and the shortest form of ``X | None``."""
    if not isinstance(schema, dict):
        return schema
    found = {key: value for key, value in schema.items() if key != "title"}
    for key in IN_LISTS:
        if key in found:
            found[key] = [simplified(each) for each in found[key]]
    for key in IN_VALUES:
        if key in found:
            found[key] = simplified(found[key])
    if "properties" in found:
        found["properties"] = {name: simplified(each) for name, each in found["properties"].items()}
    if "const" in found:
        constant = found.pop("const")
        if not isinstance(constant, bool):
            found["enum"] = [constant]
    if "description" in found:
        found["description"] = plain_text(found["description"])
    _make_precise(found)
    return _shorten_nullable(found)


def _make_precise(schema: Schema) -> None:
    kind = schema.get("type")
    if kind == "integer":
        schema.update({key: int(schema[key]) for key in BOUNDS if key in schema})
        # The largest and the smallest value, which generators can hold: 2**63 is no int64.
        if "exclusiveMaximum" in schema:
            schema["maximum"] = schema.pop("exclusiveMaximum") - 1
        if "exclusiveMinimum" in schema:
            schema["minimum"] = schema.pop("exclusiveMinimum") + 1
    if kind in FORMATS:
        schema.setdefault("format", FORMATS[kind])


def _shorten_nullable(schema: Schema) -> Schema:
    """Rewrite ``anyOf: [X, null]`` as X with type ``[…, "null"]``, or as ``oneOf`` if X is a reference or an enum."""
    options = schema.get("anyOf", [])
    if NULL not in options or len(options) != 2:
        return schema
    (option,) = (each for each in options if each != NULL)
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    if "$ref" in option or "enum" in option:
        return {"oneOf": [option, NULL], **rest}
    if "type" in option:
        return {**option, "type": [option["type"], "null"], **rest}
    return {**option, **rest}


def without_null(schema: Schema) -> Schema:
    """The part of a schema that describes values other than null."""
    kind = schema.get("type")
    if isinstance(kind, list):
        schema = {**schema, "type": kind[0]} if len(kind) == 2 else schema
    if NULL in schema.get("oneOf", []) and len(schema["oneOf"]) == 2:
        (option,) = (each for each in schema["oneOf"] if each != NULL)
        schema = {**option, **{key: value for key, value in schema.items() if key != "oneOf"}}
    return schema


def plain_text(text: str) -> str:
    """A docstring as Markdown: roles and literals become names in single backticks."""
    return _CODE.sub(r"`\1`", _ROLE.sub(r"`\1`", text))


def example(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    """A value that matches the schema: its own example, or one composed of its parts' examples."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for options in ("oneOf", "anyOf"):
        if options in schema:
            return example(schema[options][0], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        properties = {name: example(each, schemas) for name, each in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties")
        return properties or ({"x": example(more, schemas)} if isinstance(more, dict) else {})
    if kind == "array":
        return [example(schema["items"], schemas)]
    raise ValueError(f"the schema needs examples: {schema}")
