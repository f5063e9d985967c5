"""Memory admission: an op's memory is granted before its kernel runs.

An op declares its *scratch*: what its kernel allocates beside the results. Result and scratch are reserved together.
An expanded array counts with all of its elements: a kernel makes that many of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ..context import Grantor, state

if TYPE_CHECKING:
    from .op import Op

LARGE = 2**20
"""Bytes from which on memory is reserved before it is taken."""
BLOCK = 2**24
"""Bytes that a kernel computes at a time where it can work in blocks."""
OBJECT_BYTES = 640
"""Bytes that a tensor takes beside its elements: the object, its name, its counter and its place in the graph."""


def count_large(memory: Grantor, arrays: Iterable[Any]) -> None:
    """Count those of the arrays that are large."""
    for array in arrays:
        if getattr(array, "nbytes", 0) > LARGE:
            memory.count(array)


def bytes_of(values: Sequence[Any]) -> int:
    """The bytes of arrays, or of what stands for them, at their full shape; numbers and None take none."""
    total = 0
    for x in values:
        if isinstance(x, (tuple, list)):
            total += bytes_of(x)
        else:
            total += getattr(x, "nbytes", 0)
    return total


def scratch_of(op: Op, datas: Sequence[Any], attrs: Mapping[str, Any], results: int) -> int:
    """The bytes that the op's kernel takes beside its ``results``, at most, by the op's declaration."""
    scratch = op.scratch
    if callable(scratch):
        return int(scratch(*datas, **attrs))
    if not scratch:
        return 0
    narrow = any(x.dtype.itemsize == 2 for x in datas if hasattr(x, "dtype"))  # computed in float32
    computed = max(bytes_of(datas) + results, _broadcast_bytes(datas))
    if op.blocked:
        computed = min(computed, BLOCK + results)
    return int(scratch * (2 if narrow else 1) * computed)


def _broadcast_bytes(datas: Sequence[Any]) -> int:
    """The bytes of what arrays broadcast to, if they do: a loss, whose result is a number, computes all of it."""
    arrays = [x for x in datas if hasattr(x, "shape")]
    if len(arrays) < 2 or len({x.shape for x in arrays}) == 1:
        return 0
    total: int = max(x.dtype.itemsize for x in arrays)
    for sizes in zip_longest(*[reversed(x.shape) for x in arrays], fillvalue=1):
        different = {*sizes} - {1}
        if len(different) > 1:
            return 0
        total *= different.pop() if different else 1
    return total


def elements(*values: Any) -> int:
    """How many elements arrays have together, or what stands for them."""
    return sum(math.prod(x.shape) for x in values if hasattr(x, "shape"))


class reserved:
    """Within, the bytes are set aside in the session whose program runs. Raises TooLarge if there is no room."""

    __slots__ = ("_grantor", "_nbytes")

    def __new__(cls, nbytes: int) -> Any:
        """Nothing to enter for a few bytes, or outside of a session."""
        if nbytes <= LARGE or state.memory is None:
            return nullcontext()
        return super().__new__(cls)

    def __init__(self, nbytes: int) -> None:
        grantor = state.memory
        assert grantor is not None
        self._grantor, self._nbytes = grantor, nbytes

    def __enter__(self) -> None:
        self._grantor.reserve(self._nbytes)

    def __exit__(self, *exc: object) -> None:
        self._grantor.release(self._nbytes)
