"""A level of forward mode, which holds the tangents of tensors."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...context import state
from ...errors import ShapeMismatch
from ...schema.op import Op
from ..custom_function.ctx import is_tensor

Execute = Callable[[Op, tuple[Any, ...], Mapping[str, Any]], Any]


def check_size(tensor: Any, tangent: Any) -> None:
    """Raise ShapeMismatch unless the tangent has the tensor's shape."""
    if tangent.shape != tensor.shape:
        raise ShapeMismatch(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
            f"not supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )


class Level:
    """The tangents by tensor. A tangent is discarded with its tensor, and all tangents when the level ends.

    A subclass sees the ops of the thread while it is active, and calls the functions of ``push.py`` for them. The
    ``switch`` has an attribute ``enabled``, which is false while the user has switched forward mode off.
    """

    def __init__(self, switch: Any) -> None:
        self._switch = switch
        self._tangents: dict[int, tuple[weakref.ref[Any], Any]] = {}

    # For subclasses ----------------------------------------------------------------------

    def activated(self) -> AbstractContextManager[None]:
        """Return a context in which the level sees the ops of this thread."""
        raise NotImplementedError

    def suspended(self) -> AbstractContextManager[None]:
        """Return a context in which tensors have no tangents."""
        raise NotImplementedError

    @property
    def is_suspended(self) -> bool:
        """Whether tensors currently have no tangents."""
        raise NotImplementedError

    def pushed(
        self, execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tangents: Sequence[Any]
    ) -> tuple[Sequence[Any], Any]:
        """Return the tangents of an op's results (None for results without a derivative).

        The second result is that of the op if this executed it on these inputs, or else None.
        """
        raise NotImplementedError

    def remember(self, outputs: Sequence[Any], tangents: Sequence[Any], results: Sequence[Any]) -> None:
        """Called after an op with the tangents of its inputs and results, for a backward inside this level."""

    def remember_outputs(self, node: Any, tangents: Sequence[Any]) -> None:
        """Called after a Function with the tangents of its outputs, which it may have saved."""

    # Tangents ----------------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        """Whether results currently get tangents."""
        return self._switch.enabled and not self.is_suspended and not state.inference

    def end(self) -> None:
        """Discard all tangents."""
        self._tangents.clear()

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

    def has_tangents(self, values: Iterable[Any]) -> bool:
        """Whether any of an operation's arguments currently has a tangent."""
        return self.enabled and self._any(values)

    def _any(self, values: Iterable[Any]) -> bool:
        return any(self._any(x) if isinstance(x, tuple) else is_tensor(x) and self.of(x) is not None for x in values)
