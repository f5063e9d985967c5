"""``/v1/sessions/{session}/backward``, ``…/grad`` and ``…/pending``: backward passes that wait for the client.

docs/how-to/client-evaluated.md describes the calls that they wait for.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Path, Response
from pydantic import Field
from starlette.requests import Request as HTTPRequest

from telegrad_engine.errors import InvalidArgument
from telegrad_engine.graph.node import Node
from telegrad_engine.program import Instruction, json_codec
from telegrad_engine.program.result import Value
from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.session.session import Session

from ..hosting.commands import MAX_ELEMENTS, brief, command, outputs_json, query
from ..http.representations import JSON
from ..routing.dependencies import CurrentSession, DataByDefault, InSession, MaxElements
from ..routing.route import Route, route_options
from ..routing.schemas import Answer, Page, Paged, Request, Tensor, TensorId

router = APIRouter(prefix="/v1/sessions/{session}", tags=["autograd"], route_class=Route)
MAX_AT_ONCE = 64
"""The most nodes of a graph, and tensors of a session, for which a pass may run on the event loop."""
Ids = Annotated[list[TensorId], Field(min_length=1)]
Gradients = Annotated[
    list[TensorId | None] | None,
    Field(description="The gradient that flows into each of them; null for a tensor of one element."),
]
PENDING = "What the client must evaluate first, with status 202; null when the pass is done."
RETAIN = "Keep the graph for another pass; as `create_graph` if absent."
RECORD = "Record the pass, so that the gradients can be differentiated."
WAITS = "The pass waits for the client; `pending` says for what."
Call = Annotated[str, Path(description="The call's id.", examples=["call1"])]
Kind = Literal["backward", "hook", "post_accumulate_grad_hook", "node_prehook", "node_hook"]


class PendingCall(Answer):
    """What a backward pass waits for."""

    call: str = Field(description="The call's id, which resumes the pass.", examples=["call1"])
    kind: Kind = Field(description="The backward of a client-evaluated function, or the kind of hook.")
    function: str | None = Field(
        description="The name of the function whose backward it is; null for a hook.", examples=["MyFunction"]
    )
    ctx: str = Field(description="The id that the client chose for this call, or for the hook.", examples=["ctx1"])
    gradients: list[TensorId | None] = Field(
        description="The gradients so far, which are tensors of the session from now on; null where there is none.",
        examples=[["g1"]],
    )
    outputs: list[TensorId] = Field(
        description="The ids of the results when the pass is done; empty for backward.", examples=[["dy_dx"]]
    )


class BackwardArguments(Request):
    """What to differentiate."""

    tensors: Ids = Field(description="The tensors to differentiate; the gradients of several are summed.")
    gradients: Gradients = None
    retain_graph: bool | None = Field(default=None, description=RETAIN)
    create_graph: bool = Field(default=False, description=RECORD)
    inputs: Ids | None = Field(default=None, description="Accumulate gradients into these tensors only.")


class BackwardResult(Answer):
    """Which tensors have a gradient now."""

    grads: list[TensorId] = Field(description="Ids of the session's tensors that have a gradient.", examples=[["x"]])
    pending: PendingCall | None = Field(description=PENDING, examples=[None])


class GradArguments(Request):
    """What to differentiate, and with respect to what."""

    outputs: Ids = Field(description="The tensors to differentiate.")
    inputs: Ids = Field(description="The tensors with respect to which they are differentiated.")
    grad_outputs: Gradients = None
    retain_graph: bool | None = Field(default=None, description=RETAIN)
    create_graph: bool = Field(default=False, description=RECORD)
    allow_unused: bool | None = Field(default=None, description="Return null for an unused input, instead of an error.")
    materialize_grads: bool = Field(default=False, description="Return zeros for an unused input, instead of null.")
    names: list[TensorId] | None = Field(
        default=None, description="Ids for the gradients; the server chooses them if this is absent."
    )


class GradResult(Answer):
    """The gradients."""

    grads: list[Tensor | None] = Field(description="One for each input; null for an unused input.")
    pending: PendingCall | None = Field(description=PENDING + " Until then, `grads` is empty.", examples=[None])


class StoppedProgram(PendingCall):
    """Where a program stopped, and what it waits for."""

    instruction: int = Field(
        description="The index of the instruction that waits; the instructions after it did not run.", examples=[3]
    )


class PendingPage(Page[PendingCall]):
    """Calls that backward passes of the session wait for, oldest first."""


class ResumeArguments(Request):
    """What the client computed."""

    gradients: Annotated[
        list[TensorId | None],
        Field(
            description="For a function's backward: one for each input, null for none. For a tensor's hook: the "
            "gradient's replacement, if there is one. For a node's hook: one for each gradient, or an empty list."
        ),
    ] = []


class ResumeResult(Answer):
    """The progress of the pass."""

    pending: PendingCall | None = Field(description="What it waits for now; null when it is done.", examples=[None])
    outputs: list[Tensor | None] = Field(
        description="The results, if the pass is a grad and is done; null for an unused input."
    )


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
        return node.leaf._hooks is None and node.leaf._data.size <= MAX_ELEMENTS
    saved = [each for value in node.saved for each in (value if isinstance(value, (list, tuple)) else [value])]
    elements = sum([each.size for each in saved if isinstance(each, np.ndarray)])
    return node.plain and CATALOGUE.ops.get(node.op.key) is node.op and elements <= MAX_ELEMENTS


Outcome = tuple[str | None, bytes]
"""The call that a pass waits for, if it is not done, and the answer."""


def _outcome(pending: dict[str, object] | None, answer: bytes) -> Outcome:
    """The outcome of a pass, from an answer that is a JSON object without its member ``pending``."""
    call = None if pending is None else {key: pending[key] for key in PendingCall.model_fields}
    waits_for = None if pending is None else str(pending["call"])
    return waits_for, answer[:-1] + b',"pending":' + json_codec.dumps(call) + b"}"


def _answers(model: type[Answer], waits: str) -> dict[str, Any]:
    """The answers of a route that runs a pass, which is done, or waits with status 202."""
    return {"response_model": model, "responses": {202: {"model": model, "description": waits}}}


def _respond(request: HTTPRequest, outcome: Outcome) -> Response:
    """The response of a pass: 202 if it waits for a call."""
    waits_for, answer = outcome
    if waits_for is None:
        return Response(answer, media_type=JSON)
    location = f"/v1/sessions/{request.path_params['session']}/pending/{waits_for}"
    return Response(answer, 202, {"location": location}, media_type=JSON)


@router.post("/backward", summary="Accumulate gradients", **_answers(BackwardResult, WAITS))
@route_options(respond=_respond)
@brief(_pass_workload)
@command("backward")
def backward(session: InSession, body: BackwardArguments) -> Outcome:
    """Gradients are added to those of the leaves; `GET …/tensors/{id}/grad` reads them.

    The graph is freed, unless `retain_graph` or `create_graph` is true.
    """
    attrs = {"retain_graph": body.retain_graph, "create_graph": body.create_graph}
    inputs = [None if ids is None else tuple(ids) for ids in (body.tensors, body.gradients, body.inputs)]
    pending = session.run([Instruction("backward", inputs, attrs=attrs)]).pending
    held = sorted(name for name, tensor in session.tensors.items() if tensor.grad is not None)
    return _outcome(pending, json_codec.dumps_ascii({"grads": held}))


@router.post("/grad", summary="Compute gradients", **_answers(GradResult, WAITS))
@route_options(respond=_respond)
@command("grad")
def grad(session: InSession, body: GradArguments, data: DataByDefault, max_elements: MaxElements) -> Outcome:
    """The gradients of `outputs` with respect to `inputs`, as new tensors. Existing `.grad` values are unchanged."""
    if body.names is not None and len(body.names) != len(body.inputs):
        raise InvalidArgument(f"names has {len(body.names)} ids for {len(body.inputs)} gradients")
    attrs = body.model_dump(include={"retain_graph", "create_graph", "allow_unused", "materialize_grads"})
    inputs = [None if ids is None else tuple(ids) for ids in (body.outputs, body.inputs, body.grad_outputs)]
    instruction = Instruction("grad", inputs, body.names, attrs)
    pending = session.run([instruction]).pending
    values = [] if pending else bound(session, instruction.outputs, data)
    return _outcome(pending, outputs_json("grads", values, max_elements))


@router.get("/pending", summary="List the calls that passes wait for")
@query
def list_pending(session: InSession, page: Paged) -> PendingPage:
    """Calls of functions and hooks that the client evaluates."""
    calls = [PendingCall(**waiting.pending) for waiting in session.suspensions.waiting.values()]
    found, following = page.of("pending", calls, lambda pending: [len(pending.call), pending.call])
    return PendingPage(items=found, next_cursor=following)


@router.get("/pending/{call}", summary="Read a call")
@query
def get_pending(session: InSession, call: Call) -> PendingCall:
    """The call that a backward pass waits for."""
    return PendingCall(**session.suspensions.find(call).pending)


@router.post("/pending/{call}/resume", summary="Resume a pass", **_answers(ResumeResult, "The pass waits again."))
@route_options(respond=_respond)
async def resume(
    handle: CurrentSession, call: Call, body: ResumeArguments, data: DataByDefault, max_elements: MaxElements
) -> Outcome:
    """The pass continues with the client's results. If they do not fit, it still waits."""
    return await handle.call(_resume, call, body.gradients, data, max_elements)


@command("resume_backward")
def _resume(
    session: Session, call: str, gradients: Sequence[str | None], with_data: bool, max_elements: int
) -> Outcome:
    names: list[str] = session.suspensions.find(call).pending["outputs"]
    pending = session.run([Instruction("resume", [tuple(gradients)], attrs={"call": call})]).pending
    values = [] if pending else bound(session, names, with_data)
    return _outcome(pending, outputs_json("outputs", values, max_elements))


@router.delete("/pending/{call}", summary="Cancel a pass", status_code=204)
@command("cancel_backward")
def cancel_pending(session: InSession, call: Call) -> None:
    """Gradients that the pass has accumulated stay, as after an error."""
    session.suspensions.find(call)
    session.run([Instruction("cancel", attrs={"call": call})])


def bound(session: Session, names: Sequence[str], with_data: bool) -> list[Value | None]:
    """Fetch the tensors of these names; None for a name without a tensor, the gradient of an unused input."""
    found = [name for name in dict.fromkeys(names) if name in session.tensors]
    fetched = dict(zip(found, session.read(found, with_data), strict=True))
    return [fetched.get(name) for name in names]
