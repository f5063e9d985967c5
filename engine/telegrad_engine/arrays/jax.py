"""JAX: the functions of ``jax.numpy``, on JAX's default device.

JAX arrays are immutable and share no memory, so writes return a new array, and tensors over them are
:class:`telegrad_engine.devices.tensors.ImmutableTensor`.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from .accelerator import ForeignBackend, Linalg
from .base import DeviceInfo

GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin")
"""The packages that let JAX find GPUs."""


def _import_jax() -> Any:
    # Otherwise JAX preallocates most of a GPU's memory when its devices are first queried.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return import_module("jax")


class JaxBackend(ForeignBackend):
    """``jax.numpy`` with NumPy's rules and 64-bit dtypes."""

    name = library = "jax"
    aliases = False

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        """JAX's default device. JAX is imported only if it can find GPUs, because that takes seconds."""
        if not any(find_spec(plugin) for plugin in GPU_PLUGINS):
            return [DeviceInfo(cls.name, cls.library, False, "", 0, 0)]
        first = _import_jax().devices()[0]
        memory = first.memory_stats() or {}
        total, used = (memory.get(key, 0) for key in ("bytes_limit", "bytes_in_use"))
        return [DeviceInfo(cls.name, cls.library, first.platform == "gpu", first.device_kind, total, used)]

    def __init__(self) -> None:
        self._jax = _import_jax()
        # Otherwise JAX converts 64-bit dtypes to 32 bits.
        self._jax.config.update("jax_enable_x64", True)
        # Otherwise a GPU multiplies float32 matrices with 10 of the 23 mantissa bits.
        self._jax.config.update("jax_default_matmul_precision", "highest")
        # On the CPU, dispatching a small program to another thread takes longer than running it.
        self._jax.config.update("jax_cpu_enable_async_dispatch", False)
        self.namespace = import_module("jax.numpy")
        self.special = import_module("jax.scipy.special")
        self.array_type = self._jax.Array
        super().__init__()

    def jax_device(self, jax: Any) -> Any:
        """JAX's default device."""
        return jax.devices()[0]

    def to_jax(self, array: Any) -> Any:
        """Return the array unchanged."""
        return array

    def from_jax(self, array: Any) -> Any:
        """Return the array unchanged."""
        return array

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether the error means that memory is full; JAX raises a general error with a text that says so."""
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)

    def array(self, value: Any, dtype: Any = None, **_layout: Any) -> Any:
        """Like ``numpy.array``, but a JAX array is not copied unless ``dtype`` is given."""
        return value if dtype is None and isinstance(value, self.array_type) else self.namespace.array(value, dtype)

    def argsort(self, array: Any, axis: int = -1, kind: str | None = None) -> Any:
        """Like ``numpy.argsort``; JAX has ``stable`` in place of ``kind``."""
        return self.namespace.argsort(array, axis=axis, stable=kind == "stable")

    def true_divide(self, a: Any, b: Any, dtype: Any = None) -> Any:
        """Like ``numpy.true_divide``."""
        result = self.namespace.true_divide(a, b)
        return result if dtype is None else result.astype(dtype)

    def digamma(self, array: Any) -> Any:
        """The derivative of ``lgamma``; at 0.0 and -0.0, where JAX returns NaN, -inf and inf."""
        poles = self.namespace.copysign(self.namespace.inf, -array)
        return self.namespace.where(array == 0, poles.astype(array.dtype), super().digamma(array))

    # Layout: there are no strides ---------------------------------------------------------

    def is_contiguous(self, array: Any) -> bool:
        """Always True; the tensor tracks torch's contiguity."""
        return True

    def reshape_view(self, array: Any, shape: Any) -> Any:
        """The array in another shape."""
        return self.namespace.reshape(array, shape)

    def ascontiguousarray(self, array: Any) -> Any:
        """Return the array as a JAX array."""
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
        """Make ``jax.numpy.linalg`` with NumPy's use of one triangle of symmetric matrices."""
        return JaxLinalg(self)

    def solve_triangular(self, a: Any, b: Any, upper: bool, unit: bool) -> Any:
        """The solutions of ``a @ x = b`` for batches of triangular matrices; a zero pivot gives infinities."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (self.namespace.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b))
        return self._jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=not upper, unit_diagonal=unit)


class JaxLinalg(Linalg):
    """``jax.numpy.linalg``, without its averaging of the two triangles of a symmetric matrix."""

    def eigh(self, a: Any, UPLO: str = "L") -> Any:
        """The eigenvalues and eigenvectors of symmetric matrices."""
        return self.namespace.eigh(a, UPLO=UPLO, symmetrize_input=False)

    def eigvalsh(self, a: Any, UPLO: str = "L") -> Any:
        """The eigenvalues of symmetric matrices."""
        return self.namespace.eigvalsh(a, UPLO=UPLO, symmetrize_input=False)

    def _factor(self, a: Any) -> Any:
        return self.namespace.cholesky(a, symmetrize_input=False)
