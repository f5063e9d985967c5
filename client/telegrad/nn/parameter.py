"""Parameters: the tensors of a model that an optimizer moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from telegrad_engine.dtypes import FLOATING
from telegrad_engine.errors import DTypeMismatch

from ..tensor import KINDS, ONLY_FLOATING, Tensor, functions, handle, recorder_of


class Parameter(Tensor):
    """A leaf over the memory of ``data`` that a Module finds when it is assigned to an attribute.

    ``data`` is a tensor of any shape (an empty one by default), of a floating dtype if ``requires_grad``.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        """A handle of its own on a detached alias: it and ``data`` can be dropped independently."""
        source: Tensor = functions.empty((0,)) if data is None else data
        if not isinstance(source, Tensor):
            raise TypeError(f"a Parameter is made from a Tensor, not from {type(source).__name__}")
        if requires_grad and source._data.dtype not in FLOATING:
            raise DTypeMismatch(ONLY_FLOATING)
        parameter = cast(Parameter, handle(source._recorder, source._data, cls=cls))
        parameter._cell = source._cell
        parameter._recorder.emit("detach", [source._id], [parameter._id])
        if requires_grad:
            parameter.requires_grad_()
        return parameter

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        pass

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


KINDS.add(Parameter)


def zero_grads(tensors: Iterable[Tensor], set_to_none: bool = True) -> None:
    """Clear the gradients of many tensors, or fill them with zeros, with one instruction."""
    held = [tensor for tensor in tensors if tensor._has_grad]
    if not held:
        return
    names: tuple[Any, ...] = tuple([tensor._id for tensor in held])
    recorder_of(held).emit("zero_grad", [names], (), {} if set_to_none else {"set_to_none": False})
    for tensor in held:
        known = tensor._grad
        if set_to_none:
            tensor._grad, tensor._has_grad = None, False
        elif known is not None and known._requires_grad:
            tensor._grad = None  # the session detaches it: the old handle has a history, the gradient none
        elif known is not None:
            known._cell[0] += 1
        tensor._grad_history = None


def type_name(value: Any) -> str:
    """The type of ``value`` as PyTorch's error texts name it: ``torch.FloatTensor``, ``int``."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return f"torch.{value.dtype.kernel_name}Tensor"
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
