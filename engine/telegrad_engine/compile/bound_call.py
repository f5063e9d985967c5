"""Calls of a plan: NumPy functions replaced by faster ones, and bound to arrays nested in their arguments.

``np.sum``, ``np.take`` and ``np.moveaxis`` process their arguments in Python, which takes as long as a small kernel. A
plan knows the shapes and settings, so it calls the C function that they would call, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ..arrays.numpy_tracer import ArraySpec, Call, Ref, SliceOf

_METHODS: dict[Any, tuple[Callable[..., Any], frozenset[str]]] = {
    getattr(np, name): (getattr(np.ndarray, name), frozenset(keywords.split()))
    for name, keywords in {
        "argmax": "axis keepdims",
        "argmin": "axis keepdims",
        "argsort": "axis kind",
        "cumprod": "axis dtype",
        "cumsum": "axis dtype",
        "diagonal": "offset axis1 axis2",
        "ravel": "",
        "repeat": "axis",
        "reshape": "",
        "squeeze": "axis",
        "swapaxes": "",
        "take": "axis mode",
        "transpose": "",
    }.items()
}
"""Functions that call the array's method of the same name, and the keywords that both take."""

_REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.all: np.logical_and.reduce,
    np.any: np.logical_or.reduce,
    np.max: np.maximum.reduce,
    np.min: np.minimum.reduce,
    np.prod: np.multiply.reduce,
    np.sum: np.add.reduce,
}
"""Functions that reduce an array with a ufunc."""


def lower(call: Call, specs: Sequence[ArraySpec | None]) -> Call:
    """Return the call with a faster function, if there is one; ``specs`` describes each array by its number."""
    array = call.args[0] if call.args else None
    spec = specs[array.number] if isinstance(array, Ref) else None
    if spec is None or not spec.shape:  # without dimensions it may be a NumPy scalar, which has other methods
        return call
    if call.function in _REDUCTIONS:
        return _reduction(call)
    if call.function is np.moveaxis and len(call.args) == 3 and not call.kwargs:
        order = np.moveaxis(np.broadcast_to(False, tuple(range(len(spec.shape)))), *call.args[1:]).shape
        return call._replace(function=np.ndarray.transpose, args=(array, order))
    if call.function is np.expand_dims:
        result = specs[call.result]
        assert result is not None, "it is one array"
        return call._replace(function=np.ndarray.reshape, args=(array, result.shape), kwargs={})
    method, keywords = _METHODS.get(call.function, (None, frozenset()))
    return call if method is None or not call.kwargs.keys() <= keywords else call._replace(function=method)


def _reduction(call: Call) -> Call:
    settings: Mapping[str, Any] = call.kwargs
    if len(call.args) > 2 or not settings.keys() <= {"axis", "dtype", "keepdims"}:
        return call
    axis = call.args[1] if len(call.args) > 1 else settings.get("axis")
    others = {name: value for name, value in settings.items() if name != "axis"}
    return call._replace(function=_REDUCTIONS[call.function], args=call.args[:1], kwargs={"axis": axis, **others})


class BoundCall:
    """A call with arrays nested in its arguments, as a function of these arrays, which have the ``numbers``."""

    def __init__(self, function: Any, args: Any, kwargs: Mapping[str, Any], numbers: Sequence[int]) -> None:
        self._function, index = function, {number: i for i, number in enumerate(numbers)}
        self._args = _filling(args, index)
        self._kwargs = {name: _filling(x, index) for name, x in kwargs.items()}

    def __call__(self, *arrays: Any) -> Any:
        """Call the function on these arrays, one for each number."""
        kwargs = {name: fill(arrays) for name, fill in self._kwargs.items()} if self._kwargs else {}
        return self._function(*self._args(arrays), **kwargs)


def _filling(x: Any, index: Mapping[int, int]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that makes an argument from the arrays that its references stand for."""
    if isinstance(x, Ref):
        return itemgetter(index[x.number])
    if not isinstance(x, (tuple, list)):
        return lambda arrays: x
    if type(x) is tuple and len(x) > 1 and all(isinstance(item, Ref) for item in x):
        return itemgetter(*[index[item.number] for item in x])
    fills = [_filling(item, index) for item in x]
    if isinstance(x, SliceOf):
        return lambda arrays: slice(*[fill(arrays) for fill in fills])
    kind = type(x)
    return lambda arrays: kind([fill(arrays) for fill in fills])
