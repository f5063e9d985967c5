"""The programs for requests about tensors."""

from __future__ import annotations

from typing import Any

from telegrad_engine.errors import InvalidArgument, MalformedRequest, UnknownResource
from telegrad_engine.program import Instruction, safetensors
from telegrad_engine.program.compression import Body
from telegrad_engine.program.instructions import check_id
from telegrad_engine.program.overloads import find_op
from telegrad_engine.session.session import Session

from ..hosting import work
from ..hosting.commands import command, query
from ..http import conditional, npy
from ..http.media import JSON, NPY
from ..routing.pages import PageRequest
from ..routing.schemas import Tensor
from .schemas import TensorFromData, TensorFromFactory, TensorPage, TensorUpdate


def creation(body: TensorFromData | TensorFromFactory) -> list[Instruction]:
    """The program that creates a tensor. Its later instructions get the tensor's id as input when they run."""
    outputs = None if body.id is None else [body.id]
    if isinstance(body, TensorFromData):
        attrs: dict[str, Any] = {"data": body.data, "dtype": body.dtype, "requires_grad": body.requires_grad}
        return [Instruction("tensor", (), outputs, attrs)]
    program = [Instruction(body.factory, (), outputs, _factory_attrs(body.factory, body))]
    if body.requires_grad:
        program.append(Instruction("requires_grad_"))
    return program


def _factory_attrs(factory: str, body: TensorFromFactory) -> dict[str, Any]:
    attrs = dict(body.attrs)
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
    return attrs


def upload(
    content: Body, media_type: str, name: str | None, dtype: str | None, requires_grad: bool
) -> list[Instruction]:
    """The program that creates a tensor from the array in a binary body."""
    if media_type == NPY:
        data = npy.decode(content)
    else:
        _, arrays = safetensors.decode(content)
        if len(arrays) != 1:
            raise MalformedRequest(f"safetensors: one tensor is wanted here, the container has {len(arrays)}")
        [data] = arrays.values()
    attrs = {"data": data, "dtype": dtype, "requires_grad": requires_grad}
    return [Instruction("tensor", (), None if name is None else [check_id(name)], attrs)]


@command("change_tensor")
def change(
    session: Session, name: str, body: TensorUpdate, max_elements: int, if_match: str | None
) -> tuple[bytes, str | None]:
    """Apply an update and describe the tensor. With ``if_match``, the tensor must be the one that the client has read,
    and the second result is its new tag."""
    work.check_match(session, name, if_match)
    program = []
    if "data" in body.model_fields_set:
        program.append(Instruction("set_data", [name], attrs={"data": body.data}))
    if body.requires_grad is not None:
        program.append(Instruction("requires_grad_", [name], attrs={"requires_grad": body.requires_grad}))
    if body.retains_grad:
        program.append(Instruction("retain_grad", [name]))
    session.run(program)
    answer = work.tensor_json(session.read([name], False)[0], max_elements)
    if if_match is None:
        return answer, None
    return answer, conditional.tag(work.state_of(session.read([name], True)[0]), JSON)


@query
def page(session: Session, request: PageRequest, prefix: str | None) -> TensorPage:
    """A page of descriptions of the tensors whose ids start with ``prefix``."""
    names = sorted(session.tensors if prefix is None else [name for name in session.tensors if name.startswith(prefix)])
    chosen, following = request.of("tensors", names, str)
    items = [Tensor(**{**value.description, "data": None}) for value in session.read(chosen, False)]
    return TensorPage(items=items, next_cursor=following)


@command("fetch_grad")
def fetch_grad(
    session: Session, name: str, with_data: bool, accept: str, max_elements: int, if_none_match: str | None
) -> work.TaggedTensor:
    """The gradient of a tensor, unless the client has it. Raises UnknownResource if there is none."""
    if session.get(name).grad is None:
        raise UnknownResource(f"{name} has no gradient; backward has not reached it, or it was cleared", ids=[name])
    instruction = Instruction("grad_of", [name], None)
    session.run([instruction])
    temporary = instruction.outputs[0]
    try:
        value = session.read([temporary], with_data or accept != JSON)[0]
        value.description["id"] = f"{name}.grad"
        return work.encode_tagged(value, accept, max_elements, if_none_match)
    finally:
        session.run([Instruction("free", [(temporary,)])])
