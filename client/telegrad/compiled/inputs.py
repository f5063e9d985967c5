"""The tensors that a compiled call may touch, and their state before a trace and before each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..tensor.handle import Tensor

Like = tuple[Any, ...]
"""The properties that a tensor must have for a trace to be valid for it."""


def like(tensor: Tensor) -> Like:
    """The properties of a tensor that a trace relies on, without keeping anything alive."""
    data = tensor._data
    return (
        tensor._requires_grad,
        tensor._has_grad,
        tensor._grad is None,
        tensor._lazy is None and tensor._node is None,
        tensor._output_nr,
        tensor._hooks is None and tensor._grad_history is None,
        type(tensor._version_counter),
        data.dtype,
        data.shape,
    )


class Before(NamedTuple):
    """The state of a tensor when the function began."""

    cell: list[int]
    version: int
    node: Any
    output_nr: int
    data: Any
    requires_grad: bool
    has_grad: bool
    grad: Tensor | None

    @classmethod
    def of(cls, tensor: Tensor) -> Before:
        """A tensor's state now."""
        cell = tensor._version_counter
        version = list.__getitem__(cell, 0)  # works for an inference tensor too, which has no version
        place, data = (tensor._node, tensor._output_nr), tensor._data
        return cls(cell, version, *place, data, tensor._requires_grad, tensor._has_grad, tensor._grad)


class Inputs:
    """The tensors that a call may touch: its arguments, others that the function reaches, and the gradients of both."""

    def __init__(self, arguments: Sequence[Tensor], around: Sequence[Tensor]) -> None:
        first = [*arguments, *around]
        self.tensors = [*first, *[t._grad for t in first if t._grad is not None]]
        for tensor in self.tensors:
            if tensor._base is not None:
                tensor._refresh()

    def pattern(self) -> list[int]:
        """Which of the tensors are the same, and which share memory."""
        seen: dict[Any, int] = {}
        found = [seen.setdefault(t._id, i) for i, t in enumerate(self.tensors)]
        return [*found, *[seen.setdefault(id(t._version_counter), i) for i, t in enumerate(self.tensors)]]


def same_spec(a: Any, b: Any) -> bool:
    """Whether two tensors have the same shape and dtype."""
    return a is b or (a.shape == b.shape and a.dtype == b.dtype)
