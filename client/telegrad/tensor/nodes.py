"""Nodes that ``grad_fn`` shows: the shadow's, whose hooks are registered in the session as well.

A node has no name in the session. When the user looks at one, its class changes to one that remembers how the node was
found: from which tensor, along which edges. All other nodes are the engine's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from telegrad_engine.autograd.suspension import NODE_HOOK, NODE_PREHOOK
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.graph.hooks import Handle, NodeHooks, around, around_leaf
from telegrad_engine.graph.node import AccumulateGrad

Path = tuple[int, ...]
GONE = (
    "a hook on a node needs a tensor from which the node can be found, and the one that it was found from is gone; "
    "keep it, or register the hook while it lives"
)


def shown(node: Any, tensor: Any, path: Path = ()) -> Any:
    """A node of the shadow as users see it, found from a tensor along a path of edges."""
    if "_found" not in node.__dict__:
        kind: Any = type(node)
        node.__class__ = _shown_class(kind)
    elif node._found[0]() is not None:
        return node
    node._found = weakref.ref(tensor), path
    return node


@cache
def _shown_class(kind: Any) -> Any:
    """``kind`` of node, the same but that hooks on it are registered in the session too."""

    class Shown(kind):  # type: ignore[misc]
        _found: tuple[weakref.ref[Any], Path]

        @property
        def next_functions(self) -> tuple[tuple[Any, int], ...]:
            """The nodes that gradients flow on to, each with the output that it is, as in torch."""
            tensor, path = self._found[0](), self._found[1]
            return tuple(
                (_following(node, tensor, (*path, edge)), output_nr)
                for edge, (node, output_nr) in enumerate(super().next_functions)
            )

        def register_prehook(self, fn: Callable[[Any], Any]) -> Handle:
            """Call ``fn(grad_outputs)`` before the derivatives; a tuple that it returns takes their place."""
            return _register(around(self), self._source(), fn, NODE_PREHOOK)

        def register_hook(self, fn: Callable[[Any, Any], Any]) -> Handle:
            """Call ``fn(grad_inputs, grad_outputs)`` after them; a tuple that it returns replaces the former."""
            return _register(around(self), self._source(), fn, NODE_HOOK)

        def _source(self) -> tuple[Any, Path]:
            tensor = self._found[0]()
            if tensor is None:
                raise InvalidOperation(GONE)
            return tensor, self._found[1]

    Shown.__name__ = Shown.__qualname__ = kind.__name__
    return Shown


class LeafNode(AccumulateGrad):
    """The end of an edge at a leaf."""

    def register_prehook(self, fn: Callable[[Any], Any]) -> Handle:
        """Call ``fn((gradient,))`` before it is accumulated; a tuple that it returns takes its place."""
        return _register(around_leaf(self.variable), (self.variable, ()), fn, NODE_PREHOOK)

    def register_hook(self, fn: Callable[[Any, Any], Any]) -> Handle:
        """Call ``fn((), (gradient,))`` after it was accumulated."""
        return _register(around_leaf(self.variable), (self.variable, ()), fn, NODE_HOOK)


def _following(node: Any, tensor: Any, path: Path) -> Any:
    if isinstance(node, AccumulateGrad):
        return LeafNode(node.variable)
    return node if node is None or tensor is None else shown(node, tensor, path)


def _register(hooks: NodeHooks, source: tuple[Any, Path], fn: Any, kind: str) -> Handle:
    tensor, path = source
    handle: Handle = tensor._add_node_hook(hooks, path, fn, kind)
    return handle
