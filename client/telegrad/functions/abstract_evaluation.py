"""Evaluates registered functions without values: the shapes, dtypes and graph of their results.

A function is data, so everything it does without values depends only on the shapes and dtypes of its tensors. Its
graph is cached as a pattern, by which later calls with such tensors join a lazy graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from telegrad_engine.context import state
from telegrad_engine.graph.node import next_sequence
from telegrad_engine.lru import LRU
from telegrad_engine.program.registered_functions import Applicable, FunctionProgram
from telegrad_engine.tensor.abstract import Meta

from ..tape.graph_pattern import Unrepeatable, graph_since, pattern
from ..tape.lazy_graph import Entry

Key = tuple[Any, ...]
PLAIN = (None, None, None, None)
"""The plain state: no autocast, saved-tensor hooks, anomaly mode or observer."""
PATTERNS = 64
"""The number of patterns kept per function, by last use."""
_known: weakref.WeakKeyDictionary[Applicable, LRU[Key, Entry | None]] = weakref.WeakKeyDictionary()


def evaluate(
    function: Applicable, tensors: Sequence[Any], parameters: Mapping[str, Any], look: Callable[[Sequence[Any]], Any]
) -> Sequence[Any] | Entry:
    """Return the pattern of such a call, or stand-ins for the results: ``look`` makes them from the tensors'."""
    for tensor in tensors:
        tensor._refresh()
    if not isinstance(function, FunctionProgram) or not _is_plain(tensors):
        return look(_aliases(tensors))  # type: ignore[no-any-return]
    own = repr(function.signature.encode_attrs(parameters)) if parameters else ""
    kinds = [(tensor._data.shape, tensor._data.dtype, tensor._requires_grad) for tensor in tensors]
    key = (*kinds, own, state.grad_enabled, state.inference, state.default_dtype)
    known = _known.setdefault(function, LRU(PATTERNS))
    entry: Entry | None = known.get(key)
    if entry is not None:
        return entry
    start, given = next_sequence(), _aliases(tensors)
    results: Sequence[Any] = look(given)
    if key not in known:
        known[key] = _pattern(given, results, start)
    return results


def _aliases(tensors: Sequence[Any]) -> list[Any]:
    return [tensor._alias() for tensor in tensors]


def _is_plain(tensors: Sequence[Any]) -> bool:
    """Whether the result depends only on the tensors' shapes and dtypes, and no two of them are the same."""
    if (state.autocast, state.saved_hooks, state.anomaly, state.observer) != PLAIN:
        return False
    if len({id(tensor._version_counter) for tensor in tensors}) != len(tensors):
        return False
    places = [_place(tensor) for tensor in tensors if tensor._requires_grad]
    return len({*places}) == len(places)


def _place(tensor: Any) -> tuple[Any, ...]:
    """A tensor's place in the graph, of which no nodes are built."""
    if tensor._lazy is not None:
        return id(tensor._lazy), tensor._id
    return id(tensor if tensor._node is None else tensor._node), tensor._output_nr


def _pattern(given: Sequence[Any], results: Sequence[Any], start: int) -> Entry | None:
    """The pattern of the nodes made since ``start``, or None unless they are plain nodes, which lead to each result."""
    if any(type(result) is not Meta or result._base is not None for result in results):
        return None
    try:
        nodes, found = graph_since(start, given, results)
    except Unrepeatable:
        return None
    edges = [edge for _, edge in found if edge is not None]
    if len({*edges}) != len(edges) or any(
        node.kind.evaluate is not None or "hooks" in node.attributes for node in nodes
    ):
        return None
    return pattern(nodes, found)
