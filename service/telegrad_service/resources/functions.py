"""``/v1/sessions/{session}/functions`` and ``…/procedures``: registered, listed, applied and removed as data.

A function is a custom operation; a procedure is a program that runs on other tensors. The engine checks the contents of
definitions, and its errors name the wrong instruction; the models of programs and instructions here only document them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field
from typing_extensions import TypeAliasType

from telegrad_engine.program import Instruction as ProgramInstruction
from telegrad_engine.program import json_codec
from telegrad_engine.program.instructions import parse_inputs
from telegrad_engine.program.registered_functions import Applicable
from telegrad_engine.session.session import Session

from ..hosting.commands import command, outputs_json, query
from ..http.representations import JSON
from ..routing.dependencies import CurrentSession, InSession, MaxElements, WithData
from ..routing.route import Route, route_options
from ..routing.schemas import INPUTS, Answer, Input, OutputIds, Page, Paged, Request, Tensor, TensorId, Unchecked, also
from .autograd import bound
from .catalogue import Parameters, parameters_of
from .programs import Instruction

router = APIRouter(prefix="/v1/sessions/{session}/functions", tags=["functions"], route_class=Route)
FunctionName = Annotated[str, Path(description="The function's name.", examples=["my_power"])]
HOW = ("scope", "verify", "shapes")
"""The members of a request that are no part of the definition."""
FunctionScope = TypeAliasType("FunctionScope", Literal["session", "server"])
Name = Annotated[str, Field(description="A letter, then letters, digits and _.", examples=["my_power"])]


class FunctionInstruction(Request):
    """One step of a function: an op, or `apply`, `cond`, `while_loop`, `scan`, `detach`, `tensor`, `index_get/set`."""

    op: str = Field(description="An op of `GET /v1/ops`; a trailing _ names its in-place form.", examples=["mul"])
    inputs: list[Any] = Field(
        default=[],
        description='Tensors of the program by name, numbers, lists of these, and expressions: {"attr": "power"} '
        '(deprecated: "param"), {"shape": ["x", 0]}, {"sub": [{"attr": "power"}, 1]}. Deprecated: `in`.',
    )
    outputs: list[str] = Field(default=[], description="Names for its outputs, each used once. Deprecated: `out`.")
    attrs: dict[str, Any] = Field(
        default={}, description="Attributes by name, which may contain expressions; for control flow, the programs."
    )


class FunctionBlock(Request):
    """A program: the names of its inputs, its instructions, and the names of its outputs."""

    inputs: list[str] = Field(default=[], examples=[["x"]], description="The names of its inputs.")
    instructions: list[FunctionInstruction] = Field(default=[], description="In the order in which they run.")
    outputs: list[str | None] = Field(
        examples=[["y"]], description="The names of its outputs; null where backward gives no gradient."
    )


class ForwardBlock(FunctionBlock):
    """The forward program; `inputs` are the tensors that the function takes."""

    saves: list[str] = Field(default=[], description="The tensors that backward receives, before the gradients.")
    non_differentiable: list[str] = Field(default=[], description="The outputs that have no gradient.")


class FunctionAttr(Request):
    """An attribute of a function: a parameter that is no tensor."""

    name: str = Field(examples=["power"])
    type: Literal["number", "int", "bool", "str", "ints", "list", "dtype"] = Field(default="number")
    default: Any = Field(default=None, description="Absent for a required attribute.")


Derivative = Annotated[FunctionBlock, Unchecked]


class Definition(Request):
    """A function as data."""

    name: Name
    doc: str = Field(default="", description="What it does, for people.")
    attrs: Annotated[list[FunctionAttr], Unchecked] = Field(
        default=[], validation_alias=also("attrs", "parameters"), description="Deprecated: `parameters`."
    )
    order: list[str] | None = Field(
        default=None, description="Inputs and attributes in the order of a call; all inputs first if absent."
    )
    forward: Annotated[ForwardBlock, Unchecked]
    backward: Derivative | None = Field(
        default=None,
        description="Takes the saved tensors and the outputs' gradients, returns the inputs' gradients. "
        "Without it, forward is recorded op by op.",
    )
    jvp: Derivative | None = Field(
        default=None, description="Takes the saved tensors and the inputs' tangents, returns the outputs' tangents."
    )
    once_differentiable: bool = Field(default=False, description="Whether the results of backward have no derivative.")


class FunctionCreate(Definition):
    """A function, and where it is registered."""

    scope: FunctionScope = Field(default="session", description="`server`: for all sessions of this server.")
    verify: bool = Field(default=False, description="Check its derivative on random inputs first.")
    shapes: list[list[int]] | None = Field(
        default=None, description="Shapes of those inputs; found by trial if absent."
    )


class FunctionEntry(Parameters):
    """A function that the session can apply."""

    name: Name
    scope: FunctionScope
    signature: str = Field(examples=["my_power(Tensor x, Number power = 2)"])
    doc: str = Field(examples=[""])
    outputs: int = Field(description="The number of its outputs.", examples=[1])
    definition: dict[str, Any] | None = Field(
        description="As it was registered; null in a list, and for the server operator's Python functions.",
        examples=[None],
    )


class FunctionPage(Page[FunctionEntry]):
    """Functions of a session and of the server, ordered by name."""


class FunctionArguments(Request):
    """Tensors, attributes, and ids for the outputs."""

    inputs: list[TensorId] = Field(description="Its tensor inputs, in order.", examples=[["x"]])
    attrs: dict[str, Any] = Field(
        default={},
        validation_alias=also("attrs", "params"),
        description="Its attributes by name. Deprecated: `params`.",
        examples=[{"power": 3}],
    )
    outputs: OutputIds = None


class FunctionResult(Answer):
    """The function's outputs."""

    outputs: list[Tensor] = Field(description="In the function's order.")


@router.post("", status_code=201, summary="Register a function", response_model=FunctionEntry)
@route_options(scope="functions")
async def register_function(handle: CurrentSession, body: FunctionCreate) -> Response:
    """A function is data: a forward program, optionally a backward program, and typed parameters.

    An invalid definition is a 422; its `where` names the instruction and the program.
    """
    definition = {name: getattr(body, name) for name in body.model_fields_set}
    attrs = {name: definition.pop(name) for name in HOW if name in definition}
    entry = await handle.call(_register_function, definition, attrs)
    location = f"/v1/sessions/{handle.id}/functions/{body.name}"
    return Response(json_codec.dumps(entry), 201, {"location": location}, media_type=JSON)


@command("register_function")
def _register_function(session: Session, definition: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    session.run([ProgramInstruction("register_function", attrs={"definition": definition, **attrs})])
    return _function_entry(session, session.functions.find(definition["name"]))


def _function_entry(session: Session, function: Applicable) -> dict[str, Any]:
    """The members of :class:`FunctionEntry`."""
    parameters = parameters_of(function.signature)
    return {
        "name": function.name,
        "scope": "session" if function.name in session.functions.own else "server",
        "signature": function.signature.signature,
        "doc": function.doc,
        "outputs": function.outputs,
        **{name: [param.model_dump() for param in params] for name, params in parameters.items()},
        "definition": function.definition,
    }


@router.get("", summary="List the functions")
@query
def list_functions(session: InSession, page: Paged) -> FunctionPage:
    """The functions of the session and of the server, ordered by name, without their definitions."""
    functions = sorted(session.functions.latest().values(), key=attrgetter("name"))
    found, following = page.of("functions", functions, attrgetter("name"))
    items = [FunctionEntry(**{**_function_entry(session, function), "definition": None}) for function in found]
    return FunctionPage(items=items, next_cursor=following)


@router.get("/{name}", summary="Read a function", response_model=FunctionEntry)
@query
def get_function(session: InSession, name: FunctionName) -> bytes:
    """The function's signature, and its definition as it was registered."""
    return json_codec.dumps(_function_entry(session, session.functions.find(name)))


@router.delete("/{name}", status_code=204, summary="Delete a function")
@route_options(scope="functions")
@command("remove_function")
def delete_function(
    session: InSession,
    name: FunctionName,
    scope: Annotated[FunctionScope, Query(description="Where it is registered.")] = "session",
) -> None:
    """The name is free again. Graphs and other functions that use the function keep it."""
    session.run([ProgramInstruction("remove_function", attrs={"name": name, "scope": scope})])


@router.post("/{name}/apply", summary="Apply a function", response_model=FunctionResult)
async def apply_function(
    handle: CurrentSession,
    max_elements: MaxElements,
    name: FunctionName,
    body: FunctionArguments,
    data: WithData = False,
) -> bytes:
    """The call is recorded as one node if an input requires grad; without a backward program, op by op."""
    return await handle.call(_apply_function, name, body.inputs, body.attrs, body.outputs, data, max_elements)


@command("apply_function")
def _apply_function(
    session: Session,
    name: str,
    inputs: Sequence[str],
    attrs: Mapping[str, Any],
    outputs: Sequence[str] | None,
    with_data: bool,
    max_elements: int,
) -> bytes:
    instruction = ProgramInstruction("apply", [tuple(inputs)], outputs, {"function": name, "attrs": attrs})
    session.run([instruction])
    return outputs_json("outputs", session.read(instruction.outputs, with_data), max_elements)


# Procedures ---------------------------------------------------------------------------------------

procedures_router = APIRouter(prefix="/v1/sessions/{session}/procedures", tags=["procedures"], route_class=Route)
ProcedureName = Annotated[str, Path(description="The procedure's name.", examples=["step"])]


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


@procedures_router.post("", status_code=201, summary="Define a procedure", response_model=ProcedureEntry)
async def define_procedure(handle: CurrentSession, body: ProcedureCreate) -> Response:
    """The session stores the program under the name. The problem of an invalid one has `step`, the wrong instruction.

    A name is free again after `DELETE`; until then, a second definition is a 409.
    """
    answer = await handle.call(_define_procedure, body.name, body.program)
    location = f"/v1/sessions/{handle.id}/procedures/{body.name}"
    return Response(answer, 201, {"location": location}, media_type=JSON)


@command("define_procedure")
def _define_procedure(session: Session, name: str, program: Any) -> bytes:
    session.run([ProgramInstruction("define", attrs={"name": name, "program": program})])
    return get_procedure(session, name)


@procedures_router.get("", summary="List the procedures")
@query
def list_procedures(session: InSession, page: Paged) -> ProcedurePage:
    """The procedures of the session, ordered by name, without their instructions."""
    found, following = page.of("procedures", sorted(session.procedures), str)
    return ProcedurePage(items=[Procedure(**_procedure_entry(session, name)) for name in found], next_cursor=following)


def _procedure_entry(session: Session, name: str) -> dict[str, Any]:
    """The members of :class:`Procedure`. Raises UnknownResource."""
    found = session.procedures.find(name)
    instructions = len(found.definition["instructions"])
    return {"name": name, "inputs": found.inputs, "outputs": found.outputs, "instructions": instructions}


@procedures_router.get("/{name}", summary="Read a procedure", response_model=ProcedureEntry)
@query
def get_procedure(session: InSession, name: ProcedureName) -> bytes:
    """The procedure, with its program as it was defined."""
    return json_codec.dumps({**_procedure_entry(session, name), "program": session.procedures.find(name).definition})


@procedures_router.delete("/{name}", status_code=204, summary="Delete a procedure")
@command("undefine_procedure")
def delete_procedure(session: InSession, name: ProcedureName) -> None:
    """The name is free again."""
    session.run([ProgramInstruction("undefine", attrs={"name": name})])


@procedures_router.post("/{name}/apply", summary="Run a procedure", response_model=ProcedureResult)
async def apply_procedure(
    handle: CurrentSession,
    max_elements: MaxElements,
    name: ProcedureName,
    body: ProcedureArguments,
    data: WithData = False,
) -> bytes:
    """A program of one instruction, `call`. The problem of an instruction that fails has `procedure` and `step`."""
    return await handle.call(_apply_procedure, name, parse_inputs(body.inputs), body.outputs, data, max_elements)


@command("apply_procedure")
def _apply_procedure(
    session: Session,
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[str] | None,
    with_data: bool,
    max_elements: int,
) -> bytes:
    instruction = ProgramInstruction("call", [tuple(inputs)], outputs, {"name": name})
    session.run([instruction])
    return outputs_json("outputs", bound(session, instruction.outputs, with_data), max_elements)
