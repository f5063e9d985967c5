"""The OpenAPI document, and ``python -m telegrad_service.openapi [--check]`` to write or compare it.

FastAPI describes what routes read and answer. How they fail follows from what they are (has a body,
lives in a session, …) and from the engine's table of errors, so it is filled in here, once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from telegrad_engine.errors import ERRORS

from . import problems
from .programs.schemas import Program
from .routing import Route

FILE = Path("openapi/openapi.json")
SCHEMA_REF = "#/components/schemas/{model}"
DESCRIPTION = """\
A server holds sessions of dynamic computation graphs. Create tensors, apply ops, call `backward` and
read gradients over HTTP; or send many instructions at once as a program.

* A tensor's id is a letter or underscore, then letters, digits and `_ . : -`. You may choose it.
* Values travel as JSON, as safetensors (`application/vnd.safetensors`) or as npy
  (`application/x-npy`); `Accept` and `Content-Type` decide. With `Content-Encoding: zstd` a body is a zstd
  frame; with `Accept-Encoding: zstd` an answer is one, if that is shorter by a tenth.
* Errors are problem documents (RFC 9457). `type` names the kind of error, `detail` says it in
  PyTorch's words. After an error the session is as usable as before.
* A mutation that carries `Telegrad-Sequence: N` (1, 2, 3, …) can be repeated safely: it runs once.
* Programs also travel over a WebSocket, `/v1/sessions/{session}/stream`, several at a time: docs/stream.md.
"""
TAGS = [
    {"name": "sessions", "description": "Each holds tensors, their graph and a random number generator."},
    {"name": "tensors", "description": "Values and their gradients."},
    {"name": "ops", "description": "One operation a request."},
    {"name": "functions", "description": "Operations of your own, with a derivative of your own, as data."},
    {"name": "autograd", "description": "Differentiation."},
    {"name": "programs", "description": "Many instructions a request."},
    {"name": "graph", "description": "The computation graph, to look at."},
    {"name": "profile", "description": "Where the time goes."},
    {"name": "catalogue", "description": "What the server can do."},
    {"name": "health", "description": "For whatever watches over the server."},
]
MEANINGS = {
    400: "The request cannot be parsed",
    404: "There is no such session, tensor, op, gradient or call",
    406: "It cannot be served as `Accept` asks",
    409: "It conflicts with what is there: a freed graph, a modified tensor, a taken id, a sequence number",
    413: "It is larger than the limits allow",
    415: "The body's media type, or its content coding, is not read here",
    422: "It is well-formed but wrong: a shape, a dtype, an argument",
    500: "A fault of the server's own",
    503: "The server is full or about to stop",
}


def install(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Have the app, which consists of these routers, serve this document."""

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
    found["components"]["schemas"] = dict(sorted(schemas.items()))
    found["components"]["responses"] = {f"Problem{status}": _problem(status) for status in MEANINGS}
    return found


def _complete(operation: dict[str, Any], route: Route) -> None:
    """Add how the operation fails, and the headers of its answer."""
    responses = operation["responses"]
    responses.pop("422", None)
    for status in sorted(_statuses(route)):
        responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    if "201" in responses:
        responses["201"]["headers"] = {
            "Location": {"description": "where the new resource is", "schema": {"type": "string"}}
        }


def _statuses(route: Route) -> set[int]:
    statuses = {406, 500}
    if route.with_body:
        statuses |= {400, 413, 415, 422}
    if route.dependant.query_params or "{session}" in route.path:
        statuses.add(422)
    if "{" in route.path:
        statuses.add(404)
    if route.sequenced:
        statuses.add(409)
    if any(parameter.name == "data" for parameter in route.dependant.query_params):
        statuses.add(413)
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
        found["headers"] = {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer"}}}
    return found


def render() -> str:
    """The document of the app as text."""
    from .app import create_app
    from .settings import Settings

    return json.dumps(create_app(Settings()).openapi(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the document, or compare it; 1 if it differs."""
    parser = argparse.ArgumentParser(prog="python -m telegrad_service.openapi", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    arguments = parser.parse_args()
    text = render()
    if not arguments.check:
        arguments.file.parent.mkdir(parents=True, exist_ok=True)
        arguments.file.write_text(text, encoding="utf-8")
        return 0
    if arguments.file.exists() and arguments.file.read_text(encoding="utf-8") == text:
        return 0
    print(f"{arguments.file} is not what the app says; run `make openapi`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
