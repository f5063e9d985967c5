"""Differentiation as programs."""

from __future__ import annotations

from typing import Any

from telegrad_engine.errors import InvalidArgument
from telegrad_engine.program import Instruction, json_codec
from telegrad_engine.session.session import Session

from ..hosting import work
from ..pending.service import bound, member
from .schemas import BackwardArguments, GradArguments


def backward(session: Session, body: BackwardArguments) -> tuple[bool, bytes]:
    """Run backward; whether it waits for the client, and which tensors have a gradient so far."""
    attrs = body.model_dump(include={"retain_graph", "create_graph"})
    inputs = [_ids(body.tensors), _ids(body.gradients), _ids(body.inputs)]
    pending = session.run([Instruction("backward", inputs, attrs=attrs)]).pending
    held = sorted(name for name, tensor in session.tensors.items() if tensor.grad is not None)
    return pending is not None, json_codec.dumps({"grads": held})[:-1] + b"," + member(pending) + b"}"


def grad(session: Session, body: GradArguments, with_data: bool, max_elements: int) -> tuple[bool, bytes]:
    """Run grad; whether it waits for the client, and the gradients under names of the body's or the session's."""
    if body.names is not None and len(body.names) != len(body.inputs):
        raise InvalidArgument(f"names has {len(body.names)} ids for {len(body.inputs)} gradients")
    attrs = body.model_dump(include={"retain_graph", "create_graph", "allow_unused", "materialize_grads"})
    inputs = [_ids(body.outputs), _ids(body.inputs), _ids(body.grad_outputs)]
    instruction = Instruction("grad", inputs, body.names, attrs)
    pending = session.run([instruction]).pending
    values = [] if pending else bound(session, instruction.outputs, with_data)
    answer = work.outputs_json("grads", values, max_elements)
    return pending is not None, answer[:-1] + b"," + member(pending) + b"}"


def _ids(names: list[Any] | None) -> tuple[Any, ...] | None:
    return None if names is None else tuple(names)
