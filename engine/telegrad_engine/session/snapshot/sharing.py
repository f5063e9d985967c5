"""Copy-on-write: memory that two sessions share until one of them writes to it.

A fork makes the arrays in shared memory read-only, so nothing can write to them by mistake. Code that is about to write
to a tensor whose array is read-only calls :meth:`SharedMemory.unshare`, which gives this session a copy, and all of its
arrays in that memory with it. A session that shares nothing has no :class:`SharedMemory`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..session import Session
from .blocks import Arrays, ArraySpec, Block, copied, overlaps, owner_of, replace_in, view_in
from .writer import Writer

SHARED_BYTES = 2**16
"""Smaller blocks are copied by a fork, which is faster than finding all of their arrays at the first write."""


MAX_WALKS = 16
"""The number of times that one session copies only what is written to. Each time all of its tensors are visited, so the
next time it copies all that it still shares."""


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
        writer = Writer(session, strict=False, more=tensors)
        arrays, new = writer.arrays, dict[int, Any]()
        for block in arrays.blocks:
            if id(block.owner) in wanted:
                owner, found = copied(block.data(), [arrays.specs[number] for number in block.arrays])
                new |= {id(arrays.arrays[number]): array for number, array in zip(block.arrays, found, strict=True)}
                session.accounts.count(owner)
        replace_arrays(writer, new)
        for key in wanted:
            self._owners.pop(key, None)
        if not self._owners:
            session.accounts.shared = None
        return True


def shared_with(session: Session, writer: Writer) -> list[Any]:
    """Return, for each block of a session's arrays, an owner of the same memory for another session.

    The session's own arrays in shared blocks become read-only. For a block that is not shared the owner is None.
    """
    owners: list[Any] = []
    new: dict[int, Any] = {}
    for block in writer.arrays.blocks:
        if not _can_share(block, writer.arrays):
            owners.append(None)
            continue
        own = block.owner
        if not _shares(session, own):
            own = _view_of_all(memoryview(block.data()).toreadonly())
            _note(session, own)
            if session.accounts.uncount(block.owner):
                session.accounts.count(own, lent=True)
            for number in block.arrays:
                new[id(writer.arrays.arrays[number])] = view_in(own, writer.arrays.specs[number])
        owners.append(_view_of_all(own.base))
    replace_arrays(writer, new)
    return owners


def share(session: Session, owners: Sequence[Any]) -> None:
    """Note the owners that are not None as memory that a session shares."""
    for owner in owners:
        if owner is not None:
            _note(session, owner)


def arrays_of(block: Block, owner: Any, arrays: Arrays) -> tuple[Any, list[Any]]:
    """Return the owner of a block in another session and its arrays there: in the shared memory, or in a copy."""
    specs: list[ArraySpec] = [arrays.specs[number] for number in block.arrays]
    if owner is None:
        return copied(block.data(), specs)
    return owner, [view_in(owner, spec) for spec in specs]


def _can_share(block: Block, arrays: Arrays) -> bool:
    """Return whether a block is worth sharing, and whether its arrays can be made writable again as they were."""
    return block.nbytes >= SHARED_BYTES and all(
        arrays.specs[n].frozen or not overlaps(arrays.specs[n].shape, arrays.specs[n].strides) for n in block.arrays
    )


def _view_of_all(memory: memoryview) -> Any:
    """Return an array of the bytes of read-only memory.

    Its base is not an array. So it is the owner of the arrays that are made in it, and is freed with them.
    """
    return np.frombuffer(memory, np.uint8)


def _shares(session: Session, owner: Any) -> bool:
    shared = session.accounts.shared
    return shared is not None and shared.has(owner)


def _note(session: Session, owner: Any) -> None:
    if session.accounts.shared is None:
        session.accounts.shared = SharedMemory(session)
    session.accounts.shared.add(owner)


def replace_arrays(writer: Writer, new: Mapping[int, Any]) -> None:
    """Replace arrays in all objects that a walk found; ``new`` has the new arrays by the identity of the old ones."""
    if not new:
        return

    def changed(array: Any) -> Any:
        return new.get(id(array), array)

    for tensor in writer.tensors:
        own = vars(tensor)
        for name in ("_data", "_layout"):
            if id(own.get(name)) in new:
                setattr(tensor, name, new[id(own[name])])
    for node in writer.nodes:
        if node.saved:
            node.saved = replace_in(node.saved, changed)
    for holder, name in writer.holders:
        setattr(holder, name, replace_in(getattr(holder, name), changed))
