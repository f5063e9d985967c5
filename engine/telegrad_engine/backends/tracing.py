"""JAX while a program is traced to be compiled: arrays whose values nobody knows yet.

What a kernel wants to know of values it asks by :meth:`TracingBackend.holds` and :meth:`TracingBackend.number`. The
first answers what is usual and notes the condition, which the compiled program then checks on every run. What cannot
be done without values raises :class:`Untraceable` or an error of JAX's own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .jax import JaxBackend


class Untraceable(Exception):
    """What a program does can only be done one instruction at a time; the text says why."""


class Number:
    """A number computed from a tensor of one element; arrays meet it as a Python float, in their own dtype."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _combined(self, combine: Callable[[Any, Any], Any], other: Any, reflected: bool) -> Any:
        if isinstance(other, (Number, int, float)):
            value = other.value if isinstance(other, Number) else other
            return Number(combine(value, self.value) if reflected else combine(self.value, value))
        own = self.value.astype(other.dtype)
        return combine(other, own) if reflected else combine(own, other)

    def __gt__(self, other: float) -> Any:
        return self.value > other


def _arithmetic(name: str) -> None:
    combine = getattr(operator, name)
    setattr(Number, f"__{name}__", lambda self, other: self._combined(combine, other, False))
    setattr(Number, f"__r{name}__", lambda self, other: self._combined(combine, other, True))


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _arithmetic(_name)


class TracingBackend(JaxBackend):
    """``jax.numpy`` for one trace."""

    def __init__(self) -> None:
        super().__init__()
        self.guards: list[Any] = []
        """Conditions that were taken to hold."""

    def one(self, array: Any) -> Any:
        """1 as NumPy's 0-dim array: one of JAX's would belong to this trace."""
        return np.ones((), array.dtype)

    def zero(self, array: Any) -> Any:
        """0 as NumPy's 0-dim array."""
        return np.zeros((), array.dtype)

    def number(self, array: Any) -> Any:
        """What stands for the one element of an array."""
        return Number(array.astype(np.float64))

    def holds(self, condition: Any, usually: bool) -> bool:
        """What is usual, noted as a guard; the truth, where it is known already."""
        if not isinstance(condition, self._jax.core.Tracer):
            return bool(condition)
        self.guards.append(condition if usually else self.namespace.logical_not(condition))
        return usually

    def guard(self) -> Any:
        """Whether everything that was taken to hold does."""
        return self.namespace.stack(self.guards).all() if self.guards else np.True_

    def download(self, array: Any) -> Any:
        """There is nothing to bring to the host. Raises Untraceable."""
        raise Untraceable("needs the values, which NumPy computes with")

    def asks_for_values(self, error: Exception) -> bool:
        """Whether an error of JAX says that values were needed."""
        errors = self._jax.errors
        kinds = (
            errors.ConcretizationTypeError,
            errors.NonConcreteBooleanIndexError,
            errors.TracerArrayConversionError,
            errors.TracerIntegerConversionError,
        )
        return isinstance(error, kinds)

    def compile(self, function: Callable[..., Any], specs: Sequence[Any]) -> Callable[..., Any]:
        """``function``, traced on arrays of these shapes and dtypes, as one executable on the CPU, for NumPy's."""
        shapes = [self._jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in specs]
        with self._jax.default_device(self._jax.devices("cpu")[0]):
            compiled: Callable[..., Any] = self._jax.jit(function).lower(*shapes).compile()
        return compiled
