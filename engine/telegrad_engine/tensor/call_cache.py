"""A cache of prepared calls, so that repeated calls skip the checks on their arguments.

A call sorts its arguments, chooses the overload, applies the shape rule, checks the memory, casts its inputs and
decides what to save for the derivative. All of that depends only on the key of the call: the arguments' shapes, dtypes
and ``requires_grad``, and the numbers among them. The second call with the same key is cached as a function that runs
the kernel, adds the result to the graph and does nothing else. :func:`remember` puts the cache in front of the
functions and methods of a class of tensors: the engine's with calls that prepared_calls.py prepares, the SDK's with
calls that it records.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from ..context import observers, state
from ..dtypes import DType
from ..lru import LRU
from ..schema.op import CATALOGUE, NO_ATTRS, Op
from ..shapes import Size, Spec
from .execution import Enter
from .indexing import getitem, resolve_getitem
from .methods import SORTING, TensorMethods, plain_methods, reflected_methods
from .namespace import Apply, Functions, Resolve, resolver
from .prepared_calls import RecordedCall, infer_specs

Ready = Callable[[list[Any]], Any]
"""A prepared call: applies an op to tensors like those that it was prepared for."""

Prepare = Callable[[Op, tuple[Any, ...], Mapping[str, Any], Sequence[Any]], Ready | None]

CALLS = 512
"""The number of most recent calls that are remembered for each function."""

CONSTANTS = frozenset({int, bool, str, type(None), DType})
_BOUNDS = frozenset({int, type(None)})
SEQUENCES = frozenset({tuple, list, Size})
_NEW, _ONCE, _UNFIT = "new", "once", "unfit"
"""The state of a call that is new, was made once, or cannot be cached."""


class CallSignature(NamedTuple):
    """A call that is being prepared, described by what all calls with its key have in common."""

    op: Op
    inputs: tuple[Any, ...]
    """The op's inputs. The tensors among them belong to this call only."""
    attrs: Mapping[str, Any]
    specs: list[Spec]
    """The shapes and dtypes of the outputs, from the op's rule."""
    order: list[int | None] | None
    """For each input, its position among the call's tensors, or None for a constant; None if both lists are equal."""

    @property
    def many(self) -> bool:
        """Whether the op has several outputs or returns a list."""
        return self.op.lists_outputs or len(self.op.outputs) > 1


def cached_calls(
    otherwise: Callable[..., Any],
    resolve: Resolve,
    prepare: Prepare,
    kinds: Container[type[Any]],
    calls: int = CALLS,
) -> Callable[..., Any]:
    """Return ``otherwise`` with a cache of prepared calls for tensors of ``kinds``.

    ``otherwise`` resolves its arguments and applies the op. ``prepare(op, inputs, attrs, tensors)`` returns a function
    that applies the op to tensors like these, or None. The cache holds at least the last ``calls`` calls, and at most
    twice as many.
    """
    known: LRU[Any, Any] = LRU(calls)

    def call(*args: Any, **kwargs: Any) -> Any:
        modes = state.__dict__
        if modes["autocast"] is not None or (observers and modes["ops_observed"]):
            return otherwise(*args, **kwargs)
        key: list[Any] = [modes["grad_enabled"], *kwargs]
        tensors: list[Any] = []
        for value in (*args, *kwargs.values()) if kwargs else args:
            kind = type(value)
            if kind in kinds:
                if value._base is not None and value._seen_version != value._version_counter[0]:
                    return otherwise(*args, **kwargs)  # the view's history must be rebuilt
                data = value._data
                key += (data.shape, data.dtype, value._requires_grad)
                tensors.append(value)
            elif kind in CONSTANTS:
                key += (kind, value)
            elif kind is float:
                key += (kind, value or repr(value))  # 0.0 and -0.0 compare equal but give different results
            else:
                parts = key_parts(value if kind in SEQUENCES else (value,))
                if parts is None:
                    return otherwise(*args, **kwargs)
                key += (kind, parts)
        if not tensors:
            return otherwise(*args, **kwargs)
        found = tuple(key)
        try:
            ready = known[found]
        except KeyError:
            ready = _NEW
        if type(ready) is not str:
            return ready(tensors)
        result = otherwise(*args, **kwargs)
        if ready is _NEW:
            known[found] = _ONCE
        elif ready is _ONCE:
            args, kwargs, tensors = with_stand_ins(args, kwargs, kinds)
            resolved = resolve(args, kwargs)
            known[found] = (resolved and prepare(*resolved, tensors)) or _UNFIT
        return result

    return functools.wraps(otherwise)(call)


def remember(
    cls: type[Any],
    functions: Functions,
    prepare: Prepare,
    kinds: Container[type[Any]],
    cached: Callable[..., Callable[..., Any]] = cached_calls,
    operators: bool = True,
) -> None:
    """Put a call cache for tensors of ``kinds`` in front of the methods of ``cls`` and of ``functions``.

    ``cached`` makes the wrappers, with the arguments of :func:`cached_calls`. Calls of random ops are not cached.
    Without ``operators``, neither are those of operators and of methods that take only the tensor.
    """

    def sorting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        resolve = resolver(name)
        if resolve is None or all(op.random for op in CATALOGUE.overloads.get(name, ())):
            return function
        return cached(function, resolve, prepare, kinds)

    for name, op in plain_methods() if operators else ():
        setattr(cls, name, cached(getattr(TensorMethods, name), _operator(op), prepare, kinds))
    for name, op in reflected_methods() if operators else ():
        setattr(cls, name, cached(getattr(TensorMethods, name), _operator(op, reflected=True), prepare, kinds))
    for name in SORTING:
        setattr(cls, name, sorting(name, getattr(TensorMethods, name)))
    cls._cast = sorting("cast", TensorMethods._cast)
    cls.__getitem__ = cached(getitem, resolve_getitem, prepare, kinds)
    functions.add_wrapper(sorting)


def _operator(op: Op, reflected: bool = False) -> Resolve:
    """Return the resolver of an operator, ``reflected`` as in ``2 * x``, or of a method without options."""

    def resolve(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Op, tuple[Any, ...], Mapping[str, Any]]:
        return op, tuple(args[::-1] if reflected else args), NO_ATTRS

    return resolve


def with_stand_ins(
    args: tuple[Any, ...], kwargs: dict[str, Any], kinds: Container[type[Any]]
) -> tuple[tuple[Any, ...], dict[str, Any], list[Any]]:
    """Return the arguments of a call, and the tensors among them, with a stand-in for each that comes again.

    So a resolver shows where each of them goes, also in ``x * x``.
    """
    tensors: list[Any] = []

    def other(value: Any) -> Any:
        if type(value) not in kinds:
            return value
        if any(value is tensor for tensor in tensors):
            value = value._without_value()
        tensors.append(value)
        return value

    return tuple([other(x) for x in args]), {name: other(x) for name, x in kwargs.items()}, tensors


def key_parts(items: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return sizes or an index as part of a key; None if an item is anything but an int, None, ``...`` or a slice."""
    parts: list[Any] = []
    for item in items:
        if type(item) is int or item is None or item is Ellipsis:
            parts.append(item)
        elif type(item) is slice and {type(item.start), type(item.stop), type(item.step)} <= _BOUNDS:
            parts.append((item.start, item.stop, item.step))
        else:
            return None
    return tuple(parts)


def op_function(
    op: Op,
    attrs: Mapping[str, Any],
    apply: Apply,
    prepare: Prepare,
    kinds: Container[type[Any]],
    calls: int = CALLS,
) -> Any:
    """Return the op with these attributes as a function of its inputs, with a cache of prepared calls."""

    def resolve(inputs: Sequence[Any], _: Mapping[str, Any]) -> tuple[Op, tuple[Any, ...], Mapping[str, Any]]:
        return op, op.check_inputs(inputs), attrs

    def call(*inputs: Any) -> Any:
        return apply(op, op.check_inputs(inputs), attrs)

    return cached_calls(call, resolve, prepare, kinds, calls)


def preparer(make: Callable[[CallSignature], Ready | None], apply: Apply) -> Prepare:
    """Return a ``prepare`` for :func:`cached_calls`; ``make`` prepares the calls of ops that are not composite."""

    def prepare(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tensors: Sequence[Any]) -> Ready | None:
        order = _order(inputs, tensors)
        if order is None or op.random or op.has_lists:
            return None
        if op.composite:
            blank = [None if hasattr(x, "_data") else x for x in inputs]  # keep no tensor alive
            return lambda tensors: apply(op, tuple(bind_inputs(blank, order, tensors)), attrs)
        specs = infer_specs(op, inputs, attrs)
        if not specs or not _same_dtype(op, inputs):
            return None
        straight = order == list(range(len(tensors)))
        return make(CallSignature(op, inputs, attrs, specs, None if straight else order))

    return prepare


def _order(inputs: tuple[Any, ...], tensors: Sequence[Any]) -> list[int | None] | None:
    """For each input, return its position among the call's tensors, or None for a constant.

    Return None if a tensor is not an input, or is one more than once.
    """
    positions = {id(tensor): i for i, tensor in enumerate(tensors)}
    order = [positions.get(id(x)) for x in inputs]
    taken = [i for i in order if i is not None]
    return order if len(taken) == len(set(taken)) == len(tensors) else None


def bind_inputs(constants: Sequence[Any], order: Sequence[int | None], tensors: Sequence[Any]) -> list[Any]:
    """Return an op's inputs from its constants and a call's tensors."""
    return [constant if i is None else tensors[i] for constant, i in zip(constants, order, strict=True)]


def _same_dtype(op: Op, inputs: tuple[Any, ...]) -> bool:
    """Whether the op computes without casting any input tensor."""
    if op.common is None:
        return True
    datas = [x._data if hasattr(x, "_data") else x for x in inputs]
    dtype = op.common(tuple(datas))
    return all(x._data.dtype == dtype for x in inputs[op.unpromoted :] if hasattr(x, "_data"))


def node_maker(call: CallSignature) -> Enter | None:
    """Return a function that records calls like this one and notifies the observer; None if they are not recorded."""
    op, inputs, attrs, specs, _ = call
    recorded = RecordedCall(op, inputs, attrs, specs)
    return None if recorded.plan is None else recorded.record
