"""Copy-on-write: memory that two sessions share until one of them writes to it.

A fork makes the arrays in shared memory read-only, so nothing can write to them by mistake. Code that is about to write
to a tensor whose array is read-only calls :meth:`SharedMemory.unshare`, which gives this session a copy, and all of its
arrays in that memory with it. A session that shares nothing has no :class:`SharedMemory`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MethodType
from typing import Any

import numpy as np

from ...autograd.checkpoint import Frame
from ...autograd.custom_function.ctx import FunctionCtx, Saved
from ...graph.node import Node
from ...memory_layout import overlaps
from ...program.checkpoint_sections import SavedResults, Section, Sections
from ...program.instructions import Instruction
from ...program.registered_functions.blocks import CallContext
from ...tensor.in_place import TensorInPlace
from ...transforms.saved_tensor_hooks import Packed
from ..session import Session
from .blocks import Arrays, ArraySpec, Block, owner_of, view_in

SHARED_BYTES = 2**16
"""Smaller blocks are copied by a fork, which is faster than finding all of their arrays at the first write."""
MAX_WALKS = 16
"""The number of times that one session copies only what is written to. Each time all of its tensors are visited, so the
next time it copies all that it still shares."""
HOLDERS = (
    *(TensorInPlace, Node, FunctionCtx, Saved, Packed),
    *(Frame, Sections, Section, SavedResults, Instruction, CallContext),
)
"""The classes of the objects that refer to arrays, or to each other."""
WITHOUT_ARRAYS = {"op", "plan", "shape", "dtype", "specs", "versions", "output_nrs", "_version_counter"}
"""Their attributes that are not looked at."""


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
        references, new = References(session, tensors), dict[int, Any]()
        arrays = references.arrays
        for block in arrays.blocks:
            if id(block.owner) in wanted:
                owner, copies = block.copied(arrays.specs_in(block))
                new |= arrays.by_id(block, copies)
                session.accounts.count(owner)
        references.replace(new)
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
        restorable = all(spec.frozen or not overlaps(spec) for spec in specs)  # they can be made writable again
        if block.nbytes < SHARED_BYTES or not restorable:
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
        References(session).replace(new)
    return found


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


class References:
    """The references to arrays in a session and in these tensors."""

    def __init__(self, session: Session, tensors: Iterable[Any] = ()) -> None:
        self.arrays = Arrays()
        self._attributes: list[tuple[Any, str, Any]] = []
        """The attributes that are or contain arrays, each with its object and value."""
        self._holders: list[Any] = []
        self._seen: set[int] = set()
        given = [waiting.given for waiting in session.suspensions.waiting.values()]
        self._visit([session.tensors, session.checkpoints, given, *tensors])
        for holder in self._holders:  # the list grows during the loop
            own = getattr(holder, "__dict__", {})
            for name in _slots(holder.__class__):
                own = {**own, name: getattr(holder, name, None)}
            for name, value in own.items():
                if name not in WITHOUT_ARRAYS and self._visit(value):
                    self._attributes.append((holder, name, value))
            if "next_edges" not in own and isinstance(holder, Node):
                self._visit(holder.next_edges)  # a freed graph is made when it is looked at

    def _visit(self, value: Any) -> bool:
        """Visit the objects in a value. Return whether it is or contains an array."""
        kind: Any = type(value)
        if kind is np.ndarray:
            self.arrays.number(value)
            return True
        if issubclass(kind, (list, tuple)):
            return True in [self._visit(item) for item in value]
        if kind is dict:
            return True in [self._visit(item) for item in value.values()]
        if kind is MethodType:
            return self._visit(value.__self__)
        if _is_holder(kind) and id(value) not in self._seen:
            self._seen.add(id(value))
            self._holders.append(value)
        return False

    def replace(self, new: Mapping[int, Any]) -> None:
        """Replace arrays by new ones, given by the identity of the old ones."""
        for holder, name, value in self._attributes:
            replaced = _replaced(value, new)
            if replaced is not value:
                setattr(holder, name, replaced)


def _replaced(value: Any, new: Mapping[int, Any]) -> Any:
    """Return a value with new arrays; the same object if nothing changes."""
    kind = type(value)
    if kind is np.ndarray:
        return new.get(id(value), value)
    if issubclass(kind, (list, tuple)):
        items = [_replaced(item, new) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else kind(items)
    if kind is dict:
        changed = {key: _replaced(item, new) for key, item in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    return value


@cache
def _is_holder(kind: Any) -> bool:
    return issubclass(kind, HOLDERS)


@cache
def _slots(kind: Any) -> list[str]:
    return [name for base in kind.__mro__ for name in vars(base).get("__slots__", ())]
