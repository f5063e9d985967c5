"""The AsyncAPI document of the stream; ``telegrad openapi`` writes it beside the OpenAPI document.

The schemas of its messages and the close codes come from the code of the stream: ``programs/messages.py`` and
``programs/stream.py``. The rest is in ``asyncapi_skeleton.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from telegrad_engine.program.compression import ENCODING
from telegrad_engine.program.frames import QUOTA_USED_UP, TAKEN_OVER
from telegrad_engine.program.wire import TEXT

from .hosting.sequence import SENDER_PATTERN
from .hosting.session_handle import ENDED, GOING_AWAY
from .http import json_schema
from .http.media import JSON
from .programs import messages, stream
from .programs.schemas import Program

REF = "#/components/schemas/{model}"
SKELETON = Path(__file__).with_name("asyncapi_skeleton.json").read_text(encoding="utf-8")
"""The document without what code declares elsewhere."""
CLOSE_CODES = {
    GOING_AWAY: "The server is about to stop. Programs that ran were answered. Reconnect, to this server or another.",
    stream.UNSUPPORTED: "A text message: programs are binary.",
    stream.TOO_LONG: "A message is longer than `max_bytes`, before or after decompression.",
    stream.OWN_FAULT: "An internal server error. Reconnect.",
    ENDED: "The session was ended, or was idle for longer than its `ttl_s`. Create a new session.",
    stream.REVOKED: "The API key was revoked or has expired.",
    TAKEN_OVER: "The same sender has connected again: this is the old connection.",
    QUOTA_USED_UP: "The tenant has no memory left for a message. Free tensors, or end sessions.",
}
"""What a stream's close codes mean, beside those with which WebSocket itself refuses a message."""


def install(app: FastAPI) -> None:
    """Make the app serve this document."""

    async def serve(request: Request) -> Response:
        return Response(render(app), media_type=JSON)

    app.router.routes.append(Route("/asyncapi.json", serve))


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document."""
    models = (messages.Greeting, messages.StreamProblem, messages.AnswerMetadata, messages.StreamResult)
    _, defined = models_json_schema(
        [
            *((model, "serialization") for model in models),
            *((model, "validation") for model in (messages.Metadata, messages.Call, Program)),
        ],
        ref_template=REF,
    )
    schemas = json_schema.simplified_document({"schemas": defined["$defs"]})["schemas"]
    _describe_metadata(schemas["Metadata"])
    found: dict[str, Any] = json.loads(SKELETON)
    found["info"]["version"] = app.version
    found["components"]["schemas"] = dict(sorted(schemas.items()))
    channel = found["channels"]["stream"]
    channel["address"] = stream.PATH
    channel["x-close-codes"] = [{"code": code, "description": text} for code, text in sorted(CLOSE_CODES.items())]
    query = channel["bindings"]["ws"]["query"]["properties"]
    query["sender"]["pattern"], query["compress"]["enum"] = SENDER_PATTERN, [ENCODING]
    return found


def _describe_metadata(schema: dict[str, Any]) -> None:
    """Correct the schema of a program's metadata: values are strings, and a template's digest is part of its key."""
    for name, value in schema["properties"].items():
        schema["properties"][name] = {k: v for k, v in json_schema.without_null(value).items() if k != "default"}
    key = f"^{TEXT.replace('.', '[.]')}[0-9a-f]{{64}}$"
    schema["patternProperties"] = {key: {"type": "string", "description": "The text of a template."}}
    schema["additionalProperties"] = {"type": "string"}


def render(app: FastAPI) -> str:
    """The document of an app as text."""
    return json.dumps(document(app), indent=2, ensure_ascii=False) + "\n"
