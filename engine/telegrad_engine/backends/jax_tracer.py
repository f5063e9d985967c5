"""JAX while a program is traced to be compiled: arrays whose values nobody knows yet.

What a kernel wants to know of values it asks by :meth:`TracingBackend.holds` and :meth:`TracingBackend.number`. The
first answers what is usual and notes the condition, which the compiled program then checks on every run. What cannot
be done without values raises :class:`Untraceable` or an error of JAX's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .base import Backend
from .jax import JaxBackend
from .symbolic import NEEDED, TensorScalar, Untraceable


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
        return TensorScalar(array.astype(np.float64))

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
        raise Untraceable(NEEDED)

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

    def staged(self, function: Callable[..., Any], specs: Sequence[Any]) -> Any:
        """``function``, as JAX knows it once it is traced on arrays of these shapes and dtypes."""
        return self._jax.jit(function).trace(*[self._jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in specs])

    def compile(
        self, function: Callable[..., Any], specs: Sequence[Any], where: Backend
    ) -> tuple[Callable[..., Any], list[int]]:
        """``function``, traced on arrays of these shapes and dtypes, as one executable for that backend's device.

        And which of the arrays it reads. Raises Untraceable where JAX does not find that.
        """
        with self._jax.default_device(where.jax_device(self._jax)):
            traced = self.staged(function, specs)
            compiled: Callable[..., Any] = traced.lower().compile()
        jaxpr = traced.jaxpr.jaxpr
        read = {id(x) for x in [*jaxpr.outvars, *[x for step in jaxpr.eqns for x in step.invars]]}
        return compiled, [i for i, x in enumerate(jaxpr.invars) if id(x) in read]
