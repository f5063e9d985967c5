"""``/v1/sessions/{session}/tensors``, and ``POST /v1/sessions/{session}/ops/{op}``, which makes tensors of others."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any, Self

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import Discriminator, Field, Tag, model_validator
from typing_extensions import TypeAliasType

from telegrad_engine.errors import InvalidArgument, MalformedRequest, UnknownOp, UnknownResource
from telegrad_engine.program import VERBS, Instruction, json_codec, safetensors, wire
from telegrad_engine.program.compression import Body as Content
from telegrad_engine.program.instructions import check_id, parse_inputs
from telegrad_engine.program.overloads import find_op
from telegrad_engine.program.result import Answer as ProgramAnswer
from telegrad_engine.program.result import Value
from telegrad_engine.session.session import Session

from ..hosting import commands
from ..hosting.commands import brief, command, query, run_instructions, tensor_json, tensor_metadata
from ..http.representations import (
    ETAG,
    JSON,
    NPY,
    SAFETENSORS,
    check_match,
    decode_npy,
    encode_npy,
    entity_tag,
    matching_tag,
    not_modified,
    state_of,
)
from ..routing.dependencies import (
    Accepted,
    CurrentSession,
    DataByDefault,
    IfMatch,
    IfNoneMatch,
    InSession,
    MaxElements,
    RawBody,
    WithData,
)
from ..routing.route import Route, route_options
from ..routing.schemas import (
    BINARY,
    INPUTS,
    Answer,
    Attrs,
    Data,
    DType,
    Input,
    OutputIds,
    Page,
    Paged,
    Request,
    Tensor,
    TensorId,
)

router = APIRouter(prefix="/v1/sessions/{session}/tensors", tags=["tensors"], route_class=Route)
Id = Annotated[str, Path(description="The tensor's id.", examples=["x"])]
VALUES = (JSON, SAFETENSORS, NPY)
BINARY_CONTENT = dict.fromkeys((SAFETENSORS, NPY), BINARY)
BINARY_ANSWER: dict[int | str, Any] = {
    200: {"description": "The tensor. The binary media types always have its value.", "content": BINARY_CONTENT}
}
CREATE_TENSOR: dict[str, Any] = {"requestBody": {"required": True, "content": {JSON: {}, **BINARY_CONTENT}}}


class _NewTensor(Request):
    id: TensorId | None = Field(default=None, description="The tensor's id; the server chooses one if this is absent.")
    dtype: DType | None = Field(default=None, description="Inferred as torch does if this is absent.")
    requires_grad: bool = Field(default=False, description="Whether operations on it are recorded.")


class TensorFromData(_NewTensor):
    """A tensor from its values."""

    data: Data

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, body: dict[str, Any]) -> dict[str, Any]:
        if "shape" in body or "attrs" in body:
            raise ValueError("shape and attrs belong to a factory")
        return body


class TensorFromFactory(_NewTensor):
    """A tensor from an op that takes no tensors, such as zeros or randn."""

    factory: str = Field(description="The op: zeros, ones, full, eye, arange, randn, …")
    shape: list[int] | None = Field(default=None, description="The factory's `size`.")
    attrs: Attrs = Field(default={})


def _source(body: Any) -> str | None:
    """The field, ``data`` or ``factory``, that selects the model of a body; None if it has both or neither."""
    found = body.keys() & {"data", "factory"} if isinstance(body, dict) else set()
    return found.pop() if len(found) == 1 else None


TensorCreate = TypeAliasType(
    "TensorCreate",
    Annotated[
        Annotated[TensorFromData, Tag("data")] | Annotated[TensorFromFactory, Tag("factory")],
        Discriminator(_source, custom_error_type="tensor_source", custom_error_message="give either data or factory"),
        Field(description="A tensor from `data`, or from a `factory` such as zeros or randn."),
    ],
)


class TensorUpdate(Request):
    """What to change; absent fields stay as they are."""

    requires_grad: bool | None = Field(default=None, description="For leaves of a floating-point dtype.")
    retains_grad: bool | None = Field(
        default=None,
        description="True has backward fill the gradient of a tensor that is no leaf; it cannot be undone.",
        json_schema_extra={"not": {"enum": [False]}},
    )
    data: Data = Field(default=None)

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give requires_grad, retains_grad or data")
        if self.retains_grad is False:
            raise ValueError("retains_grad cannot be undone; give true, or leave it out")
        return self


class TensorPage(Page[Tensor]):
    """A session's tensors, ordered by id."""


@router.post("", status_code=201, summary="Create a tensor", response_model=Tensor, openapi_extra=CREATE_TENSOR)
@route_options(reads=VALUES)
async def create_tensor(
    handle: CurrentSession,
    max_elements: MaxElements,
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
    if media_type != JSON:
        attrs = {"data": _decoded(content, media_type), "dtype": dtype, "requires_grad": bool(requires_grad)}
        program = [Instruction("tensor", (), None if id is None else [check_id(id)], attrs)]
    elif body is None or (id, dtype, requires_grad) != (None, None, None):
        raise InvalidArgument("with JSON, id, dtype and requires_grad stand in the body, beside data or factory")
    else:
        program = _creation(body)
    name, answer = await handle.call(commands.create_tensor, program, data, max_elements)
    location = f"/v1/sessions/{handle.id}/tensors/{name}"
    return Response(answer, 201, {"location": location}, media_type=JSON)


def _creation(body: TensorFromData | TensorFromFactory) -> list[Instruction]:
    """The program that creates a tensor. Its later instructions get the tensor's id as input when they run."""
    outputs = None if body.id is None else [body.id]
    if isinstance(body, TensorFromData):
        attrs: dict[str, Any] = {"data": body.data, "dtype": body.dtype, "requires_grad": body.requires_grad}
        return [Instruction("tensor", (), outputs, attrs)]
    factory, attrs = body.factory, dict(body.attrs)
    if body.shape is not None:
        attrs["size"] = body.shape
    if body.dtype is not None:
        attrs["dtype"] = body.dtype
    op, in_place = find_op(factory, 0, attrs)
    if op.tensor_params or in_place:
        raise InvalidArgument(f"{factory} is no factory: it takes tensors; POST …/ops/{factory} runs it")
    for name in ("size", "dtype"):
        if name in attrs and all(param.name != name for param in op.params):
            raise InvalidArgument(f"{factory} takes no {'shape' if name == 'size' else name}; it is {op.signature}")
    program = [Instruction(factory, (), outputs, attrs)]
    if body.requires_grad:
        program.append(Instruction("requires_grad_"))
    return program


def _decoded(content: Content, media_type: str) -> Any:
    """The array in a binary body."""
    if media_type == NPY:
        return decode_npy(content)
    _, arrays = safetensors.decode(content)
    if len(arrays) != 1:
        raise MalformedRequest(f"safetensors: one tensor is wanted here, the container has {len(arrays)}")
    [data] = arrays.values()
    return data


@router.get("", summary="List the tensors")
@query
def list_tensors(
    session: InSession,
    page: Paged,
    prefix: Annotated[str | None, Query(description="Only those whose id starts with this.")] = None,
) -> TensorPage:
    """Descriptions without values, ordered by id."""
    names = sorted(session.tensors if prefix is None else [name for name in session.tensors if name.startswith(prefix)])
    chosen, following = page.of("tensors", names, str)
    items = [Tensor(**{**value.description, "data": None}) for value in session.read(chosen, False)]
    return TensorPage(items=items, next_cursor=following)


def _read_workload(session: Session, name: str, with_data: bool, accept: str, *others: object) -> Hashable | None:
    known = tensor_metadata(session, name)
    return None if known is None else (known, with_data, accept)


@router.get("/{id}", summary="Read a tensor", response_model=Tensor, responses=BINARY_ANSWER)
@route_options(writes=VALUES, tagged="endpoint")
@brief(_read_workload)
@query
def get_tensor(
    session: InSession,
    id: Id,
    data: DataByDefault,
    accept: Accepted,
    max_elements: MaxElements,
    if_none_match: IfNoneMatch,
) -> Response:
    """The tensor's description and value as JSON, or its value as safetensors or npy if `Accept` asks for that."""
    return _encoded(session.read([id], data or accept != JSON)[0], accept, max_elements, if_none_match)


def _encoded(value: Value, accept: str, max_elements: int, if_none_match: str | None) -> Response:
    """The response with a tensor in a media type, or 304 if the client has it."""
    headers = {}
    if value.array is not None:
        headers[ETAG] = entity_tag(_state_of(value), accept)
        matching = matching_tag(if_none_match, headers[ETAG])
        if matching is not None:
            return not_modified(matching)
    content: wire.Container
    if accept == JSON:
        content = tensor_json(value, max_elements)
    elif accept == NPY:
        content = encode_npy(value.array)
    else:
        content = wire.encode_answer(ProgramAnswer({value.description["id"]: value}), accept)
    return Response(content, headers=headers, media_type=accept)


def _state_of(value: Value) -> str:
    """The state of a tensor, which identifies its values, its version and the rest of its description."""
    return state_of(json_codec.dumps_ascii(value.description), value.array)


def _check_match(session: Session, name: str, if_match: str | None) -> None:
    """Raise PreconditionFailed if there is an If-Match header without a tag of the tensor."""
    check_match(if_match, lambda: _state_of(session.read([name], True)[0]))


@router.patch("/{id}", summary="Change a tensor", response_model=Tensor)
@route_options(guarded=True)
@command("change_tensor")
def update_tensor(
    session: InSession, id: Id, body: TensorUpdate, max_elements: MaxElements, if_match: IfMatch
) -> Response:
    """New values are written in place, without a record in the graph; shape and dtype stay as they are."""
    _check_match(session, id, if_match)
    program = []
    if "data" in body.model_fields_set:
        program.append(Instruction("set_data", [id], attrs={"data": body.data}))
    if body.requires_grad is not None:
        program.append(Instruction("requires_grad_", [id], attrs={"requires_grad": body.requires_grad}))
    if body.retains_grad:
        program.append(Instruction("retain_grad", [id]))
    session.run(program)
    answer = tensor_json(session.read([id], False)[0], max_elements)
    headers = {}
    if if_match is not None:  # to read the value takes time, so only a client that works with tags gets the new one
        headers[ETAG] = entity_tag(_state_of(session.read([id], True)[0]), JSON)
    return Response(answer, headers=headers, media_type=JSON)


@router.delete("/{id}", status_code=204, summary="Delete a tensor")
@route_options(guarded=True)
@command("delete_tensor")
def delete_tensor(session: InSession, id: Id, if_match: IfMatch) -> None:
    """The id is free again. The graph keeps the values that it needs."""
    _check_match(session, id, if_match)
    session.run([Instruction("free", [(id,)])])


@router.get("/{id}/grad", summary="Read a tensor's gradient", response_model=Tensor, responses=BINARY_ANSWER)
@route_options(writes=VALUES, tagged="endpoint")
@command("fetch_grad")
def get_grad(
    session: InSession,
    id: Id,
    data: DataByDefault,
    accept: Accepted,
    max_elements: MaxElements,
    if_none_match: IfNoneMatch,
) -> Response:
    """The gradient that `backward` accumulated; 404 if there is none. Its id in the response is `{id}.grad`."""
    if session.get(id).grad is None:
        raise UnknownResource(f"{id} has no gradient; backward has not reached it, or it was cleared", ids=[id])
    instruction = Instruction("grad_of", [id], None)
    session.run([instruction])
    temporary = instruction.outputs[0]
    try:
        value = session.read([temporary], data or accept != JSON)[0]
        value.description["id"] = f"{id}.grad"
        return _encoded(value, accept, max_elements, if_none_match)
    finally:
        session.run([Instruction("free", [(temporary,)])])


@router.delete("/{id}/grad", status_code=204, summary="Clear a tensor's gradient")
async def delete_grad(handle: CurrentSession, id: Id) -> None:
    """The request also succeeds if there is no gradient."""
    await handle.call(run_instructions, [Instruction("set_grad", [id])])


# One op -------------------------------------------------------------------------------------------

ops_router = APIRouter(prefix="/v1/sessions/{session}/ops", tags=["ops"], route_class=Route)


class OpArguments(Request):
    """The op's inputs and attributes, and ids for its outputs."""

    inputs: list[Input] = Field(default=[], description=INPUTS)
    attrs: Attrs = Field(default={})
    outputs: OutputIds = None


class OpResult(Answer):
    """The op's outputs; for an in-place op, the tensor that it changed."""

    outputs: list[Tensor] = Field(description="In the op's order.")


@ops_router.post("/{op}", summary="Run one op", response_model=OpResult)
async def run_op(
    handle: CurrentSession,
    max_elements: MaxElements,
    op: Annotated[str, Path(description="An op's name or key; a trailing _ is its in-place form.", examples=["mul"])],
    body: OpArguments,
    data: WithData = False,
) -> bytes:
    """A program of one instruction, recorded if an input requires grad. `GET /v1/ops` describes each op."""
    if op in VERBS:
        raise UnknownOp(f"{op!r} is a verb, not an op: send it as an instruction of a program", op=op)
    find_op(op)
    inputs = parse_inputs(body.inputs)
    return await handle.call(commands.run_op, op, inputs, body.attrs, body.outputs, data, max_elements)
