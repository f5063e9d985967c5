"""Arrays by the memory that they share: blocks of bytes, and the layout of each array in its block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import MalformedRequest, NotSupported
from ...memory_layout import address, overlaps

_BYTE = np.dtype(np.uint8)


class ArraySpec(NamedTuple):
    """An array in a block; offset and strides are in bytes."""

    block: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    frozen: bool
    """Whether it is read-only because some of its elements share memory, as in an expanded array."""

    def covers(self, nbytes: int) -> bool:
        """Return whether it is the whole block, in row-major order."""
        step = self.dtype.itemsize
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if stride != step:
                return False
            step *= size
        return step == nbytes and not self.offset and not self.frozen

    def fits(self, nbytes: int) -> bool:
        """Return whether all elements are within a block of so many bytes. NumPy does not check this for 0 bytes."""
        steps = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        if 0 in self.shape:
            return self.offset <= nbytes
        first = self.offset + sum(step for step in steps if step < 0)
        last = self.offset + sum(step for step in steps if step > 0)
        return first >= 0 and last + self.dtype.itemsize <= nbytes


class Block:
    """The memory that some arrays share."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        """The array that has the whole memory."""
        self.arrays: list[int] = []
        """The numbers of the arrays in it."""
        self._start: int | None = None

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return int(self.owner.nbytes)

    @property
    def start(self) -> int:
        """The address of the first byte."""
        if self._start is None:
            self._start = address(self.owner)
        return self._start

    def data(self) -> Any:
        """Return the memory as an array of bytes."""
        owner = self.owner
        if not owner.flags.c_contiguous:
            owner = owner.transpose(sorted(range(owner.ndim), key=lambda d: -owner.strides[d]))
        if not owner.flags.c_contiguous:
            raise NotSupported("an array whose memory has gaps cannot be saved")
        return owner.reshape(-1).view(_BYTE)

    def copied(self, specs: Sequence[ArraySpec]) -> tuple[Any, list[Any]]:
        """Return the owner of a copy of the memory, and the arrays in it with these specs."""
        data = self.data()
        whole = next((i for i, spec in enumerate(specs) if spec.covers(data.nbytes)), None)
        owner = np.empty(data.nbytes, _BYTE) if whole is None else np.empty(specs[whole].shape, specs[whole].dtype)
        memory = owner.reshape(-1).view(_BYTE)
        memory[:] = data
        return owner, [owner if i == whole else view_in(memory, spec) for i, spec in enumerate(specs)]


class Arrays:
    """Arrays by number, in the order in which they were added, and their blocks."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.specs: list[ArraySpec] = []
        self.blocks: list[Block] = []
        self._numbers: dict[int, int] = {}
        self._block_numbers: dict[int, int] = {}

    def number(self, array: Any) -> int:
        """Return the number of an array, which is added if it is new."""
        found = self._numbers.get(id(array))
        if found is not None:
            return found
        number = self._numbers[id(array)] = len(self.arrays)
        self.arrays.append(array)
        owner = owner_of(array)
        place = self._block_numbers.get(id(owner))
        if place is None:
            place = self._block_numbers[id(owner)] = len(self.blocks)
            self.blocks.append(Block(owner))
        block = self.blocks[place]
        block.arrays.append(number)
        shape, strides = array.shape, array.strides
        frozen = not array.flags.writeable and overlaps(array)
        offset = 0 if array is owner else address(array) - block.start
        self.specs.append(ArraySpec(place, offset, shape, strides, array.dtype, frozen))
        return number

    def specs_in(self, block: Block) -> list[ArraySpec]:
        """Return the specs of the arrays in a block."""
        return [self.specs[number] for number in block.arrays]

    @property
    def nbytes(self) -> int:
        """The size of all blocks in bytes."""
        return sum(block.nbytes for block in self.blocks)

    def copied(
        self, copy: Callable[[Block, list[ArraySpec]], tuple[Any, list[Any]]] = lambda b, specs: b.copied(specs)
    ) -> tuple[list[Any], list[Any]]:
        """Return the owners of copies of the blocks, and the arrays in them by number; ``copy`` copies a block."""
        owners, found = [], dict[int, Any]()
        for block in self.blocks:
            owner, arrays = copy(block, self.specs_in(block))
            owners.append(owner)
            found.update(zip(block.arrays, arrays, strict=True))
        return owners, [found[number] for number in range(len(found))]

    def by_id(self, block: Block, others: Sequence[Any]) -> dict[int, Any]:
        """Return others in place of the arrays in a block, by the identity of these."""
        return {id(self.arrays[number]): other for number, other in zip(block.arrays, others, strict=True)}


def owner_of(array: Any) -> Any:
    """Return the array that has the whole memory of an array: the last NumPy array in the chain of its bases."""
    found, base = array, array.base
    while base is not None:
        if type(base) is np.ndarray:
            found = base
        base = getattr(base, "base", None)  # the base of an array from as_strided is not an array, but has a base
    return found


def view_in(memory: Any, spec: ArraySpec) -> Any:
    """Return an array in a block, whose memory is an array of bytes; read-only if the memory is, or if it is frozen.

    Raises MalformedRequest if it exceeds the block.
    """
    try:
        array: Any = np.ndarray(spec.shape, spec.dtype, memory, spec.offset, spec.strides)
    except (TypeError, ValueError) as error:
        raise MalformedRequest(f"snapshot: an array exceeds its memory: {error}") from None
    if spec.frozen:
        array.flags.writeable = False
    return array


def check_bools(data: Any, specs: Sequence[ArraySpec]) -> None:
    """Raise MalformedRequest unless the bytes of bool arrays are 0 or 1, which NumPy relies on."""
    kinds = {spec.dtype.kind for spec in specs}
    if "b" in kinds and (len(kinds) > 1 or (data > 1).any()):
        raise MalformedRequest("snapshot: an array of bools has other values")
