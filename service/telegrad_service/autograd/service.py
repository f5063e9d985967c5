"""The programs for requests to differentiate, and the backward passes that wait for the client."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from telegrad_engine.errors import InvalidArgument
from telegrad_engine.graph.node import Node
from telegrad_engine.program import Instruction, json_codec
from telegrad_engine.program.result import Value
from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.session.session import Session

from ..hosting import work
from ..hosting.commands import brief, command, query
from ..routing.pages import PageRequest
from .schemas import BackwardArguments, GradArguments, PendingCall, PendingPage

MAX_AT_ONCE = 64
"""The most nodes of a graph, and tensors of a session, for which a pass may run on the event loop."""


def _pass_workload(session: Session, body: BackwardArguments) -> Hashable | None:
    """The ops, attributes and shapes of a small graph; None for a large one, or where more than ops would run."""
    roots = [getattr(session.tensors.get(name), "grad_fn", None) for name in body.tensors]
    nodes: dict[Node, None] = dict.fromkeys([root for root in roots if root is not None])
    if None in roots or len(session.tensors) > MAX_AT_ONCE:
        return None
    waiting, found = [*nodes], []
    while waiting:
        node = waiting.pop()
        if len(nodes) > MAX_AT_ONCE or node.many or not _runs_only_its_op(node):
            return None
        found.append((getattr(node, "op", None), node.shape, node.dtype, repr(node.attrs)))
        following = [edge for edge in dict.fromkeys(node.next_edges) if edge is not None and edge not in nodes]
        nodes |= dict.fromkeys(following)
        waiting += following
    return body.create_graph, tuple(found)


def _runs_only_its_op(node: Node) -> bool:
    """Whether a pass runs nothing but an op of the catalogue for this node, on few saved values, and no hook."""
    if node.leaf is not None:
        return node.leaf._hooks is None and node.leaf._data.size <= work.MAX_ELEMENTS
    saved = [each for value in node.saved for each in (value if isinstance(value, (list, tuple)) else [value])]
    elements = sum([each.size for each in saved if isinstance(each, np.ndarray)])
    return node.plain and CATALOGUE.ops.get(node.op.key) is node.op and elements <= work.MAX_ELEMENTS


@brief(_pass_workload)
@command("backward")
def backward(session: Session, body: BackwardArguments) -> tuple[str | None, bytes]:
    """Run backward. Return the call that it waits for, and the answer: the tensors that have a gradient."""
    attrs = {"retain_graph": body.retain_graph, "create_graph": body.create_graph}
    inputs = [_ids(body.tensors), _ids(body.gradients), _ids(body.inputs)]
    pending = session.run([Instruction("backward", inputs, attrs=attrs)]).pending
    held = sorted(name for name, tensor in session.tensors.items() if tensor.grad is not None)
    return call_of(pending), json_codec.dumps_ascii({"grads": held})[:-1] + b"," + member(pending) + b"}"


@command("grad")
def grad(session: Session, body: GradArguments, with_data: bool, max_elements: int) -> tuple[str | None, bytes]:
    """Run grad. Return the call that it waits for, and the answer with the gradients."""
    if body.names is not None and len(body.names) != len(body.inputs):
        raise InvalidArgument(f"names has {len(body.names)} ids for {len(body.inputs)} gradients")
    attrs = body.model_dump(include={"retain_graph", "create_graph", "allow_unused", "materialize_grads"})
    inputs = [_ids(body.outputs), _ids(body.inputs), _ids(body.grad_outputs)]
    instruction = Instruction("grad", inputs, body.names, attrs)
    pending = session.run([instruction]).pending
    values = [] if pending else bound(session, instruction.outputs, with_data)
    answer = work.outputs_json("grads", values, max_elements)
    return call_of(pending), answer[:-1] + b"," + member(pending) + b"}"


@query
def page(session: Session, request: PageRequest) -> PendingPage:
    """A page of the calls that backward passes wait for."""
    calls = [PendingCall(**waiting.pending) for waiting in session.suspensions.waiting.values()]
    found, following = request.of("pending", calls, lambda pending: [len(pending.call), pending.call])
    return PendingPage(items=found, next_cursor=following)


@query
def find(session: Session, call: str) -> PendingCall:
    """Find a call that a backward pass waits for. Raises UnknownCall."""
    return PendingCall(**session.suspensions.find(call).pending)


@command("cancel_backward")
def cancel(session: Session, call: str) -> None:
    """Cancel the backward pass that waits for a call. Raises UnknownCall."""
    session.suspensions.find(call)
    session.run([Instruction("cancel", attrs={"call": call})])


@command("resume_backward")
def resume(
    session: Session, call: str, gradients: Sequence[str | None], with_data: bool, max_elements: int
) -> tuple[str | None, bytes]:
    """Resume the backward pass that waits for a call. Return the call that it waits for, and the answer."""
    names: list[str] = session.suspensions.find(call).pending["outputs"]
    pending = session.run([Instruction("resume", [tuple(gradients)], attrs={"call": call})]).pending
    values = [] if pending else bound(session, names, with_data)
    outputs = work.outputs_json("outputs", values, max_elements)
    return call_of(pending), outputs[:-1] + b"," + member(pending) + b"}"


def bound(session: Session, names: Sequence[str], with_data: bool) -> list[Value | None]:
    """Fetch the tensors of these names; None for a name without a tensor, the gradient of an unused input."""
    found = [name for name in dict.fromkeys(names) if name in session.tensors]
    fetched = dict(zip(found, session.read(found, with_data), strict=True))
    return [fetched.get(name) for name in names]


def call_of(pending: dict[str, object] | None) -> str | None:
    """The id of the call that a backward pass waits for; None if the pass is done."""
    return None if pending is None else str(pending["call"])


def member(pending: dict[str, object] | None) -> bytes:
    """The member ``"pending": …`` of the answer to a request about one backward pass."""
    call = None if pending is None else {key: pending[key] for key in PendingCall.model_fields}
    return b'"pending":' + json_codec.dumps(call)


def _ids(names: list[Any] | None) -> tuple[Any, ...] | None:
    return None if names is None else tuple(names)
