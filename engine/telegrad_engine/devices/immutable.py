"""Tensors over arrays that cannot be written to and whose views are copies, with torch's semantics all the same.

Tensors that would share memory share a :class:`Memory`: the present array of the tensor that all of them
show, whole or in part. Writing replaces that array; a view knows the chain of ops that leads from it to
what it shows, and follows it anew when something was written.
"""

from __future__ import annotations

from typing import Any

from ..abstract_layout import follow, row_major
from ..backends.symbolic import values_within
from ..errors import InvalidOperation
from ..execution import execute, shows
from ..in_place import OVERLAPPING
from ..registry import CATALOGUE, Op
from ..tensor import Tensor
from ..tracked import Tracked
from .device import DeviceTensor


class Memory:
    """What stands for memory: the array as of the latest write, and how many writes there were."""

    __slots__ = ("array", "writes")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.writes = 0


class ImmutableTensor(DeviceTensor):
    """A tensor whose array is replaced where another's would be written to."""

    _memory: Memory
    _path: tuple[tuple[Op, Any, int], ...] = ()
    """The view ops that lead from the memory's array to this tensor's."""
    _shown: Any = None
    """A view's own array, as of ``_shown_at`` writes."""
    _shown_at: int = 0
    _strides: Any = None
    """A NumPy array that lies as this tensor would (abstract_layout.py), an element a byte; None is row-major."""

    @property
    def _data(self) -> Any:
        memory = self._memory
        if not self._path:
            return memory.array
        if self._shown_at != memory.writes:
            self._shown, self._shown_at = self._follow(memory.array), memory.writes
        return self._shown

    @_data.setter
    def _data(self, array: Any) -> None:
        self._memory = Memory(array)
        self._path = ()

    @property
    def _is_contiguous(self) -> bool:
        return self._strides is None or bool(self._strides.flags.c_contiguous)

    def _strided(self) -> Any:
        return None if self._is_contiguous else self._strides

    def _follow(self, array: Any) -> Any:
        for op, attrs, index in self._path:
            array = op.kernel(self._on.backend, array, **attrs)
            if isinstance(array, (tuple, list)):
                array = array[index]
        return array

    def _store(self, value: Any) -> None:
        xp, present = self._on.backend, self._data
        if self._strides is not None and not self._strides.flags.writeable:
            raise InvalidOperation(OVERLAPPING)
        value = xp.broadcast_to(xp.asarray(value), present.shape).astype(present.dtype)
        memory = self._memory
        if self._path:
            value = CATALOGUE.get("view_scatter").kernel(xp, memory.array, value, chain=self._path)
        memory.array = value
        memory.writes += 1

    def _share(self, source: Tensor) -> None:
        assert isinstance(source, ImmutableTensor)
        for name in ("_memory", "_path", "_shown", "_shown_at", "_strides", "_cell"):
            setattr(self, name, getattr(source, name))

    def _show(self, source: Tracked, op: Op, attrs: Any, index: int) -> None:
        """Become a view of ``source``, if this output of ``op`` would show its memory.

        Whether a reshape does depends on strides (abstract_layout.py).
        """
        assert isinstance(source, ImmutableTensor)
        before = source._stand_in()
        after = follow(before, op, values_within(attrs), index)  # strides do not depend on where a slice starts
        if not shows(after, before):
            return
        shown = self._data
        self._view_of(source, op, attrs, index)
        self._memory, self._path = source._memory, (*source._path, (op, attrs, index))
        self._shown, self._shown_at, self._strides = shown, source._memory.writes, after

    def _stand_in(self) -> Any:
        """A NumPy array of this tensor's shape and strides, not to be read."""
        return row_major(tuple(self._data.shape)) if self._strides is None else self._strides

    def _show_as(self, op: Op, attrs: Any) -> None:
        (shown,), _ = execute(op, [self._data], attrs, self._on.backend)
        self._strides = follow(self._stand_in(), op, values_within(attrs), 0)
        self._path = (*self._path, (op, attrs, 0))
        self._shown, self._shown_at = shown, self._memory.writes

    def _copy_value(self) -> Any:
        return self._data  # nobody can change it
