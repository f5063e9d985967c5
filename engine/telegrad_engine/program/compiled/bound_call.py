"""Calls of a plan that take arrays inside of their arguments: an index of several, say, or a list to put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...backends.numpy_tracer import Ref, SliceOf


class BoundCall:
    """A function with arrays somewhere inside of its arguments, as one of these arrays: those with the ``numbers``."""

    def __init__(self, function: Any, args: Any, kwargs: Mapping[str, Any], numbers: Sequence[int]) -> None:
        self._function, index = function, {number: i for i, number in enumerate(numbers)}
        self._args = _filling(args, index)
        self._kwargs = {name: _filling(x, index) for name, x in kwargs.items()}

    def __call__(self, *arrays: Any) -> Any:
        """Call it on these arrays, one for each number."""
        kwargs = {name: fill(arrays) for name, fill in self._kwargs.items()} if self._kwargs else {}
        return self._function(*self._args(arrays), **kwargs)


def _filling(x: Any, index: Mapping[int, int]) -> Callable[[Sequence[Any]], Any]:
    """What makes an argument of arrays, which are to be in its references' places."""
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
