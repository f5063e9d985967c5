"""``/v1/sessions/{session}/functions``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from ..http.media import JSON
from ..routing.dependencies import CurrentSession, ServerSettings, WithData
from ..routing.pages import Paged
from ..routing.route import Route, needs
from . import service
from .schemas import (
    APPLY_EXAMPLES,
    REGISTER_EXAMPLES,
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


@router.post(
    "", status_code=201, operation_id="register_function", summary="Register a function", response_model=FunctionEntry
)
@needs("functions")
async def register_function(
    handle: CurrentSession, body: Annotated[FunctionCreate, Body(openapi_examples=REGISTER_EXAMPLES)]
) -> Response:
    """A function is data: a forward program, optionally a backward program, and typed parameters.

    An invalid definition is a 422; its `where` names the instruction and the program.
    """
    given = {name: getattr(body, name) for name in body.model_fields_set}
    definition = {name: value for name, value in given.items() if name not in HOW}
    attrs = {name: given[name] for name in HOW & given.keys()}
    entry = await handle.call(service.register, definition, attrs)
    location = f"/v1/sessions/{handle.id}/functions/{body.name}"
    return Response(service.as_json(entry), 201, {"location": location}, media_type=JSON)


@router.get("", operation_id="list_functions", summary="List the functions")
async def list_functions(handle: CurrentSession, page: Paged) -> FunctionPage:
    """The functions of the session and of the server, ordered by name, without their definitions."""
    return service.as_page(*await handle.call(service.page, page))


@router.get("/{name}", operation_id="get_function", summary="Read a function", response_model=FunctionEntry)
async def get_function(handle: CurrentSession, name: Name) -> Response:
    """The function's signature, and its definition as it was registered."""
    return Response(service.as_json(await handle.call(service.describe, name)), media_type=JSON)


@router.delete("/{name}", status_code=204, operation_id="delete_function", summary="Delete a function")
@needs("functions")
async def delete_function(
    handle: CurrentSession,
    name: Name,
    scope: Annotated[FunctionScope, Query(description="Where it is registered.")] = "session",
) -> None:
    """The name is free again. Graphs and other functions that use the function keep it."""
    await handle.call(service.remove, name, scope)


@router.post("/{name}/apply", operation_id="apply_function", summary="Apply a function", response_model=FunctionResult)
async def apply_function(
    handle: CurrentSession,
    settings: ServerSettings,
    name: Name,
    body: Annotated[FunctionArguments, Body(openapi_examples=APPLY_EXAMPLES)],
    data: WithData = False,
) -> Response:
    """The call is recorded as one node if an input requires grad; without a backward program, op by op."""
    answer = await handle.call(
        service.apply, name, body.inputs, body.attrs, body.outputs, data, settings.max_json_elements
    )
    return Response(answer, media_type=JSON)
