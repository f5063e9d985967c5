"""Memory admission: an op's memory is granted before its kernel runs.

An op declares its *scratch*: the memory that its kernel allocates in addition to the results. Results and scratch are
reserved together. An expanded array counts with its full shape, because kernels compute all of its elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ..context import MemoryBudget, state

if TYPE_CHECKING:
    from .op import Op

LARGE = 2**20
"""Memory of more bytes than this is reserved before it is allocated."""
BLOCK = 2**24
"""The bytes per block of a kernel that works in blocks."""
OBJECT_BYTES = 640
"""The bytes that a tensor takes besides its elements: the object, its name, its version counter and its node."""


def count_large(memory: MemoryBudget, arrays: Iterable[Any]) -> None:
    """Count the arrays that take more than ``LARGE`` bytes."""
    for array in arrays:
        if getattr(array, "nbytes", 0) > LARGE:
            memory.count(array)


def bytes_of(values: Sequence[Any]) -> int:
    """The total bytes of arrays or Specs at their full shape; numbers and None count as 0."""
    total = 0
    for x in values:
        if isinstance(x, (tuple, list)):
            total += bytes_of(x)
        else:
            total += getattr(x, "nbytes", 0)
    return total


def scratch_of(op: Op, datas: Sequence[Any], attrs: Mapping[str, Any], results: int) -> int:
    """The maximum scratch of the op's kernel in bytes, by its declaration; ``results`` are the bytes of its results."""
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
    """The bytes of the arrays' broadcast shape, which a loss computes in full; 0 without broadcasting."""
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
    """The total number of elements of arrays or Specs."""
    return sum(math.prod(x.shape) for x in values if hasattr(x, "shape"))


class reserved:
    """A context that reserves bytes in the session whose program runs. Raises TooLarge if there is no room."""

    __slots__ = ("_grantor", "_nbytes")

    def __new__(cls, nbytes: int) -> Any:
        """Return a null context for at most ``LARGE`` bytes or outside of a session."""
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
