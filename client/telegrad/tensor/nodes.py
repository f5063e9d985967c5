"""Nodes that ``grad_fn`` returns: nodes of the client graph whose hooks are also registered in the session.

A node has no name in the session. When the user accesses a node, its class changes to one that stores the path to it:
the tensor and the edges from there. All other nodes are the engine's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from telegrad_engine.autograd.client_evaluation import NODE_HOOK, NODE_PREHOOK
from telegrad_engine.errors import InvalidOperation, TelegradError
from telegrad_engine.graph.differentiation import node_at
from telegrad_engine.graph.hooks import Handle, NodeHooks, around

from ..late_bindings import bindings

Path = tuple[int, ...]
GONE = (
    "a hook or a gradient edge needs a tensor from which its node can be found, and the one that it was found from is "
    "gone or was changed in place; keep it, or make the hook or the edge before"
)

NON_LEAF_GRAD = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
    "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, "
    "use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access the "
    "leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 for more information."
)


def shown(node: Any, tensor: Any, path: Path = ()) -> Any:
    """Return a node of the client graph for the user, with its path of edges from a tensor."""
    if "_found" not in node.__dict__:
        kind: Any = type(node)
        node.__class__ = _shown_class(kind)
    elif source_of(node) is not None:
        return node
    node._found = weakref.ref(tensor), path
    return node


def source_of(node: Any) -> tuple[Any, Path] | None:
    """The tensor from which the session can find a node that was shown, and the path; None if it no longer can."""
    tensor, path = node._found[0](), node._found[1]
    try:
        return (tensor, path) if tensor is not None and node_at(tensor, path) is node else None
    except TelegradError:  # an in-place change moved the tensor
        return None


@cache
def _shown_class(kind: Any) -> Any:
    """A subclass of the node class ``kind`` whose hooks are also registered in the session."""

    class Shown(kind):  # type: ignore[misc]
        _found: tuple[weakref.ref[Any], Path]

        @property
        def next_functions(self) -> tuple[tuple[Any, int], ...]:
            """The nodes that gradients flow on to, each with the number of its output, as in torch."""
            tensor, path = self._found[0](), self._found[1]
            return tuple(
                (_following(node, tensor, (*path, edge)), output_nr)
                for edge, (node, output_nr) in enumerate(super().next_functions)
            )

        def register_prehook(self, fn: Callable[[Any], Any]) -> Handle:
            """Call ``fn(grad_outputs)`` before the derivatives; a tuple that it returns replaces the gradients."""
            return _register(around(self), self._source(), fn, NODE_PREHOOK)

        def register_hook(self, fn: Callable[[Any, Any], Any]) -> Handle:
            """Call ``fn(grad_inputs, grad_outputs)`` after the derivatives; a returned tuple replaces the former."""
            return _register(around(self), self._source(), fn, NODE_HOOK)

        def _source(self) -> tuple[Any, Path]:
            found = source_of(self)
            if found is None:
                raise InvalidOperation(GONE)
            return found

    Shown.__name__ = Shown.__qualname__ = kind.__name__
    return Shown


def _following(node: Any, tensor: Any, path: Path) -> Any:
    if node is not None and node.leaf is not None:
        return shown(node, node.leaf)
    return node if node is None or tensor is None else shown(node, tensor, path)


def _register(hooks: NodeHooks, source: tuple[Any, Path], fn: Any, kind: str) -> Handle:
    tensor, path = source
    handle: Handle = bindings.register_node_hook(tensor, hooks, path, fn, kind)
    return handle
