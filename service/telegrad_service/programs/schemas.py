"""Schemas of programs, for the documentation only: the engine decodes the requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag
from typing_extensions import TypeAliasType

from telegrad_engine.program import VERBS

from ..autograd.schemas import StoppedProgram
from ..http.media import JSON, SAFETENSORS
from ..routing.schemas import SESSION_ID, Answer, Input, Request, Tensor, TensorId

NAMES: list[JsonValue] = [*sorted(VERBS)]
"""The names of the verbs."""


class _Instruction(Request):
    inputs: list[Input] = Field(
        default=[],
        alias="in",
        description="Tensor ids, numbers, booleans, nulls, and lists of these, at most two deep.",
    )
    outputs: list[TensorId] = Field(default=[], alias="out", description="Ids for its outputs, chosen by the client.")
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
        json_schema_extra={"enum": [*NAMES]},
    )


def _kind(instruction: Any) -> str:
    return "verb" if isinstance(instruction, dict) and instruction.get("op") in VERBS else "op"


Instruction = TypeAliasType(
    "Instruction",
    Annotated[
        Annotated[OpInstruction, Tag("op")] | Annotated[VerbInstruction, Tag("verb")],
        Discriminator(_kind),
        Field(description="One step of a program: an op or a verb."),
    ],
)


class Program(Request):
    """Instructions in the order in which they run."""

    instructions: list[Instruction] = Field(description="In the order in which they run.")


class ProgramResult(Answer):
    """The values that the program fetched."""

    values: dict[str, Tensor] = Field(description="The fetched tensors, by id.")
    pending: StoppedProgram | None = Field(
        description="What the client must evaluate first; null if the whole program ran.", examples=[None]
    )


EXAMPLE = {
    "instructions": [
        {"op": "tensor", "out": ["x"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
        {"op": "mul", "in": ["x", "x"], "out": ["y"]},
        {"op": "sum", "in": ["y"], "out": ["loss"]},
        {"op": "backward", "in": [["loss"]]},
        {"op": "grad_of", "in": ["x"], "out": ["g"]},
        {"op": "fetch", "in": [["loss", "g"]]},
    ]
}

CONTAINER: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
RUN_PROGRAM: dict[str, Any] = {
    "parameters": [
        {
            "name": "session",
            "in": "path",
            "required": True,
            "description": SESSION_ID,
            "schema": {"type": "string"},
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": {"$ref": "#/components/schemas/Program"}, "example": EXAMPLE},
            SAFETENSORS: CONTAINER,
        },
    },
}
