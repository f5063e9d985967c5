"""Evaluates registered functions without values: the shapes, dtypes and graph of their results.

A function is data, so everything it does without values depends only on the shapes and dtypes of its tensors. Its
graph is cached as a pattern, from which later calls with such tensors build their own graph: only when it is needed,
if the tensors are leaves.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from telegrad_engine.context import state
from telegrad_engine.graph.node import Node, next_sequence, walk
from telegrad_engine.lru import LRU
from telegrad_engine.program.registered_functions import Applicable, FunctionProgram
from telegrad_engine.tensor.abstract import Meta

from ..tape.lazy_graph import BETWEEN, Input, LazyGraph, Passes, as_input, stand_in

_new = object.__new__
Key = tuple[Any, ...]
Edge = tuple[int, int] | None
"""The target of an edge: an earlier node and its output number, or a given tensor (``~`` its position, and 0)."""
VARY = frozenset({"next_edges", "output_nrs", "sequence", "versions"})
"""The attributes of a node that differ from call to call."""
PLAIN = (None, None, None, None)
"""The plain state: no autocast, saved-tensor hooks, anomaly mode or observer."""
PATTERNS = 64
"""The number of patterns kept per function, by last use."""
_known: weakref.WeakKeyDictionary[Applicable, LRU[Key, Pattern | None]] = weakref.WeakKeyDictionary()


class Drawn(NamedTuple):
    """A node of a pattern."""

    kind: type[Node]
    facts: Mapping[str, Any]
    edges: Sequence[Edge]
    versions: Sequence[tuple[int, Any]]
    """The indices of saved tensors, each with its version counter or the position of the given tensor that has it."""


class Pattern(NamedTuple):
    """The graph of a function call."""

    nodes: Sequence[Drawn]
    results: Sequence[tuple[Any, Edge]]
    """For each result its spec and the edge of its gradient."""
    passes: Passes
    """The plain passes, by the position of the result that they start from."""


class PatternGraph(LazyGraph):
    """The nodes of a pattern between given tensors, which are leaves or have no history, and a call's results."""

    __slots__ = ("_names", "_pattern", "_sequence")

    def __init__(self, pattern: Pattern, given: Sequence[Input]) -> None:
        super().__init__()
        self.inputs = dict(enumerate(given))
        self._pattern, self._sequence = pattern, next_sequence()
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._pattern.results)

    def adopt(self, made: Sequence[Any]) -> None:
        """Make these handles the call's results."""
        self._names = [tensor._id for tensor in made]
        for tensor, (data, edge) in zip(made, self._pattern.results, strict=True):
            tensor._data = data
            if edge is not None:
                tensor._requires_grad, tensor._output_nr, tensor._lazy = True, edge[1], self

    def build(self) -> dict[str, Any]:
        """Build the pattern's nodes as of the time of the call."""
        given = self.inputs.values()
        ages = (self._sequence + index * BETWEEN for index in count())
        results = _draw(self._pattern, [*map(stand_in, given)], [version for *_, version in given], ages)
        return {name: result._node for name, result in zip(self._names, results, strict=True)}

    def pass_from(self, root: Any, inputs: Sequence[Any] | None) -> bool:
        """Run a pass from a one-element result over the pattern, once, while the given tensors are unmodified."""
        if root._data.shape != () or not self.unchanged:
            return False
        return self.go_over(root, self._names.index(root._id), self._pattern.passes, inputs)


def evaluate(
    function: Applicable, tensors: Sequence[Any], parameters: Mapping[str, Any], look: Callable[[Sequence[Any]], Any]
) -> Sequence[Any] | PatternGraph:
    """Return stand-ins for the results, from a cached pattern or by calling ``look`` with the tensors' stand-ins."""
    for tensor in tensors:
        tensor._refresh()
    now = [*map(as_input, tensors)]
    if not isinstance(function, FunctionProgram) or not _is_plain(tensors, now):
        return look(_aliases(tensors))  # type: ignore[no-any-return]
    own = repr(function.signature.encode_attrs(parameters)) if parameters else ""
    kinds = [(tensor._data.shape, tensor._data.dtype, tensor._requires_grad) for tensor in tensors]
    key = (*kinds, own, state.grad_enabled, state.inference, state.default_dtype)
    known = _known.setdefault(function, LRU(PATTERNS))
    pattern = known.get(key)
    if pattern is not None and None not in now:
        return PatternGraph(pattern, now)  # type: ignore[arg-type]
    given = _aliases(tensors)
    if pattern is not None:
        return _draw(pattern, given, [each._version_counter[0] for each in given], iter(next_sequence, None))
    start = next_sequence()
    results: Sequence[Any] = look(given)
    if key not in known:
        known[key] = _pattern(given, results, start)
    return results


def _aliases(tensors: Sequence[Any]) -> list[Any]:
    return [tensor._alias() for tensor in tensors]


def _is_plain(tensors: Sequence[Any], now: Sequence[Input | None]) -> bool:
    """Whether the result depends only on the tensors' shapes and dtypes, and no two of them are the same."""
    if (state.autocast, state.saved_hooks, state.anomaly, state.observer) != PLAIN:
        return False
    if len({id(tensor._version_counter) for tensor in tensors}) != len(tensors):
        return False
    if None not in now:
        return True
    places = [(id(t._node), t._output_nr) for t, leaf in zip(tensors, now, strict=True) if leaf is None]
    return len({*places}) == len(places)


def _pattern(given: Sequence[Any], results: Sequence[Any], start: int) -> Pattern | None:
    """The pattern of the nodes made since ``start``, or None unless they are plain nodes."""
    roots = [result._node for result in results if result._node is not None]
    if any(root.leaf is not None for root in roots) or any(
        type(result) is not Meta or result._base is not None for result in results
    ):
        return None
    nodes = [node for node in reversed([*walk(*roots)]) if node.sequence > start]
    places: dict[tuple[int, int], Edge] = {
        (id(each._node), each._output_nr): (~i, 0) for i, each in enumerate(given) if each._node is not None
    }
    for index, node in enumerate(nodes):
        places |= {(id(node), output_nr): (index, output_nr) for output_nr in range(node.width)}
    cells = {id(each._version_counter): i for i, each in enumerate(given)}
    drawn: list[Drawn] = []
    for node in nodes:
        targets = [*zip(node.next_edges, node.output_nrs or (0,) * len(node.next_edges), strict=True)]
        if (
            not node.plain
            or node.evaluate is not None
            or any(t is not None and (id(t), output_nr) not in places for t, output_nr in targets)
        ):
            return None
        drawn.append(
            Drawn(
                type(node),
                {name: value for name, value in vars(node).items() if name not in VARY},
                [None if target is None else places[id(target), output_nr] for target, output_nr in targets],
                [(position, cells.get(id(cell), cell)) for position, cell, _ in node.versions],
            )
        )
    if any((id(root), 0) not in places for root in roots):
        return None
    edges = [places[id(r._node), r._output_nr] if r._node is not None else None for r in results]
    return Pattern(drawn, [*zip([r._data for r in results], edges, strict=True)], {})


def _draw(pattern: Pattern, given: Sequence[Any], seen: Sequence[int], ages: Iterator[float]) -> list[Meta]:
    """Build the nodes of a pattern and its results from these stand-ins, whose versions were ``seen``."""
    nodes: list[Node] = []

    def target(edge: Edge) -> tuple[Any, int]:
        if edge is None:
            return None, 0
        place, output_nr = edge
        return (nodes[place], output_nr) if place >= 0 else (given[~place]._node, given[~place]._output_nr)

    for kind, facts, edges, versions in pattern.nodes:
        node: Any = _new(kind)
        vars(node).update(facts)
        node.sequence = next(ages)
        node.next_edges, output_nrs = zip(*map(target, edges), strict=True)
        if any(output_nrs):
            node.output_nrs = output_nrs
        if versions:
            node.versions = tuple(
                [(i, given[c]._version_counter, seen[c]) if type(c) is int else (i, c, c[0]) for i, c in versions]
            )
        nodes.append(node)
    results = []
    for data, edge in pattern.results:
        result = Meta(data)
        if edge is not None:
            result._node, result._output_nr = target(edge)
            result._requires_grad = True
        results.append(result)
    return results
