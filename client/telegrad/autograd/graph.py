"""``telegrad.autograd.graph``: graph nodes and edges, hooks on several tensors, and hooks on saved tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from telegrad_engine.errors import InvalidChoice, InvalidOperation, InvalidValue
from telegrad_engine.graph.differentiation import place, spec_of
from telegrad_engine.graph.hooks import Handle
from telegrad_engine.graph.node import Node as EngineNode
from telegrad_engine.graph.node import accumulator
from telegrad_engine.transforms.saved_tensor_hooks import disable_saved_tensors_hooks

from ..exclusions import attribute_of
from ..tensor.handle import Tensor, handle
from ..tensor.nodes import shown
from . import client_evaluation
from .saved_tensors import allow_mutation_on_saved_tensors, save_on_cpu, saved_tensors_hooks


class Node(ABC):
    """The type of ``grad_fn``: one recorded operation. All nodes are instances; it is not instantiated directly.

    Examples:
        >>> x = tg.ones(2, requires_grad=True)
        >>> node = (x * 2).grad_fn
        >>> node.name(), isinstance(node, tg.autograd.graph.Node)
        ('MulBackward0', True)
    """

    @abstractmethod
    def name(self) -> str:
        """The name, as in ``grad_fn=<MulBackward0>``."""

    @property
    @abstractmethod
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that gradients flow on to, each with the number of its output."""

    @property
    @abstractmethod
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the user's own data about the node."""

    @abstractmethod
    def register_hook(self, fn: Callable[..., Any]) -> Any:
        """Call ``fn(grad_inputs, grad_outputs)`` after the node's derivatives."""

    @abstractmethod
    def register_prehook(self, fn: Callable[..., Any]) -> Any:
        """Call ``fn(grad_outputs)`` before the node's derivatives."""


Node.register(EngineNode)


class _Edge(NamedTuple):
    node: Any
    output_nr: int
    ownership_token: Any = None


class GradientEdge(_Edge):
    """A place in the graph where a gradient arrives: a node and the number of its output.

    It can replace a tensor in ``grad`` and ``backward``. An in-place change of the tensor does not move it. Raises
    RuntimeError if the tensor from which the node was found is gone.

    ``node`` is the node, ``output_nr`` the number of its output, and ``ownership_token`` keeps the node alive.

    Examples:
        >>> x = tg.ones(2, requires_grad=True)
        >>> tg.autograd.graph.get_gradient_edge(x * 2).output_nr
        0
    """

    _tensor: Tensor
    """The leaf, or a tensor in the session that stays at this place."""

    def __new__(cls, node: Any, output_nr: int, ownership_token: Any = None) -> GradientEdge:
        """Return the edge to an output of a node."""
        edge = super().__new__(cls, node, output_nr, ownership_token)
        if isinstance(node, EngineNode):
            edge._tensor = _standing_at(node, output_nr) if node.leaf is None else node.leaf
        return edge


def _standing_at(node: Any, output_nr: int) -> Tensor:
    source, path = node._source()
    tensor = handle(source._recorder, spec_of(node, output_nr))
    tensor._node, tensor._output_nr, tensor._requires_grad = node, output_nr, True
    attrs = {"path": path, "output_nr": output_nr}
    source._recorder.emit("gradient_edge", [source._id], [tensor._id], {k: v for k, v in attrs.items() if v})
    return tensor


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """Return the edge at which the gradient of ``tensor`` arrives. Raises RuntimeError if it does not require grad.

    Examples:
        >>> x = tg.ones(2, requires_grad=True)
        >>> y = x * 2
        >>> edge = tg.autograd.graph.get_gradient_edge(y)
        >>> tg.autograd.grad(y.sum(), edge)
        (tensor([1., 1.]),)
    """
    if not tensor.requires_grad:
        raise InvalidOperation(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients"
        )
    node = tensor.grad_fn
    return GradientEdge(shown(accumulator(tensor), tensor) if node is None else node, tensor.output_nr)


def increment_version(tensor: Any) -> None:
    """Record a modification of one or several tensors that autograd did not see.

    Raises RuntimeError for anything but a tensor or an iterable of tensors.

    Examples:
        >>> x = tg.ones(2)
        >>> tg.autograd.graph.increment_version(x)
        >>> x._version
        1
    """
    tensors = (tensor,) if isinstance(tensor, Tensor) else tensor
    if not isinstance(tensors, Iterable):
        raise InvalidOperation("increment_version expect a Iterable[Tensor] as input")
    for t in tensors:
        if not isinstance(t, Tensor):
            raise InvalidOperation("increment_version expects each element of the iterable to be a tensor")
        if not t.is_inference():  # inference tensors have no version counter
            t._version_counter[0] += 1


# Hooks on several tensors ----------------------------------------------------------------------------


class MultiHandle(Handle):
    """The handle of a hook on several tensors; ``remove()`` removes the hook."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        for each in self._handles:
            each.remove()


def register_multi_grad_hook(tensors: Sequence[Any], fn: Callable[[Any], None], *, mode: str = "all") -> MultiHandle:
    """Call ``fn`` once per pass with the gradients of these tensors.

    With the mode "all", ``fn`` gets a list when the last gradient that the pass computes is ready, with None for those
    it does not compute; with "any", it gets the first gradient. Hooks run on the client, so a pass waits for the
    session at each of the tensors. Raises ValueError for another mode, and with "all" AssertionError for a tensor that
    does not require grad; "any" skips such tensors.

    ``tensors`` require gradients.

    Examples:
        >>> x, y = tg.ones(1, requires_grad=True), tg.ones(1, requires_grad=True)
        >>> handle = tg.autograd.graph.register_multi_grad_hook([x, y], lambda grads: print(len(grads)))
        >>> (x * y).backward()
        2
        >>> handle.remove()
    """
    if mode not in ("all", "any"):
        raise InvalidValue(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        tensors = [tensor for tensor in tensors if tensor.requires_grad]
    if not all(tensor.requires_grad for tensor in tensors):
        raise InvalidChoice("Expected gradient function to be set")
    nodes = [place(tensor)[0] for tensor in tensors]
    running: Any = None
    waiting: set[int] = set()
    grads: list[Any] = []

    def hook(index: int, grad: Any) -> None:
        nonlocal running, waiting, grads
        shadow = client_evaluation.current.shadow
        is_first, running = running is not shadow, shadow
        if mode == "any":
            if is_first:
                fn(grad)
            return
        if is_first:
            reached = {*shadow.order, *shadow.waiting} & (shadow.needed or {*nodes})
            waiting, grads = {i for i, node in enumerate(nodes) if node in reached}, [None] * len(nodes)
        grads[index] = grad
        waiting.discard(index)
        if not waiting:
            fn(list(grads))

    return MultiHandle([tensor.register_hook(partial(hook, i)) for i, tensor in enumerate(tensors)])


__getattr__ = attribute_of("autograd.graph")

__all__ = ["GradientEdge", "Node", "get_gradient_edge", "increment_version", "register_multi_grad_hook"]
__all__ += ["allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]
