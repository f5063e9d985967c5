"""``/v1/sessions/{session}/graph``: the graph as data and as a drawing, folded, node by node, and a pass over it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from telegrad_engine import visualization
from telegrad_engine.errors import InvalidArgument, UnknownResource
from telegrad_engine.inspection.details import live_details
from telegrad_engine.inspection.folding import MAX_BOXES, Fold, add_boxes, folded_data
from telegrad_engine.inspection.passes import MAX_STEPS, trace_pass
from telegrad_engine.inspection.record import GraphRecord, Known, live_graph
from telegrad_engine.inspection.step import Step
from telegrad_engine.program import json_codec
from telegrad_engine.program.json_codec import from_lists
from telegrad_engine.session.session import Session
from telegrad_engine.tensor.conversion import as_array
from telegrad_engine.tensor.eager import upload

from ..hosting.commands import query
from ..hosting.session_handle import SessionHandle
from ..http.representations import JSON
from ..routing.dependencies import Accepted, CurrentSession, InSession
from ..routing.route import Route, route_options
from ..routing.schemas import LITERAL, Answer, Data, DType, Request, TensorId

router = APIRouter(prefix="/v1/sessions/{session}", tags=["graph"], route_class=Route)
DOT = "text/vnd.graphviz"
MERMAID = "text/vnd.mermaid"
SVG = "image/svg+xml"
FORMATS = {"json": JSON, "dot": DOT, "mermaid": MERMAID, "svg": SVG}
TO_TEXT = {DOT: visualization.to_dot, MERMAID: visualization.to_mermaid, SVG: visualization.to_svg}
INERT = {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}
"""Headers with which a browser that opens the picture runs nothing and loads nothing."""
TEXTS: dict[int | str, Any] = {
    200: {
        "description": "The graph.",
        "content": {
            DOT: {"schema": {"type": "string"}, "example": 'digraph { n0 [label="MulBackward0"]; }'},
            MERMAID: {"schema": {"type": "string"}, "example": 'flowchart TD\n  n0["MulBackward0"]'},
            SVG: {"schema": {"type": "string"}, "example": '<svg xmlns="http://www.w3.org/2000/svg"></svg>'},
        },
    }
}


class GraphNode(Answer):
    """An operation, or a tensor that no operation made."""

    id: str = Field(description="Names the node, in this response only.", examples=["n0"])
    kind: Literal["op", "leaf", "tensor"] = Field(description="`tensor` is a root that requires no grad.")
    op: str | None = Field(description="The op's key, as in `GET /v1/ops/{op}`; null for a tensor.", examples=["mul"])
    grad_fn: str = Field(examples=["MulBackward0"])
    shape: list[int] = Field(examples=[[2]])
    dtype: DType = Field(examples=["float32"])
    tensors: list[TensorId] = Field(description="The ids of the tensors that it is, or made.", examples=[["y"]])


class GraphEdge(Answer):
    """A value that flows from `source` to `target`."""

    source: str = Field(examples=["n1"])
    target: str = Field(examples=["n0"])
    output: int = Field(description="The index among the outputs of `source`.", examples=[0])
    input: int = Field(description="The index among the inputs of `target`.", examples=[0])
    shape: list[int] = Field(examples=[[2]])
    dtype: DType = Field(examples=["float32"])


class Graph(Answer):
    """Operations, newest first, then leaves; and the values between them."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    omitted: int = Field(description="The number of older operations that are not part of the drawing.", examples=[0])


@router.get("/graph", summary="Draw the graph", response_model=Graph, responses=TEXTS)
@route_options(writes=(JSON, DOT, MERMAID, SVG))
@query
def get_graph(
    session: InSession,
    accept: Accepted,
    root: Annotated[list[str] | None, Query(description="Ids of the tensors whose history is drawn.")] = None,
    format: Annotated[
        Literal["json", "dot", "mermaid", "svg"] | None,
        Query(
            description="JSON, Graphviz DOT, a Mermaid flowchart or an SVG picture; `Accept` decides if this is absent."
        ),
    ] = None,
) -> Response:
    """The operations that made tensors. Without `root`, the history of all tensors of the session."""
    tensors = [session.get(name) for name in root or ()]
    if not root:
        tensors = [tensor for tensor in session.tensors.values() if tensor._last_grad_fn is not None]
    found = visualization.draw(tensors, session.tensors)
    media_type = accept if format is None else FORMATS[format]
    to_text = TO_TEXT.get(media_type)
    content = json_codec.dumps(visualization.to_json(found)) if to_text is None else to_text(found)
    return Response(content, headers=INERT if media_type == SVG else None, media_type=media_type)


# The folded graph --------------------------------------------------------------------------------

Number = Annotated[
    Any,
    Field(
        description='A number; "NaN", "Infinity" and "-Infinity" are strings.',
        json_schema_extra=LITERAL,
        examples=[0.5],
    ),
]
NodeId = Annotated[
    str,
    Path(
        description="The node's id: `n` and a number for an operation, `t:` and its id for a tensor that no operation "
        "made, `l` and a number for one without an id.",
        examples=["n12"],
    ),
]
Roots = Annotated[list[str] | None, Query(description="Ids of the tensors whose history is shown.")]
MODULE, LINE = "The path of the client's module, if it is known.", "The user's file and line, if they are known."


class GraphBox(Answer):
    """A node, or a group of nodes."""

    id: str = Field(examples=["g:encoder.0"])
    kind: Literal["op", "leaf", "tensor", "group"]
    label: str = Field(examples=["encoder.0"])
    op: str | None = Field(description="The op's key; null for a tensor, or for a group of several.", examples=[None])
    module: str | None = Field(description=MODULE, examples=["encoder.0"])
    line: str | None = Field(description=LINE, examples=[None])
    count: int = Field(description="The number of nodes inside; 1 for a node.", examples=[12])
    order: int = Field(
        description="Boxes are numbered in the order in which their first nodes were made; two leaves may have one "
        "number.",
        examples=[7],
    )
    rank: int = Field(
        description="The length of the longest path to it along edges to younger boxes; a leaf is one above its first "
        "user.",
        examples=[1],
    )
    shape: list[int] | None = Field(description="Null for a group.", examples=[None])
    dtype: DType | None = Field(description="Null for a group.", examples=[None])
    bytes: int = Field(description="The bytes that its nodes save for their derivatives.", examples=[4096])
    tensors: list[TensorId] = Field(description="Ids of tensors that it is, or made; at most 20.", examples=[["y"]])
    grad_norm: Number | None = Field(
        description="The norm of its gradient, from a sample of a large one; for a group, of all gradients inside.",
        examples=[0.5],
    )
    number: Number | None = Field(
        description="The number in a tensor of one element; null if it is not known.", examples=[None]
    )
    expandable: bool = Field(description="Whether `expand` opens it.", examples=[True])


class BoxEdge(Answer):
    """Values that flow from one box to another."""

    source: str = Field(description="A box of a `tensor` has edges only as far as they are known.", examples=["t:x"])
    target: str = Field(examples=["g:encoder.0"])
    count: int = Field(description="The number of edges.", examples=[1])


class FoldedGraph(Answer):
    """The graph with at most `limit` boxes."""

    source: Literal["live", "step"]
    sequence: int | None = Field(
        description="The sequence number of the observed program; null for the live graph.", examples=[None]
    )
    revision: int = Field(description="Another number means that the graph may have changed.", examples=[3])
    nodes: int = Field(description="The number of nodes in all boxes.", examples=[13])
    fold: Literal["module", "line", "op", "none"] = Field(description="How it is folded.")
    boxes: list[GraphBox]
    edges: list[BoxEdge]
    omitted: int = Field(description="The number of older operations that are in no box.", examples=[0])


Source = Annotated[
    Literal["live", "step"],
    Query(
        description="`live`: the graph behind the session's tensors now. `step`: the last step that was observed for a "
        "listener (`GET …/events?observe=true`)."
    ),
]


def observed_step(handle: SessionHandle) -> tuple[Step, int | None]:
    """The last observed step of a session, and its sequence number. Raises UnknownResource if there is none."""
    observation = handle.feed.observation
    if observation is None or observation.step is None:
        raise UnknownResource("no step of this session was observed; GET …/events?observe=true observes one")
    return observation.step, observation.step_sequence


def known_of(handle: SessionHandle) -> Known:
    """What is known of the nodes of a session that were observed."""
    return Known.nothing() if handle.feed.observation is None else handle.feed.observation.known


@query
def read_graph(session: Session, roots: Sequence[str], known: Known) -> tuple[GraphRecord, int]:
    """The live graph as data, and its revision. ``known`` is what was observed of nodes."""
    begun = perf_counter()
    with session.reading():
        tensors = [session.get(name) for name in roots] if roots else session.tensors.values()
        record, _ = live_graph(session.tensors, tensors, known)
    if session.observation is not None:  # who listens reads the graph again when it is told that it has changed
        session.observation.note_reading(perf_counter() - begun)
    return record, session.programs


@router.get("/graph/folded", summary="Fold the graph", response_model=FoldedGraph)
async def get_folded_graph(
    handle: CurrentSession,
    source: Source = "live",
    fold: Annotated[
        Fold,
        Query(
            description="What forms a group. `auto`: nothing if there are at most `limit` nodes, else modules, lines "
            "or ops, the first that is known."
        ),
    ] = "auto",
    expand: Annotated[list[str] | None, Query(description="Ids of groups that are opened.")] = None,
    root: Roots = None,
    limit: Annotated[int, Query(ge=1, le=MAX_BOXES, description="The most boxes.")] = MAX_BOXES,
) -> Response:
    """The graph behind the session's tensors, or that of the last observed step, as boxes that fit on a screen.

    A group with more than 1,000 members opens to parts of 500. A group stays closed if its members are too many.
    """
    if source == "step":
        if root:
            raise InvalidArgument("root is for the live graph; an observed step is shown whole")
        step, sequence = observed_step(handle)
        record, revision = step.record, step.revision
    else:
        record, revision = await handle.call(read_graph, root or (), known_of(handle))
        sequence = None
    head = {"source": source, "sequence": sequence, "revision": revision}
    return Response(await asyncio.to_thread(_folded, head, record, fold, expand or (), limit), media_type=JSON)


def _folded(head: dict[str, Any], record: GraphRecord, fold: Fold, expand: Sequence[str], limit: int) -> bytes:
    """A :class:`FoldedGraph` as JSON, which begins with ``head``."""
    return json_codec.dumps(head | folded_data(record, fold, expand, limit))


# One node ----------------------------------------------------------------------------------------


class Histogram(Answer):
    """How many finite elements are in each of 32 intervals of the same width."""

    edges: list[float] = Field(description="The 33 ends of the intervals.", examples=[[0.0, 0.5, 1.0]])
    counts: list[int] = Field(examples=[[3, 1]])


class Statistics(Answer):
    """Statistics of a tensor's elements. Those of a large tensor are of a sample."""

    shape: list[int] = Field(examples=[[2]])
    dtype: DType = Field(examples=["float32"])
    size: int = Field(description="The number of elements.", examples=[2])
    min: float | None = Field(description="The smallest finite element; null if there is none.", examples=[1.0])
    max: float | None = Field(description="The largest finite element; null if there is none.", examples=[2.0])
    mean: float | None = Field(description="The mean of the finite elements; null if there are none.", examples=[1.5])
    norm: Number = Field(description="The Euclidean norm of all elements.", examples=[2.23606797749979])
    nan: int = Field(description="The number of NaNs.", examples=[0])
    inf: int = Field(description="The number of infinities.", examples=[0])
    preview: Data = Field(
        description="The value if it has at most 64 elements, else the first 64 as a list.", examples=[[1.0, 2.0]]
    )
    histogram: Histogram | None = Field(
        description="Null if no element is finite, or if their range cannot be divided."
    )
    sampled: bool = Field(
        description="Whether these are from a sample: counts are those in the sample, and the norm is estimated.",
        examples=[False],
    )


class SavedTensor(Answer):
    """A tensor that a node saves for its derivative."""

    name: str = Field(description="The input or output of the op that it is.", examples=["other"])
    shape: list[int] | None = Field(description="Null after it was freed.", examples=[[2]])
    dtype: DType | None = Field(description="Null after it was freed.", examples=["float32"])
    bytes: int = Field(examples=[8])
    freed: bool = Field(examples=[False])


class NodeDetails(Answer):
    """A node, and what flowed through it."""

    id: str = Field(examples=["n12"])
    kind: Literal["op", "leaf", "tensor"]
    op: str | None = Field(description="The op's key; null for a tensor.", examples=["mul"])
    grad_fn: str = Field(description="Torch's name; empty for a tensor.", examples=["MulBackward0"])
    attrs: dict[str, Any] = Field(description="The op's attributes.", examples=[{}])
    shape: list[int] = Field(examples=[[2]])
    dtype: DType | None = Field(description="Null if the first output is no tensor.", examples=["float32"])
    module: str | None = Field(description=MODULE, examples=[None])
    line: str | None = Field(description=LINE, examples=[None])
    tensors: list[TensorId] = Field(description="Ids of the tensors that it is, or made.", examples=[["y"]])
    saved: list[SavedTensor] = Field(description="What it saves for its derivative.")
    derivative: dict[str, str] | None = Field(
        description="For each input, the gradient that flows to it, as the op's declaration says it: `grad` is the "
        "gradient of the output, `F` has the ops. Null without one.",
        examples=[{"input": "grad * other", "other": "grad * input"}],
    )
    doc: str = Field(description="What the op does; empty if there is no op.", examples=["``input * other``."])
    value: Statistics | None = Field(description="Statistics of its first output; null if nothing holds it.")
    grad: Statistics | None = Field(description="Statistics of its gradient; null if there is none.")
    grad_norm: Number | None = Field(description="The norm of its gradient.", examples=[0.5])
    inputs: list[str] = Field(description="Ids of the nodes whose values it takes; at most 200.", examples=[["t:x"]])
    outputs: list[str] = Field(description="Ids of the nodes that take its value; at most 200.", examples=[["n13"]])


@query
def read_node(session: Session, node: str, known: Known) -> bytes:
    """The details of a node of the live graph as JSON. ``known`` is what was observed of nodes."""
    with session.reading():
        return json_codec.dumps(live_details(session.tensors, known, node))


@router.get("/graph/nodes/{node}", summary="Read a node of the graph", response_model=NodeDetails)
async def get_node(handle: CurrentSession, node: NodeId, source: Source = "live") -> Response:
    """An operation or a tensor: attributes, derivative, neighbours, and statistics of its value and its gradient.

    In the live graph, an operation's value is known if a tensor with an id, or a derivative, holds it, and its gradient
    if it was retained. Of an observed step, both are known, from samples of 512 elements.
    """
    if source == "step":
        step = observed_step(handle)[0]
        content = await asyncio.to_thread(lambda: json_codec.dumps(step.describe(node)))
    else:
        content = await handle.call(read_node, node, known_of(handle))
    return Response(content, media_type=JSON)


# A pass over the graph ---------------------------------------------------------------------------


class PassArguments(Request):
    """What to differentiate."""

    tensor: TensorId = Field(description="The tensor to differentiate.")
    gradient: Data | None = Field(
        default=None, description="The gradient that flows into it; absent for a tensor of one element."
    )
    limit: Annotated[int, Field(ge=1, le=MAX_STEPS)] = Field(default=MAX_STEPS, description="The most steps.")
    fold: Fold | None = Field(
        default=None,
        description="Each node is named with its box in the live graph, folded in this way; absent for no boxes.",
    )
    expand: list[str] = Field(default=[], description="Ids of groups that are opened in that graph.")


BOX = Field(
    description="The id of the box that has the node in the graph as `fold` and `expand` fold it; null without `fold`.",
    examples=["g:encoder"],
)


class GradientSummary(Answer):
    """The norm and the extremes of a gradient, from a sample of a large one."""

    norm: Number
    min: float | None = Field(description="The smallest finite element; null if there is none.", examples=[1.0])
    max: float | None = Field(description="The largest finite element; null if there is none.", examples=[1.0])
    nan: int = Field(description="The number of NaNs.", examples=[0])
    inf: int = Field(description="The number of infinities.", examples=[0])
    number: Number | None = Field(description="The gradient, if it has one element; else null.", examples=[None])


class GradientFlow(Answer):
    """A gradient that a step sends on."""

    node: str = Field(description="The id of the node that gets it.", examples=["t:x"])
    box: str | None = BOX
    norm: Number
    number: Number | None = Field(description="The gradient, if it has one element; else null.", examples=[None])


class PassStep(Answer):
    """One node of the pass."""

    node: str = Field(examples=["n12"])
    box: str | None = BOX
    grad: GradientSummary = Field(description="The gradient of its outputs.")
    targets: list[GradientFlow] = Field(description="What it sends along its edges.")


class LeafGradient(Answer):
    """The gradient of a leaf, complete."""

    id: str = Field(description="The id of the leaf's node.", examples=["t:x"])
    box: str | None = BOX
    norm: Number
    number: Number | None = Field(description="The gradient, if it has one element; else null.", examples=[None])


class TracedPass(Answer):
    """The steps of a backward pass, in their order."""

    steps: list[PassStep]
    leaves: list[LeafGradient] = Field(description="The leaves whose gradients are complete, in that order.")
    truncated: bool = Field(description="Whether the pass has more steps.", examples=[False])


@query
def trace(
    session: Session, tensor: str, gradient: Any, limit: int, known: Known | None
) -> tuple[dict[str, Any], GraphRecord | None]:
    """The steps of a backward pass as JSON data; and the live graph, if what was observed of its nodes is given."""
    with session.reading():
        root = session.get(tensor)
        seed = None if gradient is None else upload(as_array(from_lists(gradient), root.dtype))
        found = trace_pass(session.tensors, root, seed, limit)
        return found, None if known is None else live_graph(session.tensors, session.tensors.values(), known)[0]


@router.post("/graph/backward", summary="Step through a backward pass", response_model=TracedPass)
@route_options(scope="read")
async def trace_backward(handle: CurrentSession, body: PassArguments) -> Response:
    """The steps of a backward pass over the graph. The pass changes nothing: it stores no gradients and frees nothing.

    Hooks do not run, and no gradient flows through functions whose derivative the client evaluates.
    """
    known = None if body.fold is None else known_of(handle)
    found, record = await handle.call(trace, body.tensor, body.gradient, body.limit, known)
    return Response(await asyncio.to_thread(_with_boxes, found, record, body.fold, body.expand), media_type=JSON)


def _with_boxes(found: dict[str, Any], graph: GraphRecord | None, fold: Fold | None, expand: Sequence[str]) -> bytes:
    """A :class:`TracedPass` as JSON. Its nodes have boxes if there is a graph."""
    add_boxes(found, graph, fold or "auto", expand)
    return json_codec.dumps(found)
