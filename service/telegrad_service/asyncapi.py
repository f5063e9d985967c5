"""The AsyncAPI document of the stream; ``telegrad openapi`` writes it beside the OpenAPI document.

The close codes come from the code of the stream, ``resources/stream.py``. The schemas of its messages are here: they
document what the stream writes and the engine reads. The rest is in ``asyncapi_skeleton.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import Field
from pydantic.json_schema import models_json_schema
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import Route

from telegrad_engine.program.compression import ENCODING
from telegrad_engine.program.frames import QUOTA_USED_UP, TAKEN_OVER
from telegrad_engine.program.wire import MAX_CALLS, TEXT

from .hosting.sequence import SENDER_PATTERN
from .hosting.session_handle import ENDED, GOING_AWAY
from .http.representations import JSON
from .openapi import simplified_document, without_null
from .problems import Problem
from .resources import stream
from .resources.autograd import StoppedProgram
from .resources.programs import Program
from .routing.schemas import Answer, DType, Request, TensorId

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


NUMBER = r"^[0-9]{1,18}$"
"""Sequence numbers are strings in the metadata of containers."""


def _json(model: str, many: bool = False) -> dict[str, Any]:
    """The schema of a string that is JSON of a model, or of a list of it."""
    schema: dict[str, Any] = {"$ref": f"#/components/schemas/{model}"}
    return {
        "contentMediaType": "application/json",
        "x-contentSchema": {"type": "array", "items": schema} if many else schema,
    }


class Greeting(Answer):
    """The first message of the server."""

    session: str = Field(description="The session's id.", examples=["0s7vJ1mQ2nGx4yRkTz8bWc5d"])
    request_id: str = Field(description="The connection's id, as in the server's log.", examples=["5f0c7d1b9a2e4c60"])
    last: int = Field(description="The last number that was used; 0 before the first.", examples=[41])
    failed: int = Field(description="The last number whose program did not finish.", examples=[0])
    max_bytes: int = Field(description="The maximum length of a message.", examples=[2**29])
    unmasked: bool = Field(
        default=False,
        description="Whether frames may have a masking key of zero: the connection does not leave this machine.",
        examples=[True],
    )


class Call(Request):
    """A run of a template."""

    template: str = Field(description="The SHA-256 of the template's text, in hexadecimal.", examples=["9f86d081"])
    ids: list[TensorId] = Field(default=[], description="The tensors' ids, in slot order.", examples=[["x", "y"]])
    operands: list[float | str] = Field(
        default=[], description='The numbers and ids for `{"operand": 0}` and so on in the text.', examples=[[0.5]]
    )
    fetch: list[int] = Field(default=[], description="The slots to return.", examples=[[1]])
    values: bool = Field(default=True, description="Whether values are returned, or only descriptions.")
    free: list[int] = Field(default=[], description="The slots to free at the end.", examples=[[1]])


class Metadata(Request):
    """The metadata of a program's container. It has either `program`, or `calls` and the texts of new templates."""

    sequence: str = Field(pattern=NUMBER, description="The program's number: each sender counts 1, 2, 3, …")
    seen: str = Field(
        pattern=NUMBER, description="The last number whose answer the client had read when it wrote this message."
    )
    program: str | None = Field(
        default=None,
        description="A program in JSON. A `tensor` without `data` is uploaded: the container has its array.",
        json_schema_extra=_json("Program"),
    )
    calls: str | None = Field(
        default=None,
        description=f"At most {MAX_CALLS} calls of templates in JSON. The container has "
        f"uploads by the call's index, a dot and the slot. `{TEXT}` and a digest is the key of a template's text.",
        json_schema_extra=_json("Call", many=True),
    )
    free: str | None = Field(
        default=None,
        description="Ids to free after all calls, as a list in JSON.",
        json_schema_extra={"contentMediaType": "application/json"},
    )
    origins: str | None = Field(
        default=None,
        description="For templates by their digests, the module and the line of the user's code of each instruction, "
        "in JSON: a list of `[module, line]` or null. It is read while somebody observes the session, as `observed` in "
        "an answer says.",
        json_schema_extra={"contentMediaType": "application/json"},
    )


class TensorDescription(Answer):
    """A fetched tensor; its value is the container's tensor of this id."""

    id: TensorId = Field(examples=["x"])
    shape: list[int] = Field(examples=[[2]])
    dtype: DType
    device: str = Field(examples=["cpu"])
    requires_grad: bool = Field(examples=[True])
    is_leaf: bool = Field(examples=[True])
    grad_fn: str | None = Field(examples=[None])
    version: int = Field(examples=[0])


class StreamResult(Answer):
    """The values that the program fetched."""

    values: dict[str, TensorDescription] = Field(description="The fetched tensors, by id.")
    pending: StoppedProgram | None = Field(
        default=None, description="What the client must evaluate first; absent if the whole program ran."
    )


class AnswerMetadata(Answer):
    """The metadata of an answer's container, whose tensors are the fetched values."""

    sequence: str = Field(pattern=NUMBER, description="The program's number.", examples=["42"])
    answer: str = Field(
        description="The descriptions of the fetched tensors, in JSON.", json_schema_extra=_json("StreamResult")
    )
    observed: Literal["true"] | None = Field(
        default=None, description="Present while somebody observes the session: `origins` are welcome then."
    )


class StreamProblem(Problem):
    """An error (RFC 9457), and the number of the program."""

    sequence: int | None = Field(
        description="The program's number; null if the message was not a numbered container.", examples=[42]
    )


def install(app: FastAPI) -> None:
    """Make the app serve this document."""

    async def serve(request: HTTPRequest) -> Response:
        return Response(render(app), media_type=JSON)

    app.router.routes.append(Route("/asyncapi.json", serve))


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document."""
    models = (Greeting, StreamProblem, AnswerMetadata, StreamResult)
    _, defined = models_json_schema(
        [
            *((model, "serialization") for model in models),
            *((model, "validation") for model in (Metadata, Call, Program)),
        ],
        ref_template=REF,
    )
    schemas = simplified_document({"schemas": defined["$defs"]})["schemas"]
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
        schema["properties"][name] = {k: v for k, v in without_null(value).items() if k != "default"}
    key = f"^{TEXT.replace('.', '[.]')}[0-9a-f]{{64}}$"
    schema["patternProperties"] = {key: {"type": "string", "description": "The text of a template."}}
    schema["additionalProperties"] = {"type": "string"}


def render(app: FastAPI) -> str:
    """The document of an app as text."""
    return json.dumps(document(app), indent=2, ensure_ascii=False) + "\n"
