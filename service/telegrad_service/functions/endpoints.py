"""``/v1/sessions/{session}/functions``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from telegrad_engine.program import json_codec

from ..http.media import JSON
from ..routing.dependencies import CurrentSession, ServerSettings, WithData
from ..routing.pages import Paged
from ..routing.route import Route, route_options
from . import service
from .schemas import (
    FunctionArguments,
    FunctionCreate,
    FunctionEntry,
    FunctionPage,
    FunctionResult,
    FunctionScope,
)

router = APIRouter(prefix="/v1/sessions/{session}/functions", tags=["functions"], route_class=Route)
Name = Annotated[str, Path(description="The function's name.", examples=["my_power"])]
HOW = {"scope", "verify", "shapes"}


@router.post("", status_code=201, summary="Register a function", response_model=FunctionEntry)
@route_options(scope="functions")
async def register_function(handle: CurrentSession, body: FunctionCreate) -> Response:
    """A function is data: a forward program, optionally a backward program, and typed parameters.

    An invalid definition is a 422; its `where` names the instruction and the program.
    """
    given = {name: getattr(body, name) for name in body.model_fields_set}
    definition = {name: value for name, value in given.items() if name not in HOW}
    attrs = {name: given[name] for name in HOW & given.keys()}
    entry = await handle.call(service.register, definition, attrs)
    location = f"/v1/sessions/{handle.id}/functions/{body.name}"
    return Response(json_codec.dumps(entry), 201, {"location": location}, media_type=JSON)


@router.get("", summary="List the functions")
async def list_functions(handle: CurrentSession, page: Paged) -> FunctionPage:
    """The functions of the session and of the server, ordered by name, without their definitions."""
    return await handle.call(service.page, page)


@router.get("/{name}", summary="Read a function", response_model=FunctionEntry)
async def get_function(handle: CurrentSession, name: Name) -> Response:
    """The function's signature, and its definition as it was registered."""
    return Response(json_codec.dumps(await handle.call(service.describe, name)), media_type=JSON)


@router.delete("/{name}", status_code=204, summary="Delete a function")
@route_options(scope="functions")
async def delete_function(
    handle: CurrentSession,
    name: Name,
    scope: Annotated[FunctionScope, Query(description="Where it is registered.")] = "session",
) -> None:
    """The name is free again. Graphs and other functions that use the function keep it."""
    await handle.call(service.remove, name, scope)


@router.post("/{name}/apply", summary="Apply a function", response_model=FunctionResult)
async def apply_function(
    handle: CurrentSession,
    settings: ServerSettings,
    name: Name,
    body: FunctionArguments,
    data: WithData = False,
) -> Response:
    """The call is recorded as one node if an input requires grad; without a backward program, op by op."""
    answer = await handle.call(
        service.apply, name, body.inputs, body.attrs, body.outputs, data, settings.max_json_elements
    )
    return Response(answer, media_type=JSON)
