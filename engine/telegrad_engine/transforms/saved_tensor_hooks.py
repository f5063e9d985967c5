"""Hooks on saved tensors: pack them when they are saved (to disk, to a smaller dtype), unpack them in backward.

While a pair of hooks is active, each tensor that a node saves is passed to ``pack``, and the node keeps only the
return value. Such a node is evaluated step by step, and its saved values are unpacked first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np

from ..context import no_grad, observed_by, observer_of, state
from ..errors import InvalidArgument, InvalidOperation
from ..graph.hooks import around
from ..graph.node import Node
from ..instrumentation import Observer

Pack = Callable[[Any], Any]
IN_PLACE = (
    "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be "
    "modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if you need "
    "to perform in-place operations on the input to a pack hook."
)


class saved_tensors_hooks:
    """Within the block, store ``pack_hook(tensor)`` for each saved tensor; backward calls ``unpack_hook`` on it.

    ``unpack_hook`` must return a tensor with the same values. Only the innermost pair of hooks applies.
    """

    def __init__(self, pack_hook: Pack, unpack_hook: Pack) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._exits: list[ExitStack] = []

    def __enter__(self) -> None:
        if state.saved_hooks_refused is not None:
            raise InvalidOperation(state.saved_hooks_refused)
        for hook in (self.pack_hook, self.unpack_hook):
            if not callable(hook):
                raise InvalidArgument(f"saved_tensors_hooks(): a hook must be callable, not {type(hook).__name__}")
        self._exits.append(ExitStack())
        self._exits[-1].enter_context(self._packing())

    def __exit__(self, *exc: object) -> None:
        self._exits.pop().close()

    def _packing(self) -> AbstractContextManager[None]:
        """Return a context in which tensors are packed."""
        return _packing((self.pack_hook, self.unpack_hook))


@contextmanager
def _packing(pair: tuple[Pack, Pack]) -> Iterator[None]:
    before, state.saved_hooks = state.saved_hooks, pair
    try:
        with observed_by(Packing()):
            yield
    finally:
        state.saved_hooks = before


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within the block, using :class:`saved_tensors_hooks` raises RuntimeError with this text.

    ``error_message`` is the text.

    Examples:
        >>> with tg.autograd.graph.disable_saved_tensors_hooks("not here"):
        ...     print(tg.ones(2).sum())
        tensor(2.)
    """
    before = state.saved_hooks_refused, state.saved_hooks
    if observer_of(Packing) is not None:
        raise InvalidOperation(error_message)
    state.saved_hooks_refused = error_message
    try:
        yield
    finally:
        state.saved_hooks_refused, state.saved_hooks = before


class Packed:
    """The return value of a pack hook in place of a saved tensor, and the hook that unpacks it."""

    __slots__ = ("_kept", "_unpack")

    def __init__(self, tensor: Any, pack: Pack, unpack: Pack) -> None:
        version = tensor._version
        before, state.saved_hooks = state.saved_hooks, None  # tensors that the hook itself saves are not packed
        try:
            with no_grad():
                self._kept = pack(tensor)
        finally:
            state.saved_hooks = before
        if tensor._version != version:
            raise InvalidOperation(IN_PLACE)
        self._unpack = unpack

    @property
    def kept(self) -> Any:
        """The return value of the pack hook."""
        return self._kept

    def unpack(self) -> Any:
        """Return the tensor that the hook unpacks."""
        with no_grad():
            tensor = self._unpack(self._kept)
        if not hasattr(tensor, "_data"):
            raise InvalidArgument(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(tensor).__name__}"
            )
        return tensor

    def rebuild(self, cls: type[Any]) -> Any:
        """Return a new tensor of this class with the value that the hook unpacks."""
        tensor = object.__new__(cls)
        tensor._data, tensor._version_counter = self.unpack()._data, [0]
        tensor._lie_as(tensor._strided())
        return tensor


class Packing(Observer):
    """The observer of a pair of hooks, which packs the tensors that nodes save."""

    def node(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Pack the saved tensors of a node, unless there is an inner pair of hooks."""
        pair = state.saved_hooks
        if pair is not None and node.plan.holds_tensors and observer_of(Packing) is self:
            _pack(node, inputs, outputs, pair)
        super().node(node, inputs, outputs)


def _pack(node: Node, inputs: Sequence[Any], outputs: Sequence[Any], pair: tuple[Pack, Pack]) -> None:
    """Replace the node's saved tensors by their packed values."""
    node.saved = tuple(
        [
            _packed(value, _origin(save, inputs, outputs), outputs[0], pair)
            for value, save in zip(node.saved, node.plan.saves, strict=True)
        ]
    )
    node.versions = tuple((at, [0], 0) for at, _, _ in node.versions)
    around(node).packed = True


def _origin(save: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """The tensor or tensors whose value a node saved; None for other values."""
    if save.source == "input":
        return inputs[save.key]
    return outputs[save.key] if save.source == "output" else None


def _packed(value: Any, tensor: Any, like: Any, pair: tuple[Pack, Pack]) -> Any:
    if isinstance(value, list):
        return [_packed(v, t, like, pair) for v, t in zip(value, tensor or value, strict=True)]
    if tensor is None and isinstance(value, np.ndarray):
        tensor = like._new_like(value)
    # Numbers, attributes and shapes are not packed.
    return Packed(tensor, *pair) if hasattr(tensor, "_version_counter") else value
