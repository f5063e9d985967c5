"""The forward-mode level of this thread, which holds the tangents of tensors."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...context import state
from ...graph.node import Node
from ..custom_function.ctx import is_tensor
from .dual import check_size


class _Active(threading.local):
    level: Level | None = None
    enabled: bool = True
    """Whether forward mode is on, even outside a level."""


active = _Active()


class Level:
    """The tangents by tensor. A tangent is discarded with its tensor, and all tangents when the level ends."""

    def __init__(self) -> None:
        self._tangents: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._saved: weakref.WeakKeyDictionary[Node, Mapping[int, Any]] = weakref.WeakKeyDictionary()
        self._suspended = 0

    @property
    def is_suspended(self) -> bool:
        """Whether tensors currently have no tangents."""
        return self._suspended > 0

    @property
    def enabled(self) -> bool:
        """Whether results currently get tangents."""
        return active.enabled and not self._suspended and not state.inference

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Return a context in which tensors have no tangents."""
        self._suspended += 1
        try:
            yield
        finally:
            self._suspended -= 1

    def end(self) -> None:
        """Discard all tangents."""
        self._tangents.clear()
        self._saved.clear()

    # Tensors -----------------------------------------------------------------------------

    def of(self, tensor: Any) -> Any:
        """Return the tangent of a tensor, or None. A view's tangent is a view of its base's tangent."""
        entry = self._tangents.get(id(tensor))
        if entry is not None:
            return entry[1]
        base: Any = tensor._base
        if base is None or (tangent := self.of(base)) is None:
            return None
        with self.suspended():
            for op, attrs, index in (*base._inverse_chain, *tensor._view_chain):
                result = tangent._apply(op, (tangent,), attrs)
                tangent = result[index] if isinstance(result, (list, tuple)) else result
        self.give(tensor, tangent)
        return tangent

    def give(self, tensor: Any, tangent: Any) -> None:
        """Set the tangent of a tensor."""
        check_size(tensor, tangent)
        self._put(tensor, tangent)

    def strip(self, tensor: Any) -> None:
        """Make a tensor have no tangent, even if its base has one."""
        self._put(tensor, None)

    def _put(self, tensor: Any, tangent: Any) -> None:
        key, tangents = id(tensor), self._tangents
        tangents[key] = weakref.ref(tensor, lambda _: tangents.pop(key, None)), tangent

    def concerns(self, values: Iterable[Any]) -> bool:
        """Whether any of an operation's arguments has a tangent."""
        return any(
            self.concerns(x) if isinstance(x, tuple) else is_tensor(x) and self.of(x) is not None for x in values
        )

    # Saved tensors -----------------------------------------------------------------------

    def remember(self, node: Node | None, tangents: Sequence[Any], results: Sequence[Any]) -> None:
        """Store the tangents of a node's saved inputs and results, for a backward inside this level."""
        if node is None:
            return
        found: dict[int, Any] = {}
        for position, (source, key) in enumerate(node.plan.saves):
            tangent = tangents[key] if source == "input" else results[key] if source == "output" else None
            if tangent is not None:
                found[position] = tangent
        if found:
            self._saved[node] = found

    def remember_outputs(self, node: Node | None, tangents: Sequence[Any]) -> None:
        """Store the tangents of a Function's outputs, which it may have saved."""
        if node is not None:
            self._saved[node] = {
                output_nr: tangent for output_nr, tangent in enumerate(tangents) if tangent is not None
            }

    def restore_output(self, node: Node | None, output_nr: int, output: Any) -> None:
        """Set the tangent of an unpacked output that a Function saved."""
        tangent = None if node is None else self._saved.get(node, {}).get(output_nr)
        if tangent is not None:
            self.give(output, tangent)

    def restore(self, node: Node, values: Sequence[Any]) -> None:
        """Set the tangents of a node's unpacked saved tensors."""
        for position, tangent in self._saved.get(node, {}).items():
            value = values[position]
            for tensor, own in zip(value, tangent, strict=True) if isinstance(value, list) else [(value, tangent)]:
                if own is not None and is_tensor(tensor):
                    self.give(tensor, own)


def current() -> Level | None:
    """Return the level in which results currently get tangents, or None."""
    level = active.level
    return level if level is not None and level.enabled else None


def tangent_of(tensor: Any) -> Any:
    """Return the current tangent of a tensor, or None."""
    level = current()
    return None if level is None else level.of(tensor)
