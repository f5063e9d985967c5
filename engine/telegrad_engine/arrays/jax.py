"""JAX: ``jax.numpy``'s functions, on JAX's default device.

Its arrays cannot be written to and share no memory, so writes are functional here, and the tensors
over them are :class:`telegrad_engine.immutable.ImmutableTensor`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np

from .accelerator import ForeignBackend, Linalg


class JaxBackend(ForeignBackend):
    """``jax.numpy`` under NumPy's rules, with 64 bits where they are asked for."""

    name = library = "jax"
    aliases = False

    def __init__(self) -> None:
        # JAX would take most of a GPU's memory for itself, as soon as anyone asks it what devices there are.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self._jax = import_module("jax")
        # Without it JAX makes 32 bits of everything.
        self._jax.config.update("jax_enable_x64", True)
        # Else a GPU multiplies float32 with 10 bits of each number's 23.
        self._jax.config.update("jax_default_matmul_precision", "highest")
        # To hand a small program to a thread of its own takes longer than to run it. On the CPU alone.
        self._jax.config.update("jax_cpu_enable_async_dispatch", False)
        self.namespace = import_module("jax.numpy")
        self.special = import_module("jax.scipy.special")
        self.array_type = self._jax.Array
        super().__init__()

    def jax_device(self, jax: Any) -> Any:
        """The one that JAX takes by itself."""
        return jax.devices()[0]

    def to_jax(self, array: Any) -> Any:
        """The array."""
        return array

    def from_jax(self, array: Any) -> Any:
        """The array."""
        return array

    def is_out_of_memory(self, error: Exception) -> bool:
        """JAX says so in the text of a general error."""
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)

    def array(self, value: Any, dtype: Any = None, **_layout: Any) -> Any:
        """As ``numpy.array``, but read-only arrays are not copied."""
        return value if dtype is None and isinstance(value, self.array_type) else self.namespace.array(value, dtype)

    def argsort(self, array: Any, axis: int = -1, kind: str | None = None) -> Any:
        """As ``numpy.argsort``: JAX has another word for the kind."""
        return self.namespace.argsort(array, axis=axis, stable=kind == "stable")

    def true_divide(self, a: Any, b: Any, dtype: Any = None) -> Any:
        """As ``numpy.true_divide``."""
        result = self.namespace.true_divide(a, b)
        return result if dtype is None else result.astype(dtype)

    def digamma(self, array: Any) -> Any:
        """The derivative of ``lgamma``; at zero, where JAX has NaN, what it tends to from there."""
        poles = self.namespace.copysign(self.namespace.inf, -array)
        return self.namespace.where(array == 0, poles.astype(array.dtype), super().digamma(array))

    # Layout: there are no strides ---------------------------------------------------------

    def is_contiguous(self, array: Any) -> bool:
        """True; what torch would say is for the tensor to know."""
        return True

    def reshape_view(self, array: Any, shape: Any) -> Any:
        """The array in another shape."""
        return self.namespace.reshape(array, shape)

    def ascontiguousarray(self, array: Any) -> Any:
        """The array."""
        return self.namespace.asarray(array)

    # Writes -----------------------------------------------------------------------------

    def index_set(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``array[index] = values``."""
        return array.at[index].set(self._like(array, values))

    def index_add(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``values`` added at ``index``; repeated indices add up."""
        return array.at[index].add(self._like(array, values))

    def index_combine(self, array: Any, index: Any, values: Any, how: str) -> Any:
        """A copy of ``array`` with ``values`` combined into it at ``index`` by the ufunc named ``how``."""
        method = {"maximum": "max", "minimum": "min"}.get(how, how)
        return getattr(array.at[index], method)(self._like(array, values))

    def _like(self, array: Any, values: Any) -> Any:
        return self.namespace.asarray(values).astype(array.dtype)

    # Linear algebra -----------------------------------------------------------------------

    def make_linalg(self) -> Linalg:
        """``jax.numpy.linalg``, reading one triangle of symmetric matrices as NumPy does."""
        return JaxLinalg(self)

    def solve_triangular(self, a: Any, b: Any, upper: bool, unit: bool) -> Any:
        """The solutions of ``a @ x = b`` for batches of triangular matrices; a zero pivot gives infinities."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (self.namespace.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b))
        return self._jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=not upper, unit_diagonal=unit)


class JaxLinalg(Linalg):
    """``jax.numpy.linalg``, which would take the mean of a symmetric matrix's triangles."""

    def eigh(self, a: Any, UPLO: str = "L") -> Any:
        """The eigenvalues and eigenvectors of symmetric matrices."""
        return self.namespace.eigh(a, UPLO=UPLO, symmetrize_input=False)

    def eigvalsh(self, a: Any, UPLO: str = "L") -> Any:
        """The eigenvalues of symmetric matrices."""
        return self.namespace.eigvalsh(a, UPLO=UPLO, symmetrize_input=False)

    def _factor(self, a: Any) -> Any:
        return self.namespace.cholesky(a, symmetrize_input=False)
