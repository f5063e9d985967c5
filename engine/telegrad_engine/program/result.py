"""Answers of programs: the fetched tensors, with descriptions and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

from ..context import MemoryBudget
from ..errors import TooLarge
from ..tensor.eager import Tensor
from . import safetensors
from .instructions import Instruction
from .safetensors import Container


class Value(NamedTuple):
    """A fetched tensor: its description, and its array unless only the description was requested."""

    description: dict[str, Any]
    array: Any


class Answer(NamedTuple):
    """The answer of a program: fetched values by id."""

    values: dict[str, Value]
    pending: dict[str, Any] | None = None
    """The call that the client must evaluate, if a backward pass waits for it: no later instruction has run."""
    observed: bool = False
    """Whether somebody observes the session, and wants to know the user's lines (``inspection.observation``)."""


def describe(name: str, tensor: Tensor) -> dict[str, Any]:
    """Return the description of a tensor: id, shape, dtype, device and its place in the graph."""
    grad_fn = tensor._last_grad_fn
    return {
        "id": name,
        "shape": list(tensor._data.shape),
        "dtype": tensor.dtype.name,
        "device": tensor.device,
        "requires_grad": tensor.requires_grad,
        "is_leaf": grad_fn is None,
        "grad_fn": None if grad_fn is None else grad_fn.name(),
        "version": tensor._version,
    }


def fetch(
    instruction: Instruction,
    tensors: Mapping[str, Tensor],
    values: dict[str, Value],
    most: int,
    memory: MemoryBudget,
    copy: bool = False,
) -> None:
    """Add the tensors of a ``fetch`` to the ``values`` of its program, which may take ``most`` bytes in total.

    With ``copy`` the values are copied, because the tensors may change. Raises TooLarge, or the error of a quota.
    """
    with_values = instruction.attrs.get("values", True)
    for name in instruction.inputs[0]:
        tensor = tensors[name]
        if with_values:
            # An expanded tensor shares memory here, but is sent in full.
            fetched = sum(v.array.nbytes for v in values.values() if v.array is not None)
            if fetched + tensor._data.nbytes > most:
                raise TooLarge(f"the values that the program fetches take more than {most} bytes")
            memory.check_quota(tensor._data.nbytes)
        values[name] = Value(describe(name, tensor), tensor._host(copy) if with_values else None)


def last_change(program: Sequence[Instruction]) -> int:
    """Return the index from which on no instruction changes a tensor, so that values need no copy."""
    index = len(program)
    while index and program[index - 1].op in ("fetch", "free"):
        index -= 1
    return index


LEAST = 2**20
"""The minimum size in bytes of a container that is sent from the tensors' own memory."""


class BorrowedAnswer:
    """A container in pieces, some of which are the memory of a session's tensors. Safe to use from two threads.

    The session calls :meth:`materialize` before it changes any tensor.
    """

    def __init__(self, pieces: Sequence[Container]) -> None:
        self._pieces = pieces
        self._size = sum(map(len, pieces))
        self._lock = Lock()

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, most: int) -> bytes:
        """Return a copy of at most ``most`` bytes from ``start`` on; it is empty only at the end."""
        with self._lock:
            for piece in self._pieces:
                if start < len(piece):
                    return bytes(memoryview(piece)[start : start + most])
                start -= len(piece)
        return b""

    def materialize(self) -> None:
        """Copy the pieces to memory of their own, once."""
        with self._lock:
            if len(self._pieces) > 1:
                self._pieces = [safetensors.joined(self._pieces)]

    def in_one_buffer(self) -> Container:
        """Return the whole container in one buffer."""
        self.materialize()
        return self._pieces[0]


def in_one_buffer(answer: Container | BorrowedAnswer) -> Container:
    """Return an answer of either type in one buffer."""
    return answer.in_one_buffer() if isinstance(answer, BorrowedAnswer) else answer
