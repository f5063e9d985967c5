"""``POST /v1/sessions/{session}/programs``, the endpoint that a training step uses.

For speed, the body is parsed without pydantic, on the session's thread: the schemas are for the documentation only.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from fastapi import Request as HTTPRequest
from pydantic import Discriminator, Field, JsonValue, Tag
from starlette.routing import WebSocketRoute
from typing_extensions import TypeAliasType

from telegrad_engine.optim.algorithms import OPTIMIZERS
from telegrad_engine.program import VERBS

from ..hosting.commands import run_encoded
from ..http.representations import JSON, SAFETENSORS
from ..routing.route import Route, route_options
from ..routing.schemas import BINARY, SESSION_ID, Answer, Input, Request, Tensor, TensorId
from ..tenants.principal import principal_of
from .autograd import StoppedProgram
from .stream import PATH, stream

router = APIRouter(prefix="/v1/sessions/{session}", tags=["programs"], route_class=Route)
router.routes.append(WebSocketRoute(PATH, stream))
NAMES: list[JsonValue] = [*sorted(VERBS)]
"""The names of the verbs."""


class _Instruction(Request):
    inputs: list[Input] = Field(
        default=[],
        description="Tensor ids, numbers, booleans, nulls, and lists of these, at most two deep. Deprecated: `in`.",
    )
    outputs: list[TensorId] = Field(
        default=[], description="Ids for its outputs, chosen by the client. Deprecated: `out`."
    )
    attrs: dict[str, Any] | None = Field(default=None, description="Attributes by name.")
    grad_mode: Literal["enable_grad", "no_grad"] | None = Field(default=None, description="Whether it is recorded.")


class OpInstruction(_Instruction):
    """An op, its inputs, attributes, and the ids that its outputs get."""

    op: str = Field(
        description="An op of `GET /v1/ops`: its name, an alias or a key; a trailing _ is its in-place form.",
        examples=["mul"],
        json_schema_extra={"not": {"enum": [*NAMES]}},
    )


class VerbInstruction(_Instruction):
    """A verb: what a program does besides computing, such as `backward` or `fetch`."""

    op: str = Field(
        description="The verb; `GET /v1/ops/{op}` describes its inputs and attributes.",
        examples=["fetch"],
        json_schema_extra={"enum": [name for name in NAMES if name != "optim_step"]},
    )


def _algorithms() -> str:
    """The algorithms of optimizers, with their settings and states."""
    lines = ["Its settings, with their defaults; those that are absent have them."]
    for each in OPTIMIZERS.values():
        settings = ", ".join(f"{name} {json.dumps(default)}" for name, default in each.defaults.items())
        states = ", ".join([*each.states, *(f"{name} (with {setting})" for name, setting in each.optional.items())])
        lines.append(f"* {each.name}: {settings}. States: {states or 'none'}.")
    return "\n".join(lines)


class OptimStepAttrs(Request):
    """The attributes of `optim_step`."""

    algorithm: str = Field(examples=["sgd"], json_schema_extra={"enum": [*OPTIMIZERS]})
    settings: dict[str, Any] = Field(default={}, description=_algorithms())
    scheduled: list[str] = Field(default=[], description="The settings that are in the tensor `numbers` instead.")


class OptimStepInstruction(_Instruction):
    """A step of an optimizer; the inputs are a list of parameters, and for each of its states a list of tensors."""

    op: Literal["optim_step"]
    attrs: OptimStepAttrs  # type: ignore[assignment]


def _kind(instruction: Any) -> str:
    name = instruction.get("op") if isinstance(instruction, dict) else None
    return "optim_step" if name == "optim_step" else "verb" if name in VERBS else "op"


Instruction = TypeAliasType(
    "Instruction",
    Annotated[
        Annotated[OpInstruction, Tag("op")]
        | Annotated[VerbInstruction, Tag("verb")]
        | Annotated[OptimStepInstruction, Tag("optim_step")],
        Discriminator(_kind),
        Field(description="One step of a program: an op or a verb."),
    ],
)


class Program(Request):
    """Instructions in the order in which they run."""

    instructions: list[Instruction] = Field(description="In the order in which they run.")
    rollback: bool = Field(
        default=False,
        description="Whether a program that fails is undone: then the session is as it was before. "
        "While the program runs, the session's memory counts twice.",
    )


class ProgramResult(Answer):
    """The values that the program fetched."""

    values: dict[str, Tensor] = Field(description="The fetched tensors, by id.")
    pending: StoppedProgram | None = Field(
        description="What the client must evaluate first; null if the whole program ran.", examples=[None]
    )


OBSERVED_HEADER = "Telegrad-Observed"
"""The header of answers while somebody observes the session: the client may send lines and modules then."""
EXAMPLE = {
    "instructions": [
        {"op": "tensor", "outputs": ["x"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
        {"op": "mul", "inputs": ["x", "x"], "outputs": ["y"]},
        {"op": "sum", "inputs": ["y"], "outputs": ["loss"]},
        {"op": "backward", "inputs": [["loss"]]},
        {"op": "grad_of", "inputs": ["x"], "outputs": ["g"]},
        {"op": "fetch", "inputs": [["loss", "g"]]},
    ]
}

RUN_PROGRAM: dict[str, Any] = {
    "parameters": [
        {"name": "session", "in": "path", "required": True, "description": SESSION_ID, "schema": {"type": "string"}}
    ],
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": {"$ref": "#/components/schemas/Program"}, "example": EXAMPLE},
            SAFETENSORS: BINARY,
        },
    },
}


@router.post(
    "/programs",
    summary="Run a program",
    response_model=ProgramResult,
    responses={200: {"description": "The fetched values.", "content": {SAFETENSORS: BINARY}}},
    openapi_extra=RUN_PROGRAM,
)
@route_options(reads=(JSON, SAFETENSORS), writes=(JSON, SAFETENSORS), raw=True, echo=True)
async def run_program(request: HTTPRequest) -> Response:
    """Instructions run in order; the response has the values that they fetch.

    If an instruction fails, the effects of those before it stay, those after it do not run, and the problem document
    has its index, and in `progress` what has run. With `rollback`, nothing stays.

    If `pending` is not null, the client must evaluate a function or hook first, and the instructions after it did not
    run.

    As safetensors, the program is JSON in the metadata's `program`, and uploads are the container's tensors; the
    response is in the metadata's `answer`, and fetched values are the container's tensors. Without `Accept`, the
    response has the program's media type.
    """
    scope = request.scope
    state = scope["app"].state
    handle = state.host.find(principal_of(scope), scope["path_params"]["session"])
    accept = scope["telegrad.accept"]
    settings = state.settings
    most = settings.max_body_bytes
    if scope["telegrad.content_type"] == JSON:
        most = min(most, settings.max_json_bytes)
    content = await handle.call(
        run_encoded,
        scope["telegrad.body"],
        scope["telegrad.content_type"],
        accept,
        settings.max_json_depth,
        settings.max_json_elements,
        most if scope.get("telegrad.coded") else None,  # a zstd frame is decompressed there
    )
    observed = {OBSERVED_HEADER: "true"} if handle.feed.observes else None
    return Response(content, headers=observed, media_type=accept)
