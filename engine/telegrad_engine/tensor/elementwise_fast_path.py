"""The fast path for elementwise ops on plain tensors of one dtype and one shape.

Small ops are the most common, and their time is mostly the overhead of calls and look-ups. Each elementwise op of one
or two operands gets a function here that does in one frame what apply, execute and record do in many: it finds that
nothing needs checking, runs the kernel and adds the result to the graph. All other calls go to ``otherwise``.
fast_paths.py installs these functions as operators and methods, and in front of ``apply``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..context import observers, state
from ..graph.node import Node, accumulator, announce, new_node, record, save
from ..schema.op import NO_ATTRS, Op
from ..schema.signature import REQUIRED
from .inference import mark

ndarray = np.ndarray
_new = object.__new__
# The dtypes for which NumPy and torch give the same result of an operation with a Python number. NumPy has one object
# for each, so they can be compared by identity.
_FLOAT, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
MAX_ELEMENTS = 2**20
"""The largest size for the fast path; memory for larger results must be reserved first."""
_NUMBERS = frozenset({float, int})
_OUTPUT, _OTHER, _BOTH = (-1,), (1,), (1, 0)
"""The ``takes`` of the most common plans."""


def is_quick(op: Op) -> bool:
    """Whether an op has a fast path: it keeps the dtype, has one or two operands and only optional attributes."""
    return op.keeps_dtype and 1 <= len(op.tensor_params) <= 2 and all(p.default is not REQUIRED for p in op.attr_params)


def quick(op: Op, cls: type[Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``op`` as a function of its operands; calls on other than plain tensors of ``cls`` go to ``otherwise``."""
    make = _unary if len(op.tensor_params) == 1 else _binary
    return functools.wraps(otherwise)(make(op, cls, otherwise))


def _unary(op: Op, cls: type[Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    kernel = _kernel(op)
    plan: Any = None

    def call(input: Any, *rest: Any) -> Any:
        nonlocal plan
        plain = input._plain if type(input) is cls else None
        if plain is None or rest or (not plain and _is_stale(input)):
            return otherwise(input, *rest)
        if observers and state.ops_observed:
            return otherwise(input)
        x = input._data
        dtype = x.dtype
        if (dtype is not _FLOAT and dtype is not _DOUBLE) or x.size > MAX_ELEMENTS:
            return otherwise(input)
        out = kernel(x)
        tensor = _new(cls)
        tensor._data = out if plain and type(out) is ndarray else np.asarray(out, order="C")
        cell = tensor._version_counter = [0]
        if not state.grad_enabled:
            if state.inference:
                mark((tensor,))
            return tensor
        if not input._requires_grad or not op.differentiable:
            return tensor
        if plan is None:
            plan = op.plan((True,))
        takes = plan.takes
        if takes is None:
            record(op, NO_ATTRS, (input,), (tensor,))
            return tensor
        place = input._node
        edges = (accumulator(input) if place is None else place,)
        node = new_node(Node, op, plan, NO_ATTRS, edges, x.shape, dtype)
        if input._output_nr:
            node.output_nrs = (input._output_nr,)
        if takes == _OUTPUT:
            node.saved = (tensor._data,)
            node.versions = ((0, cell, 0),)
        elif takes:
            save(node, plan.saves, (input,), (tensor,))
        tensor._node = node
        tensor._requires_grad = True
        if observers:
            announce(node, (input,), (tensor,))
        return tensor

    return call


def _binary(op: Op, cls: type[Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    kernel = _kernel(op)
    plans: list[Any] = [None] * 4

    def call(input: Any, other: Any) -> Any:
        plain = input._plain if type(input) is cls else None
        if plain is None or (not plain and _is_stale(input)):
            return otherwise(input, other)
        if observers and state.ops_observed:
            return otherwise(input, other)
        x = input._data
        dtype, shape = x.dtype, x.shape
        if (dtype is not _FLOAT and dtype is not _DOUBLE) or x.size > MAX_ELEMENTS:
            return otherwise(input, other)
        if type(other) is cls:
            y = other._data
            if y.dtype is not dtype or y.shape != shape:
                return otherwise(input, other)
            if not other._plain:
                if _is_stale(other):
                    return otherwise(input, other)
                plain = False
            number, second = False, other._requires_grad
        elif type(other) in _NUMBERS:
            y, number, second = other, True, False
        else:
            return otherwise(input, other)
        out = kernel(x, y)
        tensor = _new(cls)
        tensor._data = out if plain and type(out) is ndarray else np.asarray(out, order="C")
        tensor._version_counter = [0]
        if not state.grad_enabled:
            if state.inference:
                mark((tensor,))
            return tensor
        first = input._requires_grad
        if not (first or second) or not op.differentiable:
            return tensor
        plan = plans[first + 2 * second]
        if plan is None:
            plan = plans[first + 2 * second] = op.plan((first, second))
        takes = plan.takes
        if takes is None:
            record(op, NO_ATTRS, (input, other), (tensor,))
            return tensor
        edges = (
            (accumulator(input) if input._node is None else input._node) if first else None,
            (accumulator(other) if other._node is None else other._node) if second else None,
        )
        node = new_node(Node, op, plan, NO_ATTRS, edges, shape, dtype)
        if input._output_nr or (second and other._output_nr):
            node.output_nrs = (input._output_nr, other._output_nr if second else 0)
        if takes == _OTHER:
            node.saved = (y,)
            if not number:
                cell = other._version_counter
                node.versions = ((0, cell, cell[0]),)
        elif takes == _BOTH and not number:
            cell, own = other._version_counter, input._version_counter
            node.saved = (y, x)
            node.versions = ((0, cell, cell[0]), (1, own, own[0]))
        elif takes:
            save(node, plan.saves, (input, other), (tensor,))
        tensor._node = node
        tensor._requires_grad = True
        if observers:
            announce(node, (input, other), (tensor,))
        return tensor

    return call


def _is_stale(tensor: Any) -> bool:
    """Whether a view's base was modified since the view's history was built, so that it must be rebuilt."""
    return tensor._base is not None and bool(tensor._seen_version != tensor._version_counter[0])


def _kernel(op: Op) -> Callable[..., Any]:
    """Return the op's kernel on NumPy; if it only calls a NumPy function, that function, which saves a call."""
    return direct_kernel(op, NUMPY) or functools.partial(op.kernel, NUMPY)


class _Spy:
    """A namespace whose functions return their name and arguments."""

    def __getattr__(self, name: str) -> Callable[..., tuple[str, tuple[Any, ...]]]:
        return lambda *args: (name, args)


def direct_kernel(op: Op, xp: Any) -> Callable[..., Any] | None:
    """Return the function of ``xp`` that the kernel calls with default attributes; None if it does anything else."""
    operands = tuple(object() for _ in op.tensor_params)
    try:
        name, given = op.raw(_Spy(), *operands)
    except Exception:
        return None  # the kernel computes with its operands itself
    if not isinstance(name, str) or given != operands:
        return None
    function: Callable[..., Any] | None = getattr(xp, name, None)
    return function
