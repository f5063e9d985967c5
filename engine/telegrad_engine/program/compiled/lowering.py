"""NumPy's functions in Python replaced, in a plan, by the functions in C that they call for arrays of known shapes.

``np.sum``, ``np.take`` and ``np.moveaxis`` sort their arguments out in Python each time, which takes as long as a small
kernel. In a plan there is nothing to sort out: shapes and settings are those of the run that was taped. The results are
the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...backends.numpy_tracer import ArraySpec, Call, Ref

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
"""Functions that call the array's method of their name, and the keywords that both take."""

_REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.all: np.logical_and.reduce,
    np.any: np.logical_or.reduce,
    np.max: np.maximum.reduce,
    np.min: np.minimum.reduce,
    np.prod: np.multiply.reduce,
    np.sum: np.add.reduce,
}
"""Functions that reduce an array by a ufunc."""


def lower(call: Call, kept: Sequence[ArraySpec | None]) -> Call:
    """The call, of a quicker function where there is one; ``kept`` has what is known of each array by its number."""
    array = call.args[0] if call.args else None
    spec = kept[array.number] if isinstance(array, Ref) else None
    if spec is None or not spec.shape:  # what has no dimensions may be a scalar of NumPy's, which has other methods
        return call
    if call.function in _REDUCTIONS:
        return _reduction(call)
    if call.function is np.moveaxis and len(call.args) == 3 and not call.kwargs:
        order = np.moveaxis(np.broadcast_to(False, tuple(range(len(spec.shape)))), *call.args[1:]).shape
        return call._replace(function=np.ndarray.transpose, args=(array, order))
    if call.function is np.expand_dims:
        result = kept[call.result]
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
