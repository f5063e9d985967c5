"""A tracer for JAX: it runs a program on arrays without values, to compile it.

Kernels query values with :meth:`TracingBackend.holds`, which returns the usual answer and makes the condition a guard
of the executable, and with :meth:`TracingBackend.number`. Code that needs values raises :class:`Untraceable` or an
error of JAX.
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
        """Conditions that are assumed to hold."""

    def one(self, array: Any) -> Any:
        """1 as a 0-dim NumPy array, because a JAX array would belong to this trace."""
        return np.ones((), array.dtype)

    def zero(self, array: Any) -> Any:
        """0 as a 0-dim NumPy array."""
        return np.zeros((), array.dtype)

    def number(self, array: Any) -> Any:
        """A stand-in for the element of an array."""
        return TensorScalar(array.astype(np.float64))

    def holds(self, condition: Any, usually: bool) -> bool:
        """Return ``usually`` and add it as a guard; for a constant, return whether it holds."""
        if not isinstance(condition, self._jax.core.Tracer):
            return bool(condition)
        self.guards.append(condition if usually else self.namespace.logical_not(condition))
        return usually

    def guard(self) -> Any:
        """Whether all guards hold."""
        return self.namespace.stack(self.guards).all() if self.guards else np.True_

    def download(self, array: Any) -> Any:
        """Raise Untraceable, because there are no values."""
        raise Untraceable(NEEDED)

    def asks_for_values(self, error: Exception) -> bool:
        """Whether an error of JAX means that values were needed."""
        errors = self._jax.errors
        kinds = (
            errors.ConcretizationTypeError,
            errors.NonConcreteBooleanIndexError,
            errors.TracerArrayConversionError,
            errors.TracerIntegerConversionError,
        )
        return isinstance(error, kinds)

    def staged(self, function: Callable[..., Any], specs: Sequence[Any]) -> Any:
        """Trace ``function`` on arrays of these shapes and dtypes with JAX."""
        return self._jax.jit(function).trace(*[self._jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in specs])

    def compile(
        self, function: Callable[..., Any], specs: Sequence[Any], where: Backend
    ) -> tuple[Callable[..., Any], list[int]]:
        """Trace ``function`` on arrays of these shapes and dtypes and compile it for the device of ``where``.

        Returns the executable and the positions of the arrays that it reads. Raises Untraceable if JAX does not find
        the device.
        """
        with self._jax.default_device(where.jax_device(self._jax)):
            traced = self.staged(function, specs)
            compiled: Callable[..., Any] = traced.lower().compile()
        jaxpr = traced.jaxpr.jaxpr
        read = {id(x) for x in [*jaxpr.outvars, *[x for step in jaxpr.eqns for x in step.invars]]}
        return compiled, [i for i, x in enumerate(jaxpr.invars) if id(x) in read]
