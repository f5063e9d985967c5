"""The tensors that a compiled call may touch, and their state before a trace and before each call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ..autograd.backward_callbacks import may_stop
from ..tensor.handle import Tensor


class State(NamedTuple):
    """The state of a tensor before or after a trace."""

    version_counter: list[int]
    version: int
    node: Any
    output_nr: int
    data: Any
    requires_grad: bool
    has_grad: bool
    grad: Tensor | None

    @classmethod
    def of(cls, tensor: Tensor) -> State:
        """A tensor's state now."""
        counter, grad = tensor._version_counter, tensor._grad
        place, requires_grad = (tensor._node, tensor._output_nr), tensor._requires_grad
        return cls(counter, version_of(tensor), *place, tensor._data, requires_grad, tensor._has_grad, grad)

    @property
    def history(self) -> tuple[Any, ...]:
        """The tensor's place in the graph."""
        return self.node, self.output_nr, self.requires_grad


class Inputs:
    """The tensors that a call may touch: its arguments, others that the function reaches, and the gradients of both."""

    def __init__(self, arguments: Sequence[Tensor], around: Sequence[Tensor]) -> None:
        first = [*arguments, *around]
        self.tensors = [*first, *[t._grad for t in first if t._grad is not None]]
        for tensor in self.tensors:
            if tensor._base is not None:
                tensor._refresh()

    @cached_property
    def places(self) -> dict[int, int]:
        """The places of the tensors, by identity."""
        return {id(tensor): place for place, tensor in reversed([*enumerate(self.tensors)])}

    @cached_property
    def counters(self) -> dict[int, int]:
        """The places of the tensors, by the identity of the version counter."""
        return {id(tensor._version_counter): place for place, tensor in reversed([*enumerate(self.tensors)])}

    def signature(self) -> tuple[Any, ...]:
        """What a trace relies on: which tensors are the same, which share memory, and the properties of each."""
        seen: dict[Any, int] = {}
        same = [seen.setdefault(t._id, i) for i, t in enumerate(self.tensors)]
        sharing = [seen.setdefault(id(t._version_counter), i) for i, t in enumerate(self.tensors)]
        return same, sharing, [*map(_properties, self.tensors)]


def _properties(tensor: Tensor) -> tuple[Any, ...]:
    """The properties of a tensor that a trace relies on, without keeping anything alive."""
    data = tensor._data
    return (
        tensor._requires_grad,
        tensor._has_grad,
        tensor._grad is None,
        tensor._lazy is None and tensor._node is None,
        tensor._output_nr,
        tensor._hooks is None and tensor._grad_history is None,
        may_stop(tensor),
        type(tensor._version_counter),
        data.dtype,
        data.shape,
    )


def version_of(tensor: Tensor) -> int:
    """A tensor's version. This works for an inference tensor too, which has none."""
    return list.__getitem__(tensor._version_counter, 0)
