"""The user's lines and modules of recorded instructions, which are told to a session that somebody observes.

An answer says whether somebody does. From then on, each structure is told once: the lines, which are noted anyway, and
the modules, for which calls of modules are tracked until all structures are known. Otherwise none of this runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import PurePath
from typing import Any, ClassVar
from weakref import WeakSet, ref

from telegrad_engine.lru import LRU

from ..call_site import Line
from .segment import Segment

MAX_TOLD = 256
"""How many structures, most recently told, are not told again; a server remembers as many."""
KNOWN_MESSAGES = 8
"""After this many messages in a row with nothing to tell, calls of modules are not tracked until there is something."""
Mark = tuple[int, str | None]
"""The number of instructions before a module was entered or left, and the module that is called from then on."""


class _ModuleStack(threading.local):
    def __init__(self) -> None:
        self.names: list[str] = []


_stack = _ModuleStack()
_switches: list[Callable[[bool], None]] = []


def on_tracking(switch: Callable[[bool], None]) -> None:
    """Call ``switch`` whenever calls of modules begin (True) or end (False) to be tracked."""
    _switches.append(switch)
    switch(bool(Origins._tracking))


def current_module() -> str | None:
    """The path of the innermost module that is called on this thread, as far as calls are tracked."""
    return _stack.names[-1] if _stack.names else None


def enter_module(name: str) -> None:
    """Note that a module is called on this thread."""
    _stack.names.append(name)
    Origins.mark()


def leave_module() -> None:
    """Note that the innermost module has returned."""
    _stack.names.pop()
    Origins.mark()


def _switch(tracks: bool) -> None:
    for switch in _switches:
        switch(tracks)


class Origins:
    """What one recorder tells its session."""

    _tracking: ClassVar[WeakSet[Origins]] = WeakSet()
    """Those that want to know which modules are called."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = ref(recorder)
        self._told: LRU[str, bool] = LRU(MAX_TOLD)
        self._known = 0
        """The number of messages in a row with nothing to tell."""
        self._begins = False
        """Whether no segment has begun since calls are tracked. A module may have been called before, unnoticed."""
        self._track(True)

    @classmethod
    def mark(cls) -> None:
        """Note which module is called on this thread from now on."""
        for origins in cls._tracking:
            recorder = origins._recorder()
            segment = None if recorder is None else recorder.segment
            if segment is not None and segment.marks is not None:
                segment.marks.append((len(segment), current_module()))
        if not cls._tracking:  # the last recorder was dropped
            _switch(False)

    def first_marks(self) -> list[Mark] | None:
        """The marks of a new segment; None if it is not known which modules are called."""
        known = self in Origins._tracking and not self._begins
        self._begins = False
        return [(0, current_module())] if known else None

    def _track(self, tracks: bool) -> None:
        """Begin or end to track calls of modules."""
        before = bool(Origins._tracking)
        if tracks:
            self._begins = self._begins or self not in Origins._tracking
            Origins._tracking.add(self)
        else:
            Origins._tracking.discard(self)
        if bool(Origins._tracking) is not before:
            _switch(tracks)

    def stop(self) -> None:
        """End: nobody observes the session any more, or it is closed."""
        self._track(False)

    def of(self, segments: Sequence[Segment]) -> dict[str, Any] | None:
        """What is told with a message of these segments, by the digests of their templates; None if nothing is."""
        new = [segment for segment in segments if segment.template.template.digest not in self._told]
        self._known = 0 if new else self._known + 1
        if new:
            self._track(True)
        elif self._known == KNOWN_MESSAGES:
            self._track(False)
        found: dict[str, Any] = {}
        for segment in new:
            if segment.marks is not None:  # otherwise it is told when it recurs
                digest = segment.template.template.digest
                found[digest], self._told[digest] = _origins_of(segment), True
        return found or None


def _origins_of(segment: Segment) -> list[list[str | None] | None]:
    """The module and the line of each instruction of a segment."""
    marks = list(segment.marks or ())
    numbers, module = count(), None
    found: list[list[str | None] | None] = []
    for position in segment.positions:
        number = next(numbers)
        while marks and marks[0][0] <= number:
            module = marks.pop(0)[1]
        line = None if position is None else _short(str(Line(*position)))
        found.append(None if module is None and line is None else [module, line])
    return found


def _short(line: str) -> str:
    """A line with the name of its file alone."""
    return PurePath(line).name
