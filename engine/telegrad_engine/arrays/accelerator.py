"""The base of all backends except NumPy: functions that a library lacks are computed by NumPy on the host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Backend
from .numpy import NUMPY


class ForeignBackend(Backend):
    """A library with most of NumPy's functions and its own array type."""

    array_type: type
    """The class of the library's arrays."""
    special: Any
    """The library's module of special functions."""

    def __init__(self, index: int = 0) -> None:
        super().__init__(index)
        self.linalg = self.make_linalg()

    def make_linalg(self) -> Linalg:
        """Make the library's linear algebra namespace."""
        return Linalg(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "namespace" not in self.__dict__:
            raise AttributeError(name)
        found = getattr(self.namespace, name, None)
        if found is None:
            known = getattr(NUMPY, name, None)
            if known is None:
                raise AttributeError(f"the {self.library} backend has no function {name!r}")
            found = self.on_host(known)
        setattr(self, name, found)
        return found

    def on_host(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a NumPy function to download its arguments, compute on the host and upload its results."""

        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*self._each(args, self.array_type, self._copied), **kwargs)
            return self._each(result, np.ndarray, self.upload)

        return call

    def _copied(self, array: Any) -> Any:
        return np.array(self.download(array))  # NumPy's kernels may write to their temporaries

    def _each(self, value: Any, kind: type, convert: Callable[[Any], Any]) -> Any:
        if isinstance(value, (tuple, list)):
            items = [self._each(v, kind, convert) for v in value]
            return tuple(items) if isinstance(value, tuple) else items
        return convert(value) if isinstance(value, kind) else value

    def running(self, how: str, array: Any, axis: int) -> Any:
        """Like NumPy's ``ufunc.accumulate``, by Hillis and Steele's parallel scan."""
        combine, step = getattr(self.namespace, how), 1
        result = self.namespace.moveaxis(array, axis, 0)
        while step < len(result):
            result = self.namespace.concatenate([result[:step], combine(result[:-step], result[step:])])
            step *= 2
        return self.namespace.moveaxis(result, 0, axis)

    @abstractmethod
    def solve_triangular(self, a: Any, b: Any, upper: bool, unit: bool) -> Any:
        """The solutions of ``a @ x = b`` for batches of triangular matrices; a zero pivot gives infinities."""

    def erf(self, array: Any) -> Any:
        """The error function."""
        return self.special.erf(array)

    def erfc(self, array: Any) -> Any:
        """``1 - erf(array)``."""
        return self.special.erfc(array)

    def erfinv(self, array: Any) -> Any:
        """The inverse of the error function."""
        return self.special.erfinv(array)

    def lgamma(self, array: Any) -> Any:
        """The logarithm of the gamma function's magnitude."""
        return self.special.gammaln(array)

    def digamma(self, array: Any) -> Any:
        """The derivative of ``lgamma``."""
        return self.special.digamma(array)


class Linalg:
    """A library's linear algebra, which raises NumPy's error where the library returns NaN or infinity."""

    LinAlgError = np.linalg.LinAlgError

    def __init__(self, backend: ForeignBackend) -> None:
        self.backend = backend
        self.namespace = backend.namespace.linalg

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.namespace, name, None)
        return self.backend.on_host(getattr(np.linalg, name)) if found is None else found

    def inv(self, a: Any) -> Any:
        """The inverse of each matrix."""
        return self._checked(self.namespace.inv(a), a)

    def solve(self, a: Any, b: Any) -> Any:
        """The solution of ``a @ x = b`` for each matrix."""
        return self._checked(self.namespace.solve(a, b), a)

    def cholesky(self, a: Any) -> Any:
        """The lower triangular factor of each matrix. Raises LinAlgError if one is not positive definite."""
        result = self._factor(a)
        if self.backend.namespace.isnan(result).any():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        return result

    def _factor(self, a: Any) -> Any:
        return self.namespace.cholesky(a)

    def _checked(self, result: Any, a: Any) -> Any:
        if not self.backend.namespace.isfinite(result).all():
            matrices = self.backend.download(a).reshape(-1, *a.shape[-2:])
            if any(NUMPY.zero_pivot(matrix) for matrix in matrices):
                raise np.linalg.LinAlgError("Singular matrix")
        return result
