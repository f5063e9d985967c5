"""``/v1/sessions/{session}/procedures``: programs that a session stores under names, and runs on other tensors.

The engine checks the contents of a definition, and its errors name the wrong instruction; the models here only document
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field

from telegrad_engine.program import Instruction as ProgramInstruction
from telegrad_engine.program import json_codec
from telegrad_engine.program.instructions import parse_inputs
from telegrad_engine.session.session import Session

from ..hosting import work
from ..hosting.commands import command, query
from ..http.media import JSON
from ..routing.dependencies import CurrentSession, InSession, MaxElements, WithData
from ..routing.pages import Page, Paged
from ..routing.route import Route
from ..routing.schemas import INPUTS, Answer, Input, OutputIds, Request, Tensor, TensorId, Unchecked
from .autograd import bound
from .programs import Instruction

router = APIRouter(prefix="/v1/sessions/{session}/procedures", tags=["procedures"], route_class=Route)
Name = Annotated[str, Path(description="The procedure's name.", examples=["step"])]


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
    outputs: OutputIds = None


class ProcedureResult(Answer):
    """The procedure's outputs."""

    outputs: list[Tensor | None] = Field(description="In the procedure's order; null for a gradient that is absent.")


@router.post("", status_code=201, summary="Define a procedure", response_model=ProcedureEntry)
async def define_procedure(handle: CurrentSession, body: ProcedureCreate) -> Response:
    """The session stores the program under the name. The problem of an invalid one has `step`, the wrong instruction.

    A name is free again after `DELETE`; until then, a second definition is a 409.
    """
    answer = await handle.call(_define, body.name, body.program)
    location = f"/v1/sessions/{handle.id}/procedures/{body.name}"
    return Response(answer, 201, {"location": location}, media_type=JSON)


@command("define_procedure")
def _define(session: Session, name: str, program: Any) -> bytes:
    session.run([ProgramInstruction("define", attrs={"name": name, "program": program})])
    return get_procedure(session, name)


@router.get("", summary="List the procedures")
@query
def list_procedures(session: InSession, page: Paged) -> ProcedurePage:
    """The procedures of the session, ordered by name, without their instructions."""
    found, following = page.of("procedures", sorted(session.procedures), str)
    return ProcedurePage(items=[Procedure(**_entry(session, name)) for name in found], next_cursor=following)


def _entry(session: Session, name: str) -> dict[str, Any]:
    """The members of :class:`Procedure`. Raises UnknownResource."""
    found = session.procedures.find(name)
    instructions = len(found.definition["instructions"])
    return {"name": name, "inputs": found.inputs, "outputs": found.outputs, "instructions": instructions}


@router.get("/{name}", summary="Read a procedure", response_model=ProcedureEntry)
@query
def get_procedure(session: InSession, name: Name) -> bytes:
    """The procedure, with its program as it was defined."""
    return json_codec.dumps({**_entry(session, name), "program": session.procedures.find(name).definition})


@router.delete("/{name}", status_code=204, summary="Delete a procedure")
@command("undefine_procedure")
def delete_procedure(session: InSession, name: Name) -> None:
    """The name is free again."""
    session.run([ProgramInstruction("undefine", attrs={"name": name})])


@router.post("/{name}/apply", summary="Run a procedure", response_model=ProcedureResult)
async def apply_procedure(
    handle: CurrentSession, max_elements: MaxElements, name: Name, body: ProcedureArguments, data: WithData = False
) -> bytes:
    """A program of one instruction, `call`. The problem of an instruction that fails has `procedure` and `step`."""
    return await handle.call(_apply, name, parse_inputs(body.inputs), body.outputs, data, max_elements)


@command("apply_procedure")
def _apply(
    session: Session,
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[str] | None,
    with_data: bool,
    max_elements: int,
) -> bytes:
    instruction = ProgramInstruction("call", [tuple(inputs)], outputs, {"name": name})
    session.run([instruction])
    return work.outputs_json("outputs", bound(session, instruction.outputs, with_data), max_elements)
