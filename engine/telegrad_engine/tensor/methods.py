"""The tensor API: torch's operators and methods, over one abstract ``_apply``.

The engine's and the SDK's Tensor inherit it. Operators are defined here; ``install_methods`` makes the named methods,
including in-place forms, from the catalogue.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import COMPLEX_TEXT, FLOATING, DType, float64, from_numpy
from ..errors import DTypeMismatch, InvalidArgument, InvalidOperation
from ..schema.op import CATALOGUE, NO_ATTRS, Op, choose
from ..schema.parameters import OperandKind
from ..shapes import Size, wrap_dim
from ._op_methods import OpMethods
from .attributes import TensorAttributes
from .documentation import Documentation, Form, document, documentation_of
from .indexing import getitem, setitem
from .namespace import make_function, named


class TensorMethods(TensorAttributes, OpMethods):
    """Operators and methods of a tensor, over ``_apply(op, inputs, attrs)`` and ``_inplace``.

    ``_data`` is an array, a Spec or any other object with a shape and a NumPy dtype.
    """

    _data: Any
    __array_priority__ = 1000  # so that np.float32(2) * tensor calls the tensor's operator

    @property
    def shape(self) -> Size:
        """The size of each dimension.

        Examples:
            >>> tg.ones(2, 3).shape
            telegrad.Size([2, 3])
        """
        return Size(self._data.shape)

    @property
    def dtype(self) -> DType:
        """The element type.

        Examples:
            >>> tg.ones(2).dtype
            telegrad.float32
        """
        return from_numpy(self._data.dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions.

        Examples:
            >>> tg.ones(2, 3).ndim
            2
        """
        return len(self._data.shape)

    @staticmethod
    def _apply(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        raise NotImplementedError

    def _inplace(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        raise NotImplementedError

    def _cast(self, dtype: DType) -> Any:
        """Return a copy in another dtype; all dtype conversions use it."""
        raise NotImplementedError

    # == compares elements, so the identity hash is set explicitly: the backward pass uses tensors as dict keys.
    __hash__ = object.__hash__

    def __len__(self) -> int:
        if not self._data.shape:
            raise TypeError("len() of a 0-d tensor")
        return int(self._data.shape[0])

    def __reversed__(self) -> Any:
        """The tensor with its first dimension reversed."""
        return self.flip(0) if self._data.shape else self

    def __contains__(self, element: Any) -> bool:
        if hasattr(element, "_data") or isinstance(element, (bool, int, float, np.generic)):
            return bool((self == element).any())
        raise InvalidOperation(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}."
        )

    def __delitem__(self, index: Any) -> None:
        raise InvalidArgument("Tensor does not support deleting items")

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension.

        ``dim`` is the dimension; None gives the whole shape. Raises IndexError for a dimension that there is not.

        Examples:
            >>> tg.ones(2, 3).size(), tg.ones(2, 3).size(-1)
            (telegrad.Size([2, 3]), 3)
        """
        shape = self.shape
        return shape if dim is None else shape[wrap_dim(dim, len(shape))]

    def dim(self) -> int:
        """Number of dimensions.

        Examples:
            >>> tg.ones(2, 3).dim()
            2
        """
        return len(self._data.shape)

    def numel(self) -> int:
        """Number of elements.

        Examples:
            >>> tg.ones(2, 3).numel()
            6
        """
        return self.shape.numel()

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating one.

        Examples:
            >>> tg.ones(2).is_floating_point()
            True
        """
        return self.dtype.is_floating_point

    def element_size(self) -> int:
        """Bytes per element.

        Examples:
            >>> tg.ones(2).element_size()
            4
        """
        return self.dtype.itemsize

    def _places_of_true(self) -> list[Any]:
        """Return, for each dimension of a mask, the indices of its true elements."""
        return list(self.nonzero().unbind(1))

    def where(self, condition: Any, other: Any) -> Any:
        """Return this tensor where ``condition`` holds, else ``other``.

        ``condition`` is a bool tensor, and ``other`` a tensor or a number; all broadcast.

        Examples:
            >>> tg.tensor([1.0, 2.0]).where(tg.tensor([True, False]), 0.0)
            tensor([1., 0.])
        """
        op = CATALOGUE.get("where")
        inputs, attrs = op.bind((condition, self, other), {})
        return self._apply(op, inputs, attrs)

    @property
    def T(self) -> Any:
        """The tensor with its dimensions reversed.

        Examples:
            >>> tg.ones(2, 3).T.shape
            telegrad.Size([3, 2])
        """
        return self.permute(tuple(range(self.dim()))[::-1])

    @property
    def mT(self) -> Any:
        """The tensor with its last two dimensions swapped.

        Examples:
            >>> tg.ones(5, 2, 3).mT.shape
            telegrad.Size([5, 3, 2])
        """
        return self.transpose(-2, -1)

    @property
    def itemsize(self) -> int:
        """Bytes per element.

        Examples:
            >>> tg.ones(2).itemsize
            4
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes.

        Examples:
            >>> tg.ones(2, 3).nbytes
            24
        """
        return self.numel() * self.dtype.itemsize

    def is_nonzero(self) -> bool:
        """The truth value of a one-element tensor. Raises RuntimeError for any other.

        Examples:
            >>> tg.tensor([2.0]).is_nonzero()
            True
        """
        return bool(self)

    def new_empty(self, *size: Any, **options: Any) -> Any:
        """Like ``new_zeros``, so that uninitialised memory is never exposed.

        ``size`` and ``options`` are those of ``new_zeros``.

        Examples:
            >>> tg.tensor([1, 2]).new_empty(3).shape
            telegrad.Size([3])
        """
        return self.new_zeros(*size, **options)

    def new_empty_strided(self, size: Any, stride: Any, **options: Any) -> Any:
        """Return zeros of shape ``size`` with strides ``stride``, in elements.

        The ``options`` are those of ``new_zeros``.

        Examples:
            >>> tg.ones(2).new_empty_strided((2, 3), (1, 2)).stride()
            (1, 2)
        """
        room = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in tuple(size) else 0
        return self.new_zeros((room,), **options).as_strided(size, stride)

    def polygamma(self, n: Any) -> Any:
        """The derivative of order ``n`` of ``digamma``.

        Examples:
            >>> tg.tensor([1.0]).polygamma(1)
            tensor([1.6449])
        """
        op = CATALOGUE.get("polygamma")
        inputs, attrs = op.bind((n, self), {})
        return self._apply(op, inputs, attrs)

    def polygamma_(self, n: Any) -> Any:
        """``polygamma``, in place.

        ``n`` is the order of the derivative.

        Examples:
            >>> tg.tensor([1.0]).polygamma_(1)
            tensor([1.6449])
        """
        return self.copy_(self.polygamma(n))

    def float_power_(self, exponent: Any) -> Any:
        """``float_power``, in place. Raises RuntimeError unless the dtype is float64, the dtype of the result.

        ``exponent`` is a number or a tensor.

        Examples:
            >>> tg.tensor([2.0], dtype=tg.float64).float_power_(3)
            tensor([8.], dtype=telegrad.float64)
        """
        if self.dtype is not float64:
            raise DTypeMismatch(
                f"the base given to float_power_ has dtype {self.dtype.kernel_name} but the operation's result "
                "requires dtype Double"
            )
        return self.pow_(exponent)

    def type_as(self, other: Any) -> Any:
        """The tensor in the dtype of ``other``.

        Examples:
            >>> tg.ones(2).type_as(tg.tensor([1]))
            tensor([1, 1])
        """
        return self.to(dtype=other.dtype)


BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
CONVERSIONS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool",
}  # fmt: skip
"""The methods that return the tensor in a dtype."""
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
SORTING: list[str] = []
"""The methods that bind their arguments as the functions of the same names do."""
UNARY = {"neg": "neg", "abs": "abs", "pos": "positive"}


def install_methods() -> None:
    """Add the operators and a method for every op to TensorMethods. Called once, after the ops are declared."""
    declared = {"__getitem__": getitem, "__setitem__": setitem, "__iter__": _iterate, "__invert__": _invert}
    for name, method in (declared | {"_cast": _method("cast")}).items():
        setattr(TensorMethods, name, method)  # a plain assignment would declare it again
    for dunder, name in BINARY.items():
        op = CATALOGUE.get(name)
        setattr(TensorMethods, f"__{dunder}__", _binary(op))
        setattr(TensorMethods, f"__r{dunder}__", _reflected(op))
        if op.inplace:
            setattr(TensorMethods, f"__i{dunder}__", _binary_inplace(op))
    for name in COMPARISONS:
        setattr(TensorMethods, f"__{name}__", _binary(CATALOGUE.get(name)))
    for dunder, name in UNARY.items():
        setattr(TensorMethods, f"__{dunder}__", _unary(CATALOGUE.get(name)))
    for name, dtype in CONVERSIONS.items():
        setattr(TensorMethods, name, _conversion(name, dtype))
    for name, overloads in CATALOGUE.overloads.items():
        methods = [op for op in overloads if op.method and not op.internal]
        if methods and name not in TensorMethods.__dict__:
            plain = _is_plain(overloads)
            setattr(TensorMethods, name, _plain_method(overloads[0]) if plain else _method(name))
            if not plain:
                SORTING.append(name)
        changing = [op for op in overloads if op.inplace]
        if changing:
            setattr(TensorMethods, f"{name}_", _inplace_method(name, changing))


def plain_methods() -> Iterator[tuple[str, Op]]:
    """Yield the operators, and the methods that take only the tensor, each with its op."""
    for dunder, name in {**BINARY, **UNARY}.items():
        yield f"__{dunder}__", CATALOGUE.get(name)
    for name, overloads in CATALOGUE.overloads.items():
        if _is_plain(overloads) and overloads[0].method and not overloads[0].internal:
            yield name, overloads[0]


def reflected_methods() -> Iterator[tuple[str, Op]]:
    """Yield the operators of a tensor on the right of a number, each with its op."""
    for dunder, name in BINARY.items():
        op = CATALOGUE.get(name)
        if isinstance(op.params[1].kind, OperandKind):
            yield f"__r{dunder}__", op


def in_place_methods() -> Iterator[tuple[str, Callable[..., tuple[Op, tuple[Any, ...], Mapping[str, Any]]]]]:
    """Yield the in-place operators and methods, each with the function that binds its arguments to an op."""
    for dunder, name in BINARY.items():
        op = CATALOGUE.get(name)
        if op.inplace:
            yield f"__i{dunder}__", lambda args, kwargs, op=op: (op, tuple(args), NO_ATTRS)
    for name, overloads in CATALOGUE.overloads.items():
        if changing := [op for op in overloads if op.inplace]:
            yield f"{name}_", functools.partial(choose, name, changing)


def _is_plain(overloads: Sequence[Op]) -> bool:
    return len(overloads) == 1 and len(overloads[0].params) == 1 and not overloads[0].composite


def _iterate(self: Any) -> Iterator[Any]:
    if not self._data.shape:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def _operand(tensor: Any, value: Any) -> Any:
    """Convert an operator's other operand: NumPy scalars and arrays are accepted, as in torch."""
    if hasattr(value, "_data") or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, complex):
        raise DTypeMismatch(COMPLEX_TEXT)
    if isinstance(value, np.ndarray):
        return tensor.new_tensor(value, dtype=value.dtype)
    return _refuse_foreign(tensor, value)


def _refuse_foreign(tensor: Any, value: Any) -> Any:
    """Return NotImplemented. Raise TypeError if an operator's other operand is a torch tensor."""
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        raise InvalidArgument(
            f"unsupported operand types: telegrad.{type(tensor).__name__} and torch.{type(value).__name__} are tensors "
            "of two libraries; telegrad.from_torch(t) makes one of Telegrad's of the other, t.numpy() an array"
        )
    return NotImplemented


def _binary(op: Op) -> Callable[[Any, Any], Any]:
    numbers = (bool, int, float) if isinstance(op.params[1].kind, OperandKind) else ()

    def operator(self: Any, other: Any) -> Any:
        if type(other) is type(self) or hasattr(other, "_data") or isinstance(other, numbers):
            return self._apply(op, (self, other))
        other = _operand(self, other) if numbers else _refuse_foreign(self, other)
        return NotImplemented if other is NotImplemented else self._apply(op, (self, other))

    operator.__doc__ = op.doc
    return operator


def _reflected(op: Op) -> Callable[[Any, Any], Any]:
    takes_numbers = isinstance(op.params[1].kind, OperandKind)

    def operator(self: Any, other: Any) -> Any:
        other = _operand(self, other) if takes_numbers else NotImplemented
        return NotImplemented if other is NotImplemented else self._apply(op, (other, self))

    return operator


def _binary_inplace(op: Op) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        other = _operand(self, other)
        return NotImplemented if other is NotImplemented else self._inplace(op, (self, other))

    return operator


def _unary(op: Op) -> Callable[[Any], Any]:
    return lambda self: self._apply(op, (self,))


def _invert(self: Any) -> Any:
    if self._data.dtype in FLOATING:
        raise InvalidArgument("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return self._apply(CATALOGUE.get("bitwise_not"), (self,))


def _conversion(name: str, dtype: str) -> Callable[..., Any]:
    def method(self: Any, memory_format: Any = None) -> Any:
        return self._as(dtype, memory_format)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"The tensor as {dtype}, in a memory order ``memory_format``, by default its own.\n\n"
        f"Examples:\n    >>> tg.tensor([1, 0]).{name}().dtype\n    telegrad.{dtype}\n"
    )
    return method


def _plain_method(op: Op) -> Callable[..., Any]:
    """Return the method of an op that takes only the tensor, so that there are no arguments to bind."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            op.bind((self, *args), kwargs)
        return self._apply(op, (self,))

    return named(method, op.name, [op], Form.METHOD)


def _method(name: str) -> Callable[..., Any]:
    def apply(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        first = inputs[0] if hasattr(inputs[0], "_data") else next(x for x in inputs if hasattr(x, "_data"))
        return first._apply(op, inputs, attrs)

    function = make_function(name, apply)
    known = documentation_of(function)
    if known is not None:
        overloads = [op for op in known.overloads if op.method and not op.internal]
        document(function, Documentation(overloads or known.overloads, Form.METHOD, known.added))
    return function


def _inplace_method(name: str, overloads: list[Op]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        op, inputs, attrs = choose(name, overloads, (self, *args), kwargs)
        return self._inplace(op, inputs, attrs)

    return named(method, f"{name}_", overloads, Form.IN_PLACE_METHOD)
