"""Copy-on-write: memory that two sessions share until one of them writes to it.

A fork makes the arrays in shared memory read-only, so nothing can write to them by mistake. Code that is about to write
to a tensor whose array is read-only calls :meth:`SharedMemory.unshare`, which gives this session a copy, and all of its
arrays in that memory with it. A session that shares nothing has no :class:`SharedMemory`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from types import MethodType
from typing import Any

import numpy as np

from ...autograd.checkpoint import Frame, Kept
from ...autograd.custom_function.ctx import FunctionCtx, PackedSaved, Saved
from ...graph.node import Node
from ...program.instructions import Instruction
from ...program.registered_functions.blocks import Call
from ...schema.derivative_plan import Plan
from ...tensor.in_place import Changeable
from ...transforms.saved_tensor_hooks import Packed
from ..checkpoint_sections import SavedResults, Section, Sections
from ..session import Session
from .blocks import Arrays, ArraySpec, Block, overlaps, owner_of, view_in

SHARED_BYTES = 2**16
"""Smaller blocks are copied by a fork, which is faster than finding all of their arrays at the first write."""
MAX_WALKS = 16
"""The number of times that one session copies only what is written to. Each time all of its tensors are visited, so the
next time it copies all that it still shares."""
HOLDERS = (
    *(Changeable, Node, FunctionCtx, Saved, PackedSaved, Packed),
    *(Frame, Kept, Sections, Section, SavedResults, Instruction, Call),
)
"""The classes of the objects that refer to arrays, or to each other."""


class SharedMemory:
    """The memory that one session shares with others."""

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self._owners: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """The session's own view of each shared block, by identity."""
        self._walks = 0

    def add(self, owner: Any) -> None:
        """Note an array, from :func:`_view_of_all`, as the owner of shared memory."""
        self._owners[id(owner)] = owner

    def has(self, owner: Any) -> bool:
        """Return whether this owner's memory is shared."""
        return self._owners.get(id(owner)) is owner

    def unshare(self, tensors: Iterable[Any]) -> bool:
        """Give the session its own copy of the shared memory of these tensors. Return whether there was any.

        The tensors need not have names yet. Raises MemoryError.
        """
        session = self._session()
        tensors = [tensor for tensor in tensors if not tensor._data.flags.writeable]
        owners = [owner for tensor in tensors if self.has(owner := owner_of(tensor._data))]
        if session is None or not owners:
            return False
        self._walks += 1
        wanted = {*self._owners} if self._walks > MAX_WALKS else {id(owner) for owner in owners}
        arrays, new = Arrays(), dict[int, Any]()

        def found(array: Any) -> Any:
            arrays.number(array)
            return array

        ArrayMap(session, tensors, found)
        for block in arrays.blocks:
            if id(block.owner) in wanted:
                owner, copies = block.copied(arrays.specs_in(block))
                new |= arrays.by_id(block, copies)
                session.accounts.count(owner)
        ArrayMap(session, tensors, lambda array: new.get(id(array), array))
        for key in wanted:
            self._owners.pop(key, None)
        if not self._owners:
            session.accounts.shared = None
        return True


def share(session: Session, child: Session, arrays: Arrays) -> tuple[list[Any], list[Any]]:
    """Return the owners of memory in a fork, and its arrays by number: in memory that it shares, or in a copy.

    The session's own arrays in shared blocks become read-only.
    """
    new: dict[int, Any] = {}

    def copied(block: Block, specs: Sequence[ArraySpec]) -> tuple[Any, list[Any]]:
        if not _can_share(block, specs):
            return block.copied(specs)
        shared = block.owner
        if session.accounts.shared is None or not session.accounts.shared.has(shared):
            shared = _view_of_all(memoryview(block.data()).toreadonly())
            _note(session, shared)
            if session.accounts.uncount(block.owner):
                session.accounts.count(shared, lent=True)
            new.update(arrays.by_id(block, [view_in(shared, spec) for spec in specs]))
        owner = _view_of_all(shared.base)
        _note(child, owner)
        return owner, [view_in(owner, spec) for spec in specs]

    found = arrays.copied(copied)
    if new:
        ArrayMap(session, (), lambda array: new.get(id(array), array))
    return found


def _can_share(block: Block, specs: Sequence[ArraySpec]) -> bool:
    """Return whether a block is worth sharing, and whether its arrays can be made writable again as they were."""
    return block.nbytes >= SHARED_BYTES and all(spec.frozen or not overlaps(spec.shape, spec.strides) for spec in specs)


def _view_of_all(memory: memoryview) -> Any:
    """Return an array of the bytes of read-only memory.

    Its base is not an array. So it is the owner of the arrays that are made in it, and is freed with them.
    """
    return np.frombuffer(memory, np.uint8)


def _note(session: Session, owner: Any) -> None:
    if session.accounts.shared is None:
        session.accounts.shared = SharedMemory(session)
    session.accounts.shared.add(owner)


# Finding all arrays ---------------------------------------------------------------------------


class ArrayMap:
    """Replaces each array that a session or these tensors refer to by ``change(array)``, where that is another."""

    def __init__(self, session: Session, tensors: Iterable[Any], change: Callable[[Any], Any]) -> None:
        self._change = change
        self._holders: list[Any] = []
        self._seen: set[int] = set()
        given = [waiting.given for waiting in session.suspensions.waiting.values()]
        self._mapped([session.tensors, session.checkpoints, given, *tensors])
        for holder in self._holders:  # the list grows during the loop
            if isinstance(holder, Node):
                self._mapped(holder.next_edges)  # of a freed graph, they may not be an attribute yet
            for name in [*getattr(holder, "__dict__", ()), *_slots(holder.__class__)]:
                value = getattr(holder, name, None)
                new = self._mapped(value)
                if new is not value:
                    setattr(holder, name, new)

    def _mapped(self, value: Any) -> Any:
        kind: Any = type(value)
        if kind is np.ndarray:
            return self._change(value)
        if isinstance(value, (list, tuple)) and kind is not Plan:
            items = [self._mapped(item) for item in value]
            return value if all(a is b for a, b in zip(items, value, strict=True)) else kind(items)
        if kind is dict:
            changed = {key: self._mapped(item) for key, item in value.items()}
            return value if all(changed[key] is value[key] for key in value) else changed
        if kind is MethodType:
            self._mapped(value.__self__)
        elif _is_holder(kind) and id(value) not in self._seen:
            self._seen.add(id(value))
            self._holders.append(value)
        return value


@cache
def _is_holder(kind: Any) -> bool:
    return issubclass(kind, HOLDERS)


@cache
def _slots(kind: Any) -> list[str]:
    return [name for base in kind.__mro__ for name in vars(base).get("__slots__", ())]
