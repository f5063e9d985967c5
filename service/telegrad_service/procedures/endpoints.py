"""``/v1/sessions/{session}/procedures``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from telegrad_engine.program.instructions import parse_inputs

from ..http.media import JSON
from ..routing.dependencies import CurrentSession, ServerSettings, WithData
from ..routing.pages import Paged
from ..routing.route import Route
from . import service
from .schemas import (
    ProcedureArguments,
    ProcedureCreate,
    ProcedureEntry,
    ProcedurePage,
    ProcedureResult,
)

router = APIRouter(prefix="/v1/sessions/{session}/procedures", tags=["procedures"], route_class=Route)
Name = Annotated[str, Path(description="The procedure's name.", examples=["step"])]


@router.post("", status_code=201, summary="Define a procedure", response_model=ProcedureEntry)
async def define_procedure(handle: CurrentSession, body: ProcedureCreate) -> Response:
    """The session stores the program under the name. The problem of an invalid one has `step`, the wrong instruction.

    A name is free again after `DELETE`; until then, a second definition is a 409.
    """
    answer = await handle.call(service.define, body.name, body.program)
    location = f"/v1/sessions/{handle.id}/procedures/{body.name}"
    return Response(answer, 201, {"location": location}, media_type=JSON)


@router.get("", summary="List the procedures")
async def list_procedures(handle: CurrentSession, page: Paged) -> ProcedurePage:
    """The procedures of the session, ordered by name, without their instructions."""
    return await handle.call(service.page, page)


@router.get("/{name}", summary="Read a procedure", response_model=ProcedureEntry)
async def get_procedure(handle: CurrentSession, name: Name) -> Response:
    """The procedure, with its program as it was defined."""
    return Response(await handle.call(service.describe, name), media_type=JSON)


@router.delete("/{name}", status_code=204, summary="Delete a procedure")
async def delete_procedure(handle: CurrentSession, name: Name) -> None:
    """The name is free again."""
    await handle.call(service.undefine, name)


@router.post("/{name}/apply", summary="Run a procedure", response_model=ProcedureResult)
async def apply_procedure(
    handle: CurrentSession,
    settings: ServerSettings,
    name: Name,
    body: ProcedureArguments,
    data: WithData = False,
) -> Response:
    """A program of one instruction, `call`. The problem of an instruction that fails has `procedure` and `step`."""
    inputs = parse_inputs(body.inputs)
    answer = await handle.call(service.apply, name, inputs, body.outputs, data, settings.max_json_elements)
    return Response(answer, media_type=JSON)
