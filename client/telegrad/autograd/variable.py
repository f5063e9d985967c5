"""``telegrad.autograd.Variable``: the deprecated name of a tensor."""

from __future__ import annotations

from typing import Any

from ..tensor.handle import Tensor


class _Variables(type):
    def __call__(cls, data: Any, requires_grad: bool = False, volatile: bool | None = None) -> Tensor:
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor)


class Variable(metaclass=_Variables):
    """``Variable(tensor, requires_grad)`` returns a tensor that shares the memory; every tensor is an instance.

    ``data`` is the tensor; ``volatile`` is ignored with a warning.

    Examples:
        >>> tg.autograd.Variable(tg.ones(2), requires_grad=True)
        tensor([1., 1.], requires_grad=True)
    """
