"""Schemas of procedures.

The engine checks the contents of a definition, and its errors name the wrong instruction; the models here only document
it.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ..programs.schemas import Instruction
from ..routing.pages import Page
from ..routing.schemas import INPUTS, Answer, Input, Request, Tensor, TensorId, Unchecked


class ProcedureProgram(Request):
    """The program of a procedure. Its names are local to it."""

    inputs: list[TensorId] = Field(
        description="The names of its inputs: tensors, or numbers. Deprecated: `in`.", examples=[["x", "scale"]]
    )
    instructions: list[Instruction] = Field(
        description="In the order in which they run. A setting of an `optim_step` may be the name of an input.",
        examples=[[{"op": "mul", "inputs": ["x", "scale"], "outputs": ["y"]}]],
    )
    outputs: list[TensorId] = Field(description="The names of its outputs. Deprecated: `out`.", examples=[["y"]])


class ProcedureCreate(Request):
    """A program, and its name."""

    name: TensorId = Field(examples=["scaled"])
    program: Annotated[ProcedureProgram, Unchecked]


class Procedure(Answer):
    """A procedure, without its instructions."""

    name: TensorId = Field(examples=["scaled"])
    inputs: list[TensorId] = Field(description="The names of its inputs.", examples=[["x", "scale"]])
    outputs: list[TensorId] = Field(description="The names of its outputs.", examples=[["y"]])
    instructions: int = Field(description="The number of its instructions.", examples=[1])


class ProcedureEntry(Procedure):
    """A procedure."""

    program: dict[str, Any] = Field(
        description="As it was defined.",
        examples=[
            {
                "inputs": ["x", "scale"],
                "instructions": [{"op": "mul", "inputs": ["x", "scale"], "outputs": ["y"]}],
                "outputs": ["y"],
            }
        ],
    )


class ProcedurePage(Page[Procedure]):
    """The procedures of a session, ordered by name."""


class ProcedureArguments(Request):
    """Tensors and numbers, and ids for the outputs."""

    inputs: list[Input] = Field(default=[], description=INPUTS, examples=[["x", 0.5]])
    outputs: list[TensorId] | None = Field(
        default=None, description="Ids for the outputs; the server chooses them if this is absent."
    )


class ProcedureResult(Answer):
    """The procedure's outputs."""

    outputs: list[Tensor | None] = Field(description="In the procedure's order; null for a gradient that is absent.")
