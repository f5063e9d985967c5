"""One node of a graph: what it is, what it saves, its derivative, and what flowed through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UnknownResource
from ..graph.node import FREED, Node
from ..graph.node_evaluation import output_nr_at
from ..schema.op import Op
from ..schema.parameters import encode_number
from .derivative_text import derivative_texts
from .record import GraphRecord, Known, Origin, live_graph, name_of_dtype
from .statistics import MAX_SAMPLE, Sample, sample_of, statistics_of

MAX_NEIGHBOURS = 200
"""The most inputs, outputs and ids that the details of a node list."""


MAX_TEXT = 200
"""The most characters of an attribute that is shown as text."""


class SavedTensor(NamedTuple):
    """A tensor that a node saves for its derivative."""

    name: str
    shape: Sequence[int] | None
    dtype: str | None
    nbytes: int
    freed: bool


class NodeFacts(NamedTuple):
    """What there is to say about an operation, in an object that keeps no tensor alive."""

    op: Any
    """The op, or the stand-in that the node of a Function has."""
    attrs: Mapping[str, Any]
    grad_fn: str
    saved: Sequence[SavedTensor]


def facts_of(node: Node) -> NodeFacts:
    """The facts about the node of an operation."""
    return NodeFacts(node.op, node.attrs, node.name(), [*_saved(node)])


def _saved(node: Node) -> Iterator[SavedTensor]:
    op = node.op
    for position, (source, key) in enumerate(node.plan.saves):
        if source not in ("input", "output", "hidden"):
            continue
        name = (
            op.tensor_params[key].name if source == "input" else (op.outputs if source == "output" else op.hidden)[key]
        )
        if node.saved is FREED:
            yield SavedTensor(name, None, None, 0, True)
            continue
        value = node.saved[position]
        for number, array in enumerate(value if isinstance(value, list) else [value]):
            if hasattr(array, "shape"):
                label = f"{name}[{number}]" if isinstance(value, list) else name
                yield SavedTensor(label, array.shape, name_of_dtype(array.dtype), array.nbytes, False)


def describe(
    record: GraphRecord, position: int, facts: NodeFacts | None, value: Sample | None, grad: Sample | None
) -> dict[str, Any]:
    """The details of a vertex as JSON data; ``facts`` are those of an operation."""
    origin: Origin = record.origin_of(position)
    op = facts.op if facts is not None and isinstance(facts.op, Op) else None
    users = [user for user, inputs in enumerate(record.inputs) if position in inputs]
    return {
        "id": record.id_of(position),
        "kind": record.kinds.get(position, "op"),
        "op": record.ops[position],
        "grad_fn": "" if facts is None else facts.grad_fn,
        "attrs": {} if facts is None or op is None else _data_of(op.encode_attrs(facts.attrs)),
        "shape": list(record.shapes[position]),
        "dtype": name_of_dtype(record.dtypes[position]),
        "module": origin.module,
        "line": origin.line,
        "tensors": list(record.tensors.get(position, ()))[:MAX_NEIGHBOURS],
        "saved": [
            {"name": s.name, "shape": s.shape and list(s.shape), "dtype": s.dtype, "bytes": s.nbytes, "freed": s.freed}
            for s in (() if facts is None else facts.saved)
        ],
        "derivative": None if op is None else derivative_texts(op) or None,
        "doc": "" if op is None else op.doc.partition("\n")[0],
        "value": None if value is None else statistics_of(value),
        "grad": None if grad is None else statistics_of(grad),
        "grad_norm": None if (norm := record.grad_norms.get(position)) is None else encode_number(norm),
        "inputs": [record.id_of(source) for source in record.inputs[position][:MAX_NEIGHBOURS]],
        "outputs": [record.id_of(user) for user in users[:MAX_NEIGHBOURS]],
    }


def _data_of(value: Any) -> Any:
    """An attribute as JSON data: text in place of what is none, such as the ops that made a view."""
    if isinstance(value, (list, tuple)):
        return [_data_of(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _data_of(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return encode_number(value) if isinstance(value, float) else str(value)[:MAX_TEXT]


def live_details(tensors: Mapping[str, Any], known: Known, name: str) -> dict[str, Any]:
    """The details of a node of the session's graph. Raises UnknownResource if there is none of this id."""
    record, positions = live_graph(tensors, tensors.values(), known)
    place = next((each for each, position in positions.items() if record.id_of(position) == name), None)
    if place is None:
        raise UnknownResource(f"no node {name!r:.60} in the graph of this session; it never was, or it was freed")
    position = positions[place]
    own = [tensors[each] for each in record.tensors.get(position, ())]
    if position in record.kinds:
        facts, value, grads = None, place._data, [place._grad]
    else:
        facts, grads = facts_of(place), [tensor._grad for tensor in own]
        value = own[0]._data if own else next(_values_in_graph(place, positions), None)
    grad = next((grad._data for grad in grads if grad is not None), None)
    return describe(record, position, facts, _sampled(value), _sampled(grad))


def _sampled(array: Any) -> Sample | None:
    return None if array is None else sample_of(array, MAX_SAMPLE)


def _values_in_graph(node: Any, positions: Mapping[Any, int]) -> Iterator[Any]:
    """The value of a node's first output where the node or one of its users has saved it unchanged."""
    yield from _unchanged(node, "output", 0)
    for user in positions:
        if not isinstance(user, Node):
            continue
        for edge, target in enumerate(user.next_edges):
            saves = ("input", edge) in user.plan.saves and not user.op.has_lists  # then edges are numbered as inputs
            if saves and target is node and output_nr_at(user, edge) == 0:
                yield from _unchanged(user, "input", edge)


def _unchanged(node: Any, source: str, key: int) -> Iterator[Any]:
    if node.saved is FREED or (source, key) not in node.plan.saves:
        return
    at = node.plan.saves.index((source, key))
    unchanged = all(counter[0] == version for position, counter, version in node.versions if position == at)
    if unchanged and hasattr(node.saved[at], "shape"):  # a hook may have packed it
        yield node.saved[at]
