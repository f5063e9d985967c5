"""The OpenAPI document; ``telegrad openapi`` writes or compares it.

FastAPI describes the requests and responses of routes. This module adds the rest for all routes: errors, derived from
a route's properties (it has a body, it is below a session, …) and the engine's table of errors; examples of responses,
derived from their schemas; and forms of schemas that client generators support.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from telegrad_engine.errors import ERRORS

from . import problems
from .http import json_schema
from .http.media import JSON
from .programs.schemas import Program
from .routing.route import Route
from .settings import Settings

SCHEMA_REF = "#/components/schemas/{model}"
LICENSE = {"name": "Apache License 2.0", "identifier": "Apache-2.0"}
SERVERS = [{"url": "/", "description": "The server that serves this document."}]
DESCRIBED_BY_FASTAPI = "Successful Response"
DESCRIPTION = """\
A server holds sessions of dynamic computation graphs. Create tensors, apply ops, call `backward` and
read gradients over HTTP; or send many instructions at once as a program.

* A tensor's id is a letter or underscore, then letters, digits and `_ . : -`. The client may choose it.
* Values are JSON, safetensors (`application/vnd.safetensors`) or npy (`application/x-npy`), as `Accept` and
  `Content-Type` say. With `Content-Encoding: zstd` a request body is a zstd frame; with `Accept-Encoding: zstd` a
  response body is one, if that is at least a tenth shorter.
* Errors are problem documents (RFC 9457). `type` names the kind of error; `detail` is PyTorch's text where PyTorch
  has one. A session stays usable after an error.
* A mutation with the header `Telegrad-Sequence: N` (1, 2, 3, …) can be repeated safely: it runs once.
* Programs can also be sent over a WebSocket, `/v1/sessions/{session}/stream`, several at a time: docs/stream.md.
"""
TAGS = [
    {"name": "sessions", "description": "Each holds tensors, their graph and a random number generator."},
    {"name": "tensors", "description": "Values and their gradients."},
    {"name": "ops", "description": "One operation per request."},
    {"name": "functions", "description": "Operations that clients define as data, with their derivatives."},
    {"name": "autograd", "description": "Differentiation."},
    {"name": "programs", "description": "Many instructions per request."},
    {"name": "graph", "description": "The computation graph as JSON or as a drawing."},
    {"name": "profile", "description": "How sessions spend their time."},
    {"name": "catalogue", "description": "The ops, verbs and devices of the server."},
    {"name": "health", "description": "Liveness and readiness of the server."},
]
MEANINGS = {
    400: "The request cannot be parsed.",
    403: "A web page of another origin may not make this request.",
    404: "The session, tensor, op, gradient or call does not exist.",
    406: "The response is not available in a media type that `Accept` allows.",
    408: "The request did not arrive in time.",
    409: "The request conflicts with the session: a freed graph, a modified tensor, a taken id, a sequence number.",
    413: "The request or its result exceeds a limit.",
    415: "The media type or the content coding of the request body is not supported.",
    421: "The `Host` header does not name this server.",
    422: "The request is well-formed but invalid: a shape, a dtype, an argument.",
    429: "The client has as many sessions as it may have.",
    431: "The headers exceed a limit.",
    500: "The server failed.",
    503: "The server is full or about to stop.",
}


def install(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Make the app, which consists of these routers, serve this document."""

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app, routers)
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]


def document(app: FastAPI, routers: Sequence[APIRouter]) -> dict[str, Any]:
    """The whole document."""
    found = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        tags=app.openapi_tags,
        servers=app.servers,
        license_info=app.license_info,
        routes=app.routes,
    )
    declared = [route for router in routers for route in router.routes]
    routes = {route.operation_id: route for route in declared if isinstance(route, Route)}
    for operations in found["paths"].values():
        for operation in operations.values():
            _complete(operation, routes[operation["operationId"]])
    schemas = found["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _, more = models_json_schema(
        [(problems.Problem, "serialization"), (Program, "validation")], ref_template=SCHEMA_REF
    )
    schemas.update(more["$defs"])
    _bound_by_settings(schemas, app.state.settings)
    found["security"] = []
    found["components"]["schemas"] = dict(sorted(schemas.items()))
    found["components"]["responses"] = {f"Problem{status}": _problem(status) for status in MEANINGS}
    finished: dict[str, Any] = json_schema.simplified_document(found)
    for operations in finished["paths"].values():
        for operation in operations.values():
            _finish(operation, finished["components"]["schemas"])
    return finished


def _bound_by_settings(schemas: dict[str, Any], settings: Settings) -> None:
    """Add the maximum of ``ttl_s`` in this server's settings to the schemas."""
    for schema in schemas.values():
        for choice in schema.get("properties", {}).get("ttl_s", {}).get("anyOf", ()):
            if "exclusiveMinimum" in choice:
                choice["maximum"] = settings.max_session_ttl_s


def _complete(operation: dict[str, Any], route: Route) -> None:
    """Sort the operation's parameters; add its errors and the headers of its response."""
    if parameters := operation.get("parameters"):
        parameters.sort(key=lambda parameter: _place(parameter, route.path))
    responses = operation["responses"]
    responses.pop("422", None)
    for status in sorted(_statuses(route)):
        responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    if "201" in responses:
        responses["201"]["headers"] = {
            "Location": {"description": "The address of the new resource.", "schema": {"type": "string"}}
        }


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
        holder["schema"] = json_schema.without_null(holder["schema"])
    for parameter in operation.get("parameters", ()):
        parameter["schema"].pop("description", None)  # the parameter itself has it
    for response in operation["responses"].values():
        if response.get("description") == DESCRIBED_BY_FASTAPI:
            response["description"] = "Done." if "content" not in response else "The request succeeded."
        content = response.get("content", {}).get(JSON)
        if content is not None:
            content["example"] = json_schema.example(content["schema"], schemas)


def _statuses(route: Route) -> set[int]:
    statuses = {400, 403, 421, 431, 500} | ({406} if route.negotiated else set())
    if route.with_body:
        statuses |= {408, 413, 415, 422}
    if route.dependant.query_params or "{session}" in route.path:
        statuses.add(422)
    if "{" in route.path:
        statuses.add(404)
    if route.sequenced:
        statuses.add(409)
    if any(parameter.name == "data" for parameter in route.dependant.query_params):
        statuses.add(413)
    if route.operation_id == "create_session":
        statuses.add(429)
    if "{session}" in route.path or route.operation_id in ("create_session", "get_readiness"):
        statuses.add(503)
    return statuses


def _problem(status: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": MEANINGS[status],
        "content": {
            problems.MEDIA_TYPE: {
                "schema": {"$ref": SCHEMA_REF.format(model="Problem")},
                "examples": {
                    slug: {"summary": error.title, "value": problems.content(error("…"))}
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
