"""Installs the elementwise fast path and the call cache in front of the API.

They change only the time that a call takes, and are skipped on a thread whose ops are observed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from ..arrays import NUMPY
from ..schema.declaration import SCRATCH
from ..schema.op import CATALOGUE, NO_ATTRS, Op
from . import abstract, eager
from .call_cache import Prepare, preparing, remembering
from .eager import Tensor, apply, execute_and_record, functions
from .elementwise_fast_path import direct_kernel, is_quick, quick
from .indexing import getitem, resolve_getitem
from .methods import SORTING, TensorMethods, plain_methods, reflected_methods
from .namespace import Functions, resolver
from .prepared_calls import on_arrays

KINDS = frozenset({Tensor})
prepare = preparing(on_arrays, apply)


def remember(
    cls: type[Any],
    functions: Functions,
    prepare: Prepare,
    kinds: Container[type[Any]],
    cached: Callable[..., Callable[..., Any]] = remembering,
) -> None:
    """Install a call cache for tensors of ``kinds`` in front of the methods of ``cls`` and of ``functions``.

    ``cached`` makes the wrappers, with the arguments of :func:`remembering`. Calls of random ops are not cached.
    """

    def sorting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        resolve = resolver(name)
        if resolve is None or all(op.random for op in CATALOGUE.overloads.get(name, ())):
            return function
        return cached(function, resolve, prepare, kinds)

    for name, op in plain_methods():
        setattr(cls, name, cached(getattr(TensorMethods, name), _as_given(op), prepare, kinds))
    for name, op in reflected_methods():
        setattr(cls, name, cached(getattr(TensorMethods, name), _reversed(op), prepare, kinds))
    for name in SORTING:
        setattr(cls, name, sorting(name, getattr(TensorMethods, name)))
    cls._cast = sorting("cast", TensorMethods._cast)
    cls.__getitem__ = cached(getitem, resolve_getitem, prepare, kinds)
    functions.add_wrapper(sorting)


def _as_given(op: Op) -> Callable[..., tuple[Op, tuple[Any, ...], Mapping[str, Any]]]:
    """Return the resolver of an operator or a method without options, which has no arguments to sort."""

    def resolve(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Op, tuple[Any, ...], Mapping[str, Any]]:
        return op, tuple(args), NO_ATTRS

    return resolve


def _reversed(op: Op) -> Callable[..., tuple[Op, tuple[Any, ...], Mapping[str, Any]]]:
    """Return the resolver of a reflected operator, as in ``2 * x``."""

    def resolve(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Op, tuple[Any, ...], Mapping[str, Any]]:
        return op, tuple(args[::-1]), NO_ATTRS

    return resolve


def _accelerate(cls: type[Any]) -> None:
    """Install the elementwise fast path in front of the methods of ``cls``."""
    for name, op in plain_methods():
        if is_quick(op):
            setattr(cls, name, quick(op, cls, getattr(cls, name)))


def install() -> None:
    """Install the call cache and the elementwise fast path of the engine."""
    remember(Tensor, functions, prepare, KINDS)
    remember(abstract.Meta, abstract.functions, abstract.prepare, abstract.KINDS)
    for op in CATALOGUE:
        if op.pointwise and op.scratch is SCRATCH and direct_kernel(op, NUMPY) is not None:
            op.scratch = 0.0  # a single call that writes the result directly
        if is_quick(op):
            eager.quick_functions[op] = quick(op, Tensor, lambda *inputs, op=op: execute_and_record(op, inputs))
    _accelerate(Tensor)
