"""Hooks on tensors and nodes: their storage and calls.

A tensor's hooks take its gradient and may replace it. The hooks of a leaf are stored on the leaf; those of a non-leaf
on the node that produced it, by output, because its gradient arrives there. A node's own hooks run before and after its
derivatives. The pass follows torch's order: the tensor's hooks, ``retain_grad``, the node's prehooks, the derivatives,
the node's hooks. At a leaf, the gradient is accumulated in place of the derivatives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import InvalidArgument, InvalidOperation


class Handle:
    """The handle of a registered hook; ``remove()`` removes the hook."""

    def __init__(self, hooks: Any, key: int, *flags: dict[int, bool]) -> None:
        self.hooks, self.id, self._flags = hooks, key, flags

    def remove(self) -> None:
        """Remove the hook, if it was not removed before, and its ``flags``."""
        for found in (self.hooks, *self._flags):
            found.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Hooks(dict[int, Any]):
    """Hooks by registration order."""

    def add(self, hook: Any, prepend: bool = False) -> Handle:
        """Append a hook, or with ``prepend`` put it before the others."""
        earlier = list(self) if prepend else ()
        key = max(self, default=-1) + 1
        self[key] = hook
        for other in earlier:
            self[other] = self.pop(other)
        return Handle(self, key)

    def __bool__(self) -> bool:
        return True


class TensorHooks(Hooks):
    """The hooks of a tensor, and a weak reference to the tensor if it retains its gradient."""

    retain: weakref.ref[Any] | None = None
    stored: Hooks | None = None
    """For a leaf: the hooks that are called with it after its gradient was accumulated."""
    around: NodeHooks | None = None
    """For a leaf: the hooks of its AccumulateGrad node."""


class NodeHooks(dict[int, TensorHooks]):
    """The hooks of a node's outputs, by output, and those around its derivatives."""

    before: Hooks | None = None
    after: Hooks | None = None
    packed = False
    """Whether the node's saved tensors are packed (see saved_tensor_hooks.py)."""

    @property
    def surround(self) -> bool:
        """Whether the node must be evaluated step by step."""
        return self.packed or len(self.before or ()) > 0 or len(self.after or ()) > 0

    def add_before(self, hook: Any) -> Handle:
        """Append a prehook."""
        self.before = self.before or Hooks()
        return self.before.add(hook)

    def add_after(self, hook: Any) -> Handle:
        """Append a hook that runs after the derivatives."""
        self.after = self.after or Hooks()
        return self.after.add(hook)

    def __bool__(self) -> bool:
        return True


# Registering ---------------------------------------------------------------------------------


def hooks_of(tensor: Any) -> TensorHooks:
    """Return the hooks of a tensor, creating them if needed."""
    node = tensor.grad_fn
    if node is None:
        tensor._hooks = tensor._hooks or TensorHooks()
        own: TensorHooks = tensor._hooks
        return own
    return around(node).setdefault(tensor._output_nr, TensorHooks())


def around(node: Any) -> NodeHooks:
    """Return the hooks of a node, creating them if needed."""
    if node.hooks is None:
        node.hooks, node.plain = NodeHooks(), False
    own: NodeHooks = node.hooks
    return own


def add_stored(leaf: Any, hook: Callable[[Any], Any]) -> Handle:
    """Register ``hook(leaf)`` to be called after the leaf's gradient is accumulated."""
    hooks = hooks_of(leaf)
    hooks.stored = hooks.stored or Hooks()
    return hooks.stored.add(hook)


def add_retain(tensor: Any) -> None:
    """Make the pass store the gradient of this non-leaf in ``.grad``."""
    hooks_of(tensor).retain = weakref.ref(tensor)


def move_retain(tensor: Any, node: Any, output_nr: int) -> bool:
    """Move ``retain_grad`` of ``tensor``, if it was called, from its old ``node`` to its new one; return if it was."""
    hooks = node.hooks.get(output_nr) if node.hooks else None
    if hooks is None or hooks.retain is None or hooks.retain() is not tensor:
        return False
    hooks.retain = None
    around(tensor._node).setdefault(tensor._output_nr, TensorHooks()).retain = weakref.ref(tensor)
    return True


def taken_by_leaf(node: Any, output_nr: int) -> TensorHooks | None:
    """Return the hooks of an output that becomes a leaf, which keeps them but retains no gradient."""
    hooks: TensorHooks | None = node.hooks.get(output_nr) if node.hooks else None
    if hooks is not None:
        hooks.retain = None
    return hooks


def on_path(node: Any, length: int) -> bool:
    """Whether ``node``, or one of the ``length`` nodes from it on along the first edges, has hooks."""
    while node is not None and length:
        if node.hooks is not None:
            return True
        node, length = node.next_edges[0] if node.next_edges else None, length - 1
    return False


def is_retained(tensor: Any) -> bool:
    """Whether ``add_retain`` was called for this tensor."""
    node = tensor._node
    hooks = node.hooks.get(tensor._output_nr) if node.hooks else None
    return hooks is not None and hooks.retain is not None


# Calling -------------------------------------------------------------------------------------


def run_hooks(hooks: TensorHooks, grad: Any) -> Any:
    """Run a tensor's hooks in order, store the result if the tensor retains its gradient, and return it.

    ``grad`` is None if no gradient reached this output of a multi-output node.
    """
    for hook in list(hooks.values()):
        replaced = hook(grad)
        if replaced is not None:
            grad = check_replacement(hook, replaced, grad)
    if hooks.retain is not None and grad is not None:
        tensor = hooks.retain()
        if tensor is not None:
            tensor._grad = grad if tensor._grad is None else tensor._grad + grad
    return grad


def run_around(hooks: Hooks | None, grads: tuple[Any, ...], *outer: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run a node's prehooks or hooks; return ``grads`` as they left them.

    Prehooks take the gradients of the node's outputs, hooks its results and, as ``outer``, those gradients.
    """
    for hook in list((hooks or {}).values()):
        replaced = hook(grads, *outer)
        if replaced is not None:
            grads = _all_checked(hook, replaced, grads)
    return grads


def run_stored(leaf: Any, hooks: Hooks) -> None:
    """Call a leaf's post-accumulate hooks, which must return None."""
    for hook in list(hooks.values()):
        returned = hook(leaf)
        if returned is not None:
            raise InvalidArgument(f"expected Variable, but hook returned '{type(returned).__name__}'")


def _all_checked(hook: Any, replaced: Any, before: Sequence[Any]) -> tuple[Any, ...]:
    if not isinstance(replaced, tuple):
        raise InvalidArgument(f"expected tuple, but hook returned '{type(replaced).__name__}'")
    if len(replaced) != len(before):
        raise InvalidOperation(
            f"hook '{_name(hook)}' has returned an incorrect number of values "
            f"(got {len(replaced)}, but expected {len(before)})"
        )
    return tuple(
        None if new is None else check_replacement(hook, new, old) for new, old in zip(replaced, before, strict=True)
    )


def check_replacement(hook: Any, new: Any, old: Any) -> Any:
    """Return ``new``, the gradient that a hook returned, or raise unless it can replace ``old``."""
    if not hasattr(new, "_data"):
        raise InvalidArgument(f"expected Variable, but hook returned '{type(new).__name__}'")
    if old is None:
        raise InvalidOperation("can't replace a None gradient with a non-None value")
    if new._data.dtype != old._data.dtype:
        kinds = f"was torch.{old.dtype.kernel_name}Tensor got torch.{new.dtype.kernel_name}Tensor"
        raise InvalidOperation(f"hook '{_name(hook)}' has changed the type of value ({kinds})")
    if new._data.shape != old._data.shape:
        raise InvalidOperation(f"hook '{_name(hook)}' has changed the size of value")
    return new


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", "<unknown>")
