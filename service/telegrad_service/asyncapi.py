"""The AsyncAPI document of the stream; ``telegrad openapi`` writes it beside the OpenAPI document.

Its messages and close codes come from the code of the stream: ``programs/messages.py`` and ``programs/stream.py``.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from telegrad_engine.program.compression import ENCODING
from telegrad_engine.program.frames import CLIENT_HEADER, QUOTA_USED_UP, TAKEN_OVER
from telegrad_engine.program.wire import SAFETENSORS, TEXT

from . import problems
from .hosting.sequence import SENDER_PATTERN
from .hosting.session_handle import ENDED, GOING_AWAY
from .http import json_schema
from .http.media import JSON
from .programs import messages, stream
from .programs.schemas import Program
from .routing.schemas import SESSION_ID

REF = "#/components/schemas/{model}"
CHANNEL = {"$ref": "#/channels/stream"}
LICENSE = {"name": "Apache License 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}
DESCRIPTION = """\
A client sends numbered programs over a WebSocket, several at a time, and gets one answer to each, in order. A program
that is sent again with the same number is answered from the record. docs/stream.md explains how to number programs, how
to continue after a broken connection, and how templates are called.

A message of the client, and an answer, is a safetensors container. `headers` describes its metadata, whose values are
strings; `payload` is the container.
"""
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
PROGRAM = {"instructions": [{"op": "fetch", "inputs": [["x"]]}]}
RESULT = {
    "values": {
        "x": {
            "id": "x",
            "shape": [2],
            "dtype": "float32",
            "device": "cpu",
            "requires_grad": False,
            "is_leaf": True,
            "grad_fn": None,
            "version": 0,
        }
    }
}


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
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": f"{app.title} stream",
            "version": app.version,
            "description": DESCRIPTION,
            "license": LICENSE,
        },
        "defaultContentType": SAFETENSORS,
        "servers": {
            "local": {
                "host": "127.0.0.1:8000",
                "protocol": "ws",
                "description": "`telegrad serve` on this machine; behind TLS, the protocol is wss.",
            }
        },
        "channels": {"stream": _channel()},
        "operations": {
            "greet": {
                "action": "send",
                "channel": CHANNEL,
                "summary": "The server greets a client that connects.",
                "messages": [_of_channel("greeting")],
            },
            "run": {
                "action": "receive",
                "channel": CHANNEL,
                "summary": "The server runs a program, and answers it with an answer or a problem.",
                "messages": [_of_channel("program")],
                "reply": {"channel": CHANNEL, "messages": [_of_channel("answer"), _of_channel("problem")]},
            },
        },
        "components": {"messages": _messages(), "schemas": dict(sorted(schemas.items()))},
    }


def _describe_metadata(schema: dict[str, Any]) -> None:
    """Correct the schema of a program's metadata: values are strings, and a template's digest is part of its key."""
    for name, value in schema["properties"].items():
        schema["properties"][name] = {k: v for k, v in json_schema.without_null(value).items() if k != "default"}
    key = f"^{TEXT.replace('.', '[.]')}[0-9a-f]{{64}}$"
    schema["patternProperties"] = {key: {"type": "string", "description": "The text of a template."}}
    schema["additionalProperties"] = {"type": "string"}


def _channel() -> dict[str, Any]:
    return {
        "address": stream.PATH,
        "title": "The stream of a session",
        "parameters": {"session": {"description": SESSION_ID}},
        "messages": {
            name: {"$ref": f"#/components/messages/{name}"} for name in ("greeting", "program", "answer", "problem")
        },
        "bindings": {"ws": {"method": "GET", "query": _query(), "headers": _headers(), "bindingVersion": "0.1.0"}},
        "x-close-codes": [{"code": code, "description": text} for code, text in sorted(CLOSE_CODES.items())],
    }


def _query() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "sender": {
                "type": "string",
                "pattern": SENDER_PATTERN,
                "description": "The sender whose numbers these are. A sender has at most one stream.",
            },
            "compress": {"enum": [ENCODING], "description": "Long answers are zstd frames around their container."},
        },
    }


def _headers() -> dict[str, Any]:
    text = "The client's own address and port of the connection, if it is on the server's machine."
    return {"type": "object", "properties": {CLIENT_HEADER: {"type": "string", "description": text}}}


def _messages() -> dict[str, Any]:
    answer = {"sequence": "42", "answer": json.dumps(RESULT)}
    metadata = {"sequence": "42", "seen": "41", "program": json.dumps(PROGRAM)}
    return {
        "greeting": _message("The first message", JSON, _ref("Greeting")),
        "program": _container("A program", "Metadata", metadata),
        "answer": _container("The answer to a program that ran", "AnswerMetadata", answer),
        "problem": _message("The answer to a program that failed", problems.MEDIA_TYPE, _ref("StreamProblem")),
    }


def _message(title: str, media_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"title": title, "contentType": media_type, "payload": payload}


def _container(title: str, metadata: str, example: dict[str, str]) -> dict[str, Any]:
    return {
        **_message(title, SAFETENSORS, {"type": "string", "format": "binary"}),
        "headers": _ref(metadata),
        "examples": [{"name": "metadata", "summary": "The metadata of the container.", "headers": example}],
    }


def _ref(model: str) -> dict[str, Any]:
    return {"$ref": REF.format(model=model)}


def _of_channel(message: str) -> dict[str, Any]:
    return {"$ref": f"#/channels/stream/messages/{message}"}


def render(app: FastAPI) -> str:
    """The document of an app as text."""
    return json.dumps(document(app), indent=2, ensure_ascii=False) + "\n"
