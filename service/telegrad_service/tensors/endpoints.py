"""``/v1/sessions/{session}/tensors``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response

from telegrad_engine.errors import InvalidArgument
from telegrad_engine.program import Instruction

from ..hosting import work
from ..http.conditional import ETAG, IF_MATCH, IF_NONE_MATCH, not_modified
from ..http.media import JSON, NPY, SAFETENSORS
from ..routing.dependencies import Accepted, CurrentSession, RawBody, ServerSettings, WithData
from ..routing.pages import Paged
from ..routing.route import Route, route_options
from ..routing.schemas import DType, Tensor
from . import service
from .schemas import (
    BINARY_CONTENT,
    CREATE_TENSOR,
    TensorCreate,
    TensorPage,
    TensorUpdate,
)

router = APIRouter(prefix="/v1/sessions/{session}/tensors", tags=["tensors"], route_class=Route)
Id = Annotated[str, Path(description="The tensor's id.", examples=["x"])]
BINARY_ANSWER: dict[int | str, Any] = {
    200: {"description": "The tensor. The binary media types always have its value.", "content": BINARY_CONTENT}
}
VALUES = (JSON, SAFETENSORS, NPY)


def _value(answer: work.TaggedTensor, media_type: str) -> Response:
    """The response with a value, or 304 if the client has it."""
    tag, content = answer
    if content is None:
        return not_modified(tag or "*")
    return Response(content, headers={} if tag is None else {ETAG: tag}, media_type=media_type)


@router.post("", status_code=201, summary="Create a tensor", response_model=Tensor, openapi_extra=CREATE_TENSOR)
@route_options(reads=VALUES)
async def create_tensor(
    handle: CurrentSession,
    settings: ServerSettings,
    raw: RawBody,
    body: Annotated[TensorCreate | None, Body()] = None,
    data: WithData = False,
    id: Annotated[str | None, Query(description="With a binary body: the tensor's id.")] = None,
    dtype: Annotated[DType | None, Query(description="With a binary body: the dtype to convert to.")] = None,
    requires_grad: Annotated[
        bool | None, Query(description="With a binary body: whether operations on it are recorded.")
    ] = None,
) -> Response:
    """The body is nested lists, or a factory (an op such as zeros or randn), or an array in a binary format."""
    content, media_type = raw
    if media_type == JSON:
        if body is None or (id, dtype, requires_grad) != (None, None, None):
            raise InvalidArgument("with JSON, id, dtype and requires_grad stand in the body, beside data or factory")
        program = service.creation(body)
    else:
        program = service.upload(content, media_type, id, dtype, bool(requires_grad))
    name, answer = await handle.call(work.create_tensor, program, data, settings.max_json_elements)
    location = f"/v1/sessions/{handle.id}/tensors/{name}"
    return Response(answer, 201, {"location": location}, media_type=JSON)


@router.get("", summary="List the tensors")
async def list_tensors(
    handle: CurrentSession,
    page: Paged,
    prefix: Annotated[str | None, Query(description="Only those whose id starts with this.")] = None,
) -> TensorPage:
    """Descriptions without values, ordered by id."""
    return await handle.call(service.page, page, prefix)


@router.get("/{id}", summary="Read a tensor", response_model=Tensor, responses=BINARY_ANSWER)
@route_options(writes=VALUES, tagged="endpoint")
async def get_tensor(
    request: Request, handle: CurrentSession, settings: ServerSettings, accept: Accepted, id: Id, data: WithData = True
) -> Response:
    """The tensor's description and value as JSON, or its value as safetensors or npy if `Accept` asks for that."""
    known = request.headers.get(IF_NONE_MATCH)
    return _value(await handle.call(work.fetch_encoded, id, data, accept, settings.max_json_elements, known), accept)


@router.patch("/{id}", summary="Change a tensor", response_model=Tensor)
@route_options(guarded=True)
async def update_tensor(
    request: Request,
    handle: CurrentSession,
    settings: ServerSettings,
    id: Id,
    body: TensorUpdate,
) -> Response:
    """New values are written in place, without a record in the graph; shape and dtype stay as they are."""
    match = request.headers.get(IF_MATCH)
    answer, tag = await handle.call(service.change, id, body, settings.max_json_elements, match)
    return Response(answer, headers={} if tag is None else {ETAG: tag}, media_type=JSON)


@router.delete("/{id}", status_code=204, summary="Delete a tensor")
@route_options(guarded=True)
async def delete_tensor(request: Request, handle: CurrentSession, id: Id) -> None:
    """The id is free again. The graph keeps the values that it needs."""
    await handle.call(work.delete_tensor, id, request.headers.get(IF_MATCH))


@router.get("/{id}/grad", summary="Read a tensor's gradient", response_model=Tensor, responses=BINARY_ANSWER)
@route_options(writes=VALUES, tagged="endpoint")
async def get_grad(
    request: Request, handle: CurrentSession, settings: ServerSettings, accept: Accepted, id: Id, data: WithData = True
) -> Response:
    """The gradient that `backward` accumulated; 404 if there is none. Its id in the response is `{id}.grad`."""
    known = request.headers.get(IF_NONE_MATCH)
    return _value(await handle.call(service.fetch_grad, id, data, accept, settings.max_json_elements, known), accept)


@router.delete("/{id}/grad", status_code=204, summary="Clear a tensor's gradient")
async def delete_grad(handle: CurrentSession, id: Id) -> None:
    """The request also succeeds if there is no gradient."""
    await handle.call(work.run, [Instruction("set_grad", [id])])
