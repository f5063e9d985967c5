"""Differentiation as programs."""

from __future__ import annotations

from typing import Any

from telegrad_engine.errors import InvalidArgument
from telegrad_engine.program import Instruction, json_codec
from telegrad_engine.session import Session, Value

from .. import work
from .schemas import Backward, Grad


def backward(session: Session, body: Backward) -> bytes:
    """Run backward; which tensors have a gradient afterwards."""
    attrs = body.model_dump(include={"retain_graph", "create_graph"})
    session.run([Instruction("backward", [_ids(body.tensors), _ids(body.gradients), _ids(body.inputs)], attrs=attrs)])
    held = sorted(name for name, tensor in session.tensors.items() if tensor.grad is not None)
    return json_codec.dumps({"grads": held})


def grad(session: Session, body: Grad, with_data: bool, max_elements: int) -> bytes:
    """Run grad; the gradients under the names of the body or of the session's choosing."""
    if body.names is not None and len(body.names) != len(body.inputs):
        raise InvalidArgument(f"names has {len(body.names)} ids for {len(body.inputs)} gradients")
    attrs = body.model_dump(include={"retain_graph", "create_graph", "allow_unused", "materialize_grads"})
    inputs = [_ids(body.outputs), _ids(body.inputs), _ids(body.grad_outputs)]
    instruction = Instruction("grad", inputs, body.names, attrs)
    session.run([instruction])
    # A name that was given to an unused input's gradient stays free.
    found = {name for name in instruction.outputs if name in session.tensors}
    fetched = dict(zip(found, work.fetch(session, list(found), with_data), strict=True))
    values: list[Value | None] = [fetched.get(name) for name in instruction.outputs]
    return work.outputs_json("grads", values, max_elements)


def _ids(names: list[Any] | None) -> tuple[Any, ...] | None:
    return None if names is None else tuple(names)
