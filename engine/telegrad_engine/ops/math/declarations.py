"""Helpers to declare ops: elementwise NumPy functions, dtype checks, zero gradients, and node names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...dtypes import FLOATING
from ...errors import DataDependentShape, InvalidOperation
from ...schema.derivative_plan import Rule
from ...schema.op import Op, elementwise
from ...schema.parameters import Array
from ...schema.promotion import FLOATS, common_dtype
from ...shapes import Spec
from ..guards import check_floats, no_kernel


def unary(name: str, doc: str, *, calls: str = "", **options: Any) -> Op:
    """Declare the elementwise op ``xp.calls(input)``; ``calls`` defaults to the op's name."""
    function = calls or name

    def kernel(xp: Any, input: Array) -> Any:
        return getattr(xp, function)(input)

    kernel.__name__, kernel.__doc__ = name, doc
    return elementwise(calls=function, **options)(kernel)


division = partial(elementwise, may_raise=True)
"""Like :func:`elementwise`, for divisions that integers may have by zero."""
float_unary = partial(unary, promotion=FLOATS)
"""Like :func:`unary`, for functions that compute integers in the default floating dtype."""


def binary(name: str, doc: str, *, calls: str = "", operands: tuple[Any, Any] = (Array, Array), **options: Any) -> Op:
    """Like :func:`unary`, for ``xp.calls(input, other)``; ``operands`` are the kinds of the two parameters."""
    function = calls or name

    def kernel(xp: Any, input: Any, other: Any) -> Any:
        return getattr(xp, function)(input, other)

    kernel.__name__, kernel.__doc__ = name, doc
    kernel.__annotations__.update(input=operands[0], other=operands[1])
    return elementwise(calls=function, **options)(kernel)


def zero_gradient(F: Any, grad: Any) -> Any:
    """The derivative of a function that is constant almost everywhere."""
    return F.zeros_like(grad)


def not_implemented_derivative(name: str) -> Rule:
    """A derivative that raises InvalidOperation, for an op whose derivative torch does not implement."""

    def derivative(F: Any, grad: Any) -> Any:
        raise InvalidOperation(f"derivative for aten::{name} is not implemented")

    return derivative


def floating(kernel: str) -> Callable[..., None]:
    """A guard that raises NotImplementedForDType unless an op computes in a floating dtype."""

    def guard(*inputs: Any) -> None:
        dtype = common_dtype(inputs)
        if dtype not in FLOATING:
            raise no_kernel(kernel, dtype)

    return guard


def each_floating(kernel: str) -> Callable[..., None]:
    """A guard that raises NotImplementedForDType unless each input is floating."""

    def guard(*inputs: Any) -> None:
        for input in inputs:
            check_floats(kernel, input)

    return guard


def same_floating(kernel: str) -> Callable[[Any], Spec]:
    """The shape rule of an op on one floating input whose result has the same shape and dtype."""

    def rule(input: Any) -> Spec:
        check_floats(kernel, input)
        return Spec(input.shape, input.dtype)

    return rule


def check_has_values(name: str, input: Any) -> None:
    """Raise DataDependentShape for a Spec, because the result's shape depends on the input's values."""
    if isinstance(input, Spec):
        raise DataDependentShape(f"the shape of {name}'s result depends on the input's values")


# Node names of ops for which torch has several: one if an operand is a tensor, another if it is a number. A node does
# not store an operand that receives no gradient, so such an operand counts as a number, which it usually is.


def by_operand(name: str, *, at: int = 1, tensor: int, number: int) -> Callable[[Any], str]:
    """Return a function of the node that gives its name; the suffix depends on whether input ``at`` is a tensor."""
    return lambda node: f"{name}Backward{number if node.next_edges[at] is None else tensor}"


def by_operands(name: str, *, tensors: int, number_first: int, number_second: int) -> Callable[[Any], str]:
    """Like :func:`by_operand`, for ops where either of two inputs may be a number."""

    def choose(node: Any) -> str:
        first, second = node.next_edges
        suffix = number_first if first is None else number_second if second is None else tensors
        return f"{name}Backward{suffix}"

    return choose
