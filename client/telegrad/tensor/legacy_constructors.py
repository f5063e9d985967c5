"""torch's legacy constructors: ``telegrad.Tensor(…)``, ``tensor.new(…)``, ``FloatTensor``, ``LongTensor`` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from telegrad_engine.dtypes import ALL, WIDE_UNSIGNED, DType, from_numpy
from telegrad_engine.errors import InvalidArgument
from telegrad_engine.schema.signature import given
from telegrad_engine.shapes import Size
from telegrad_engine.tensor.attributes import LEGACY, legacy_name

from ..sessions.session import current
from .devices import check_device
from .handle import Tensor, functions, upload

CALLS = """
 * (*, torch.device device = None)
 * (torch.Storage storage)
 * (Tensor other)
 * (tuple of ints size, *, torch.device device = None)
 * (object data, *, torch.device device = None)
"""


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
    wanted = from_numpy(current().recorder.default_dtype) if dtype is None else dtype
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
