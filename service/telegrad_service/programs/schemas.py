"""Schemas of programs, for the documentation only: the engine decodes the requests."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ..autograd.schemas import StoppedProgram
from ..http.media import JSON, SAFETENSORS
from ..routing.schemas import SESSION_ID, Answer, Input, Request, Tensor, TensorId


class Instruction(Request):
    """One step: an op or verb, its inputs, attributes, and the ids that its outputs get."""

    op: str = Field(description="An op or verb of `GET /v1/ops`.")
    inputs: list[Input] = Field(
        default=[], alias="in", description="Tensor ids, numbers, booleans, nulls, and lists of these."
    )
    outputs: list[TensorId] = Field(default=[], alias="out", description="Ids for its outputs, chosen by the client.")
    attrs: dict[str, Any] = Field(default={}, description="Attributes by name.")
    grad_mode: Literal["enable_grad", "no_grad"] | None = Field(default=None, description="Whether it is recorded.")


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
