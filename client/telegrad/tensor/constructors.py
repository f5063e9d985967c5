"""Tensors made from values: of other libraries, of buffers, and by torch's legacy constructors, such as ``Tensor(…)``.

Values are copied; no memory is shared, except between tensors of a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from telegrad_engine.dtypes import ALL, WIDE_UNSIGNED, DType, parse
from telegrad_engine.dtypes import from_numpy as of_numpy
from telegrad_engine.errors import InvalidArgument, InvalidValue
from telegrad_engine.schema.signature import given
from telegrad_engine.shapes import Size
from telegrad_engine.tensor.attributes import LEGACY, legacy_name

from ..sessions.session import current
from .devices import check_device
from .handle import Tensor, functions, upload
from .host_values import host_array

CALLS = """
 * (*, torch.device device = None)
 * (torch.Storage storage)
 * (Tensor other)
 * (tuple of ints size, *, torch.device device = None)
 * (object data, *, torch.device device = None)
"""


# Other libraries -----------------------------------------------------------------------------


def from_torch(tensor: Any) -> Tensor:
    """Return a tensor in the current session with the values and dtype of a torch tensor, outside any graph.

    ``tensor`` is torch's. Raises TypeError for anything else.

    Examples:
        >>> import torch
        >>> tg.from_torch(torch.ones(2))
        tensor([1., 1.])
    """
    if not (hasattr(tensor, "detach") and hasattr(tensor, "numpy")):
        raise InvalidArgument(f"expected a torch.Tensor (got {type(tensor).__name__})")
    return upload(current().recorder, host_array(tensor))


def from_numpy(array: Any) -> Tensor:
    """Return a tensor with a copy of an array's values, and its dtype.

    Examples:
        >>> import numpy as np
        >>> tg.from_numpy(np.array([1.0, 2.0]))
        tensor([1., 2.], dtype=telegrad.float64)
    """
    if not isinstance(array, np.ndarray):
        raise InvalidArgument(f"expected np.ndarray (got {type(array).__name__})")
    return upload(current().recorder, array)


def from_dlpack(data: Any) -> Tensor:
    """Return a tensor with a copy of the values of ``data``, a ``__dlpack__`` object with memory of this process.

    Examples:
        >>> import numpy as np
        >>> tg.from_dlpack(np.arange(3))
        tensor([0, 1, 2])
    """
    if isinstance(data, Tensor):
        return data.detach().clone()
    return upload(current().recorder, np.from_dlpack(data))


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """Return ``obj`` as a tensor: a tensor of this dtype is shared unless ``copy`` is true, all else is copied.

    Raises ValueError if ``copy`` is False and a copy is needed: for a tensor of another dtype, and for anything but a
    tensor, since the session owns the memory of tensors.

    ``dtype`` None keeps that of ``obj``; ``device`` can only be that of the session; ``requires_grad`` is that of the
    result.

    Examples:
        >>> tg.asarray([1.0, 2.0])
        tensor([1., 2.])
    """
    wanted = None if dtype is None else parse(dtype)
    if device is not None:
        check_device(device)
    if not isinstance(obj, Tensor):
        if copy is False:
            raise InvalidValue("can't alias arbitrary sequence into a tensor.")
        return upload(current().recorder, obj, wanted, requires_grad)
    same = wanted is None or obj.dtype is wanted
    if copy is False and not same and wanted is not None:
        raise InvalidValue(
            f"can't alias tensor with dtype '{obj.dtype.kernel_name}' into dtype '{wanted.kernel_name}'."
        )
    if same and not copy:
        return obj if obj.requires_grad == requires_grad else obj.detach().requires_grad_(requires_grad)
    made: Tensor = obj.detach().to(dtype=wanted or obj.dtype, copy=True)
    return made.requires_grad_(requires_grad)


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """Return a tensor with a copy of ``count`` numbers from a buffer, after ``offset`` bytes; -1 means all.

    Raises ValueError for a buffer that is too short, or whose rest is not a multiple of the dtype's size.

    ``dtype`` is that of the numbers, and ``requires_grad`` that of the result.

    Examples:
        >>> tg.frombuffer(bytes([1, 2, 3]), dtype=tg.uint8)
        tensor([1, 2, 3], dtype=telegrad.uint8)
    """
    kind = parse(dtype)
    length = len(memoryview(buffer).cast("B"))
    if not length or not count:
        raise InvalidValue(f"both buffer length ({length}) and count ({count}) must not be 0")
    if offset < 0 or offset >= length:
        raise InvalidValue(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} bytes) minus 1"
        )
    if count > 0 and offset + count * kind.itemsize > length:
        raise InvalidValue(
            f"requested buffer length ({count} * {kind.itemsize} bytes) after offset ({offset} bytes) must not be "
            f"greater than actual buffer length ({length} bytes)"
        )
    if count < 0 and (length - offset) % kind.itemsize:
        raise InvalidValue(
            f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a multiple of element size "
            f"({kind.itemsize})"
        )
    return upload(current().recorder, np.frombuffer(buffer, kind.numpy, count, offset), None, requires_grad)


def is_array(value: Any) -> bool:
    """Whether ``value`` is a tensor, of this or another library, or a NumPy array."""
    return isinstance(value, (Tensor, np.ndarray, np.generic)) or (hasattr(value, "detach") and hasattr(value, "numpy"))


def in_session_of(tensor: Tensor, value: Any) -> Tensor:
    """Return ``value`` as a tensor in the session of ``tensor``; a value from elsewhere is fetched and uploaded."""
    if isinstance(value, Tensor):
        if value._recorder is tensor._recorder:
            return value
        value = value.detach().numpy()
    return upload(tensor._recorder, value)


# Legacy constructors -------------------------------------------------------------------------


def construct(dtype: DType | None, args: Sequence[Any], kwargs: dict[str, Any], cls: type[Tensor] = Tensor) -> Tensor:
    """Return a tensor made from a shape, from values, or from another tensor, whose memory it shares.

    A ``dtype`` of None is the default dtype; ``cls`` is Tensor or a subclass. A tensor made from a shape has
    unspecified values (zeros). Raises TypeError for other arguments.
    """
    device = kwargs.pop("device", None)
    if kwargs or (len(args) > 1 and not all(map(_is_size, args))):
        kwargs = kwargs if device is None else {**kwargs, "device": device}
        raise InvalidArgument(
            f"new() received an invalid combination of arguments - got ({given(args, kwargs)}), but expected one of:"
            f"{CALLS}"
        )
    if device is not None:
        check_device(device)
    wanted = of_numpy(current().recorder.default_dtype) if dtype is None else dtype
    made = _made(args, wanted, dtype)
    if cls is not Tensor:
        made.__class__ = cls
    return made


def _made(args: Sequence[Any], wanted: DType, dtype: DType | None) -> Tensor:
    if not args:
        return _empty((0,), wanted)
    value = args[0]
    if all(map(_is_size, args)):
        return _empty(tuple(args), wanted)
    if isinstance(value, Size):
        return _empty(tuple(value), wanted)
    if isinstance(value, Tensor):
        return _over(value, dtype)
    if isinstance(value, str):
        raise InvalidArgument("new(): invalid data type 'str'")
    if not (hasattr(value, "__len__") and hasattr(value, "__getitem__")) or isinstance(value, (dict, set)):
        raise InvalidArgument(f"new(): data must be a sequence (got {type(value).__name__})")
    data = value if hasattr(value, "__array__") else list(value)
    return upload(current().recorder, data, wanted)


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _empty(size: tuple[int, ...], dtype: DType) -> Tensor:
    return functions.empty(size, dtype=dtype)


def _over(value: Tensor, dtype: DType | None) -> Tensor:
    if dtype is not None and value.dtype is not dtype:
        wanted, got = [
            f"TensorOptions(dtype={kind.c_name}, device=cpu, layout=Strided, requires_grad=false (default), "
            "pinned_memory=false (default), memory_format=(nullopt))"
            for kind in (dtype, value.dtype)
        ]
        raise InvalidArgument(f"expected {wanted} (got {got})")
    return value.detach()


class TypedConstructor(type):
    """The metaclass of ``FloatTensor`` and the others: calls make, and ``isinstance`` checks, tensors of one dtype."""

    dtype: DType

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        """Return a tensor of this dtype."""
        return construct(cls.dtype, args, kwargs)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype

    def __repr__(cls) -> str:
        return f"<class '{legacy_name(cls.dtype)}'>"


def _typed(dtype: DType) -> TypedConstructor:
    name = f"{dtype.kernel_name}{LEGACY}"
    doc = (
        f"Tensors of {dtype.name}: of a shape, of values or of another tensor's, and for ``isinstance``.\n\n"
        f"Examples:\n    >>> isinstance(tg.{name}([1, 0]), tg.{name})\n    True\n"
    )
    return TypedConstructor(name, (), {"dtype": dtype, "__doc__": doc, "__module__": "telegrad"})


TYPED: dict[str, Any] = {f"{dtype.kernel_name}{LEGACY}": _typed(dtype) for dtype in ALL if dtype not in WIDE_UNSIGNED}
"""The typed constructors by name."""
