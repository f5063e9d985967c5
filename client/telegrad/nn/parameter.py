"""Parameters and buffers: the tensors that a Module registers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, cast

from telegrad_engine.dtypes import FLOATING
from telegrad_engine.errors import DTypeMismatch, InvalidOperation

from ..tensor.handle import KINDS, ONLY_FLOATING, Tensor, functions, handle, recorder_of


class Parameter(Tensor):
    """A leaf that shares the memory of ``data``; a Module registers it when it is assigned to an attribute.

    ``data`` is a tensor of any shape (an empty one by default), of a floating dtype if ``requires_grad``.

    Raises RuntimeError if it requires gradients and the dtype is not floating.

    Examples:
        >>> weight = tg.nn.Parameter(tg.zeros(2, 3))
        >>> weight.requires_grad, weight.shape
        (True, telegrad.Size([2, 3]))
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        """Create a handle on a detached alias, so that it and ``data`` can be dropped independently."""
        source: Tensor = functions.empty((0,)) if data is None else data
        if not isinstance(source, Tensor):
            raise TypeError(f"a Parameter is made from a Tensor, not from {type(source).__name__}")
        if requires_grad and source._data.dtype not in FLOATING:
            raise DTypeMismatch(ONLY_FLOATING)
        parameter = cast(Parameter, handle(source._recorder, source._data, cls=cls))
        parameter._show_memory_of(source)
        parameter._recorder.emit("detach", [source._id], [parameter._id])
        if requires_grad:
            parameter.requires_grad_()
        return parameter

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        pass

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


def add_parameters(
    module: Any, shapes: Mapping[str, tuple[int, ...]], device: Any, dtype: Any, absent: Container[str] = ()
) -> None:
    """Register uninitialized parameters with these names and shapes, and None for the names in ``absent``."""
    for name, shape in shapes.items():
        made = None if name in absent else Parameter(functions.empty(shape, dtype=dtype, device=device))
        module.register_parameter(name, made)


class _BufferType(type(Tensor)):  # type: ignore[misc]
    """Metaclass that makes ``isinstance(tensor, Buffer)`` true for tensors created as buffers."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferType):
    """A tensor that a Module registers as a buffer when it is assigned to an attribute.

    ``data`` is a tensor (an empty one by default); if ``persistent``, it is part of the state dict.

    Examples:
        >>> class Scaled(tg.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.scale = tg.nn.Buffer(tg.tensor([2.0]))
        >>> list(Scaled().state_dict())
        ['scale']
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        """Create a plain tensor that shares the memory of ``data`` and is marked as a buffer."""
        source: Tensor = functions.empty((0,)) if data is None else data
        buffer: Any = source.detach().requires_grad_(source.requires_grad)
        buffer.persistent, buffer._is_buffer = persistent, True
        return buffer

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        pass


class UninitializedTensorMixin:
    """A tensor whose shape is not known yet; ``materialize`` gives it one."""

    cls_to_become: type[Tensor]

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a parameter or buffer of this shape, with uninitialized values."""
        tensor: Any = self
        made = functions.empty(tuple(shape), dtype=tensor.dtype if dtype is None else dtype, device=device)
        recorder_of((tensor, made)).emit("share_data", [tensor._id, made._id])
        tensor._data, tensor._version_counter = made._data, made._version_counter
        tensor.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        """Raise RuntimeError: the shape is not known yet."""
        raise InvalidOperation(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter of a lazy module, which infers its sizes from the first input.

    ``requires_grad``, ``device`` and ``dtype`` are those of ``Parameter`` and ``zeros``.

    Examples:
        >>> tg.nn.LazyLinear(2).weight
        <UninitializedParameter>
    """

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        """Create a parameter without elements."""
        return super().__new__(cls, functions.empty((0,), device=device, dtype=dtype), requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self)] = copied = type(self)(self.requires_grad, dtype=self.dtype)
        return copied


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer of a lazy module, which infers its sizes from the first input.

    ``requires_grad``, ``device``, ``dtype`` and ``persistent`` are those of ``Buffer`` and ``zeros``.

    Examples:
        >>> tg.nn.LazyBatchNorm1d().running_mean
        <UninitializedBuffer>
    """

    cls_to_become = Tensor
    _is_buffer = True
    persistent = True

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        """Create a buffer without elements."""
        source = functions.empty((0,), device=device, dtype=dtype)
        buffer: Any = handle(source._recorder, source._data, cls=cls)
        buffer._recorder.emit("detach", [source._id], [buffer._id])
        buffer.persistent = persistent
        return buffer

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self)] = copied = type(self)(dtype=self.dtype, persistent=self.persistent)
        return copied


KINDS.add(Parameter)


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


def zero_grads(tensors: Iterable[Tensor], set_to_none: bool = True) -> None:
    """Clear the gradients of many tensors, or fill them with zeros, in one instruction."""
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
            tensor._grad = None  # the session detaches the gradient, but the old handle still has a history
        elif known is not None:
            known._version_counter[0] += 1
        tensor._grad_history = None


def type_name(value: Any) -> str:
    """Return the type of ``value`` as PyTorch's error texts name it: ``torch.FloatTensor``, ``int``."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return f"torch.{value.dtype.kernel_name}Tensor"
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
