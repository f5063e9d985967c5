"""The tensors that a compiled call may touch, and their state before a trace and before each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..tensor.handle import Tensor

Like = tuple[Any, ...]
"""What a tensor must be like for a trace to be good for it."""


def like(tensor: Tensor) -> Like:
    """What a trace takes for granted of a tensor, without holding on to anything."""
    data = tensor._data
    return (
        tensor._requires_grad,
        tensor._has_grad,
        tensor._grad is None,
        tensor._node is None,
        tensor._output_nr,
        tensor._hooks is None and tensor._grad_history is None,
        type(tensor._version_counter),
        data.dtype,
        data.shape,
    )


class Before(NamedTuple):
    """What a tensor was like when the function began."""

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
        version = list.__getitem__(cell, 0)  # also of an inference tensor, which has none
        place, data = (tensor._node, tensor._output_nr), tensor._data
        return cls(cell, version, *place, data, tensor._requires_grad, tensor._has_grad, tensor._grad)


class Inputs:
    """The tensors that a call may touch: its arguments, those around it, and the gradients of either."""

    def __init__(self, arguments: Sequence[Tensor], around: Sequence[Tensor]) -> None:
        first = [*arguments, *around]
        self.tensors = [*first, *[t._grad for t in first if t._grad is not None]]
        for tensor in self.tensors:
            if tensor._base is not None:
                tensor._refresh()

    def pattern(self) -> list[int]:
        """Which of the tensors are the same, and which share their memory."""
        seen: dict[Any, int] = {}
        found = [seen.setdefault(t._id, i) for i, t in enumerate(self.tensors)]
        return [*found, *[seen.setdefault(id(t._version_counter), i) for i, t in enumerate(self.tensors)]]


def same_spec(a: Any, b: Any) -> bool:
    """Whether two tensors have the same shape and dtype."""
    return a is b or (a.shape == b.shape and a.dtype == b.dtype)
