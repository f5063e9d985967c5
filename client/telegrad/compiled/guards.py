"""Guards: the tensors that a function can reach besides its arguments, and checks that nothing there has changed.

A trace is valid as long as the function would do the same again. That depends on the objects that its code refers to:
closures, globals, defaults and, from there, modules, optimizers, containers and the user's own objects. All of them are
visited once; a later call only compares what each of them holds with what it held. The numbers among the settings of
an optimizer's steps, such as a scheduled learning rate, may change: each call supplies them.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from telegrad_engine.optim import algorithms
from telegrad_engine.program import Instruction

from ..optim.optimizer import Optimizer
from ..tape.recorder import STEP
from ..tape.segment import Recorded
from ..tensor.handle import Tensor

MAX_PLACES, MAX_ELEMENTS = 20_000, 1_024
"""The most places that are watched, and the most elements of an array whose contents are."""
FOREIGN = sys.stdlib_module_names | {"numpy", "telegrad", "telegrad_engine", "torch"}
"""Modules whose code and objects are not examined: they do not change during a function's life."""
STATEFUL = ("telegrad.nn", "telegrad.optim", "telegrad.amp")
"""The packages of Telegrad whose objects do change."""
CONSTANTS = (int, float, complex, str, bytes, type(None), range, slice)
SCHEDULERS = "telegrad.optim.lr_scheduler"
MISSING = object()


class HeldObjects:
    """A holder of other objects, which must stay the same objects, or equal constants."""

    def __init__(self, name: str, read: Callable[[], Sequence[Any]]) -> None:
        self.name = name
        self._read = read
        self.held = list(read())
        """The objects it holds, kept alive so that their identities are not reused."""
        self._ids = [*map(id, self.held)]

    def is_same(self) -> bool:
        """Whether it still holds the same."""
        now = self._read()
        if [*map(id, now)] == self._ids:
            return True
        return len(now) == len(self.held) and all(map(_alike, now, self.held))


def _alike(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, MethodType):
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    return a == b if isinstance(a, bytes) else isinstance(a, CONSTANTS) and repr(a) == repr(b)


class Unwatchable(Exception):
    """Raised for an object whose changes cannot be detected."""


class Guards:
    """All that is reached from ``roots``. Raises Unwatchable if changes in it cannot be detected."""

    def __init__(self, roots: Sequence[Any]) -> None:
        self.tensors: list[Tensor] = []
        self.optimizers: list[Optimizer] = []
        self.places: list[HeldObjects] = []
        self.groups: dict[int, HeldObjects] = {}
        """The places that are parameter groups, by the identity of the group."""
        self._seen: dict[int, Any] = {}
        self._due: deque[tuple[str, Any]] = deque(("it", root) for root in roots)
        while self._due:
            self._visit(*self._due.popleft())

    def changed(self) -> str | None:
        """The name of the first thing that has changed, or None."""
        for place in self.places:
            if not place.is_same():
                return place.name
        return None

    def loosen(self, group: dict[str, Any], names: Sequence[str]) -> None:
        """Allow these settings of an optimizer's group to change from now on."""
        place = self.groups[id(group)]
        read = lambda: [x for key, value in group.items() if key not in names for x in (key, value)]  # noqa: E731
        self.places[self.places.index(place)] = self.groups[id(group)] = HeldObjects(place.name, read)

    # Visiting ------------------------------------------------------------------------------

    def _visit(self, name: str, value: Any) -> None:
        if isinstance(value, CONSTANTS) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            self.tensors.append(value)
        elif isinstance(value, np.ndarray):
            if value.size > MAX_ELEMENTS or value.dtype == object:
                raise Unwatchable(f"{name} is an array of {value.size} elements, which could change unseen")
            self._watch("an array", lambda: [value.shape, value.tobytes()])
        elif isinstance(value, dict):
            self._watch(name, lambda: [*value, *value.values()])
        elif isinstance(value, (list, deque)):
            self._watch(name, lambda: value)
        elif isinstance(value, set):
            self._watch(name, lambda: list(value))
        elif isinstance(value, (tuple, frozenset)):
            self._due += [(name, item) for item in value]
        elif isinstance(value, FunctionType):
            self._visit_function(value)
        elif isinstance(value, MethodType):
            self._due += [(name, value.__self__), (name, value.__func__)]
        elif isinstance(value, partial):
            self._due += [(name, value.func), (name, value.args), (name, value.keywords)]
        elif isinstance(value, (classmethod, staticmethod)):
            self._due.append((name, value.__func__))
        elif isinstance(value, property):
            self._due += [(name, value.fget), (name, value.fset)]
        elif isinstance(value, type):
            if not _is_foreign(value):
                self._watch(name, lambda: [*vars(value).values()])
        elif not isinstance(value, ModuleType):
            self._visit_object(name, value)

    def _visit_function(self, function: FunctionType) -> None:
        if _is_foreign(function):
            return
        name = function.__qualname__
        self._watch(name, lambda: [function.__code__, function.__defaults__, function.__kwdefaults__])
        own = function.__dict__
        self._watch(name, lambda: [*own, *own.values()], (*own, *own))
        if cells := function.__closure__:
            self._watch(name, lambda: [_content(cell) for cell in cells])
        space, names = function.__globals__, tuple(dict.fromkeys(_names_in(function.__code__)))
        self._watch(name, lambda: [space.get(each, MISSING) for each in names], names)
        for module in [space[each] for each in names if isinstance(space.get(each), ModuleType)]:
            if not _is_foreign_name(module.__name__):
                contents = vars(module)
                self._watch(name, lambda c=contents: [c.get(each, MISSING) for each in names], names)  # type: ignore[misc]

    def _visit_object(self, name: str, value: Any) -> None:
        kind = type(value)
        if isinstance(value, Optimizer):
            self.optimizers.append(value)
            for group in value.param_groups:
                self._seen[id(group)] = group
                self._watch("an optimizer's settings", lambda g=group: [x for item in g.items() for x in item])  # type: ignore[misc]
                self.groups[id(group)] = self.places[-1]
        elif hasattr(kind, "__next__"):
            raise Unwatchable(f"{name} is an iterator, which goes on unseen")
        elif isinstance(value, (np.random.Generator, np.random.RandomState, Random)):
            raise Unwatchable(f"{name} is a source of random numbers, which goes on unseen")
        elif kind.__module__.startswith(STATEFUL) or isinstance(value, (SimpleNamespace, Namespace)):
            pass
        elif _is_foreign(kind):
            self._due.append((name, getattr(value, "__dict__", {}).get("__wrapped__")))
            return
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self._watch(name, lambda: [*own, *own.values()], (*own, *own))
        slots = [slot for base in kind.__mro__ for slot in _slots(base)]
        if slots:
            self._watch(name, lambda: [getattr(value, slot, MISSING) for slot in slots], tuple(slots))
        self._due += [(base.__name__, base) for base in kind.__mro__ if not _is_foreign(base)]

    def _watch(self, name: str, read: Callable[[], Sequence[Any]], names: Sequence[str] = ()) -> None:
        """Watch what ``read`` returns, and visit it, under these names or else the holder's."""
        if len(self.places) >= MAX_PLACES:
            raise Unwatchable("it reaches too much for its changes to be watched")
        place = HeldObjects(name, read)
        self.places.append(place)
        self._due += [(names[i] if names else name, x) for i, x in enumerate(place.held) if x is not MISSING]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _names_in(code: CodeType) -> Iterator[str]:
    """The names that code looks up, including those of attributes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _slots(kind: type) -> Sequence[str]:
    slots = vars(kind).get("__slots__", ())
    return () if _is_foreign(kind) else (slots,) if isinstance(slots, str) else tuple(slots)


def _is_foreign(value: Any) -> bool:
    return _is_foreign_name(getattr(value, "__module__", None) or "builtins")


def _is_foreign_name(module: str) -> bool:
    return module.partition(".")[0] in FOREIGN


# Settings of optimizers ----------------------------------------------------------------------------


class Settings(NamedTuple):
    """The source of a step's settings, and their values in the trace."""

    optimizer: Optimizer
    group: dict[str, Any]
    params: list[Any]
    """The parameters of the group that the step updates."""
    algorithm: str
    expected: dict[str, Any]
    numbers: tuple[str, ...]
    """The names of the settings that each call supplies."""

    def now(self) -> list[float] | None:
        """The current numbers; None if anything else has changed."""
        algorithm, settings = _current(self.optimizer, self.group, self.params)
        if algorithm != self.algorithm or settings.keys() != self.expected.keys():
            return None
        if any(value != self.expected[name] for name, value in settings.items() if name not in self.numbers):
            return None
        numbers = [settings[name] for name in self.numbers]
        return numbers if all(type(number) is float for number in numbers) else None


def _current(optimizer: Optimizer, group: dict[str, Any], params: list[Any]) -> tuple[str, dict[str, Any]]:
    """The algorithm and the settings of a step of some parameters of a group."""
    algorithm, given = optimizer.algorithm(group, params)
    return algorithm, algorithms.get(algorithm).settings(given)


class _Group(dict[str, Any]):
    """A parameter group that notes which settings are read by any code but an optimizer's."""

    looked_at: set[str]


def _noting(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: _Group, *args: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if not caller.startswith("telegrad.optim") or caller.startswith(SCHEDULERS):
            self.looked_at |= {args[0]} if args else self.keys()
        return method(self, *args)

    return read


for _method in (dict.__getitem__, dict.get, dict.items, dict.values):
    setattr(_Group, _method.__name__, _noting(_method))


@contextmanager
def watching(optimizers: Sequence[Optimizer]) -> Iterator[dict[int, set[str]]]:
    """Within the block, note which settings the function's own code reads, by the identity of the group."""
    looked_at: dict[int, set[str]] = {}
    stand_ins = []
    for optimizer in optimizers:
        for place, group in enumerate(optimizer.param_groups):
            stand_in = _Group(group)
            stand_in.looked_at = looked_at[id(group)] = set()
            optimizer.param_groups[place] = stand_in
            stand_ins.append((optimizer.param_groups, stand_in, group))
    try:
        yield looked_at
    finally:
        for groups, stand_in, group in stand_ins:
            group.clear()
            group.update(stand_in)
            for place, found in enumerate(groups):
                if found is stand_in:
                    groups[place] = group


def settings_in(
    instructions: Sequence[Recorded], guards: Guards, looked_at: dict[int, set[str]]
) -> list[tuple[int, Settings]]:
    """The sources of the settings of all optimizer steps, with the instructions' indices, which are guarded no longer.

    None of them unless exactly one source is possible for each step.
    """
    found: list[tuple[int, Settings]] = []
    for index, (instruction, *_) in enumerate(instructions):
        if instruction.op == STEP:
            sources = _sources(instruction, guards.optimizers, looked_at)
            if len(sources) != 1:
                return []
            found.append((index, sources[0]))
    for _, settings in found:
        guards.loosen(settings.group, settings.numbers)
    return found


def _sources(
    instruction: Instruction, optimizers: Sequence[Optimizer], looked_at: dict[int, set[str]]
) -> list[Settings]:
    """The possible sources of a recorded step's settings, one for each parameter group."""
    algorithm, expected = instruction.attrs["algorithm"], instruction.attrs["settings"]
    updated, found = set(instruction.inputs[0]), []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            params = [param for param in group["params"] if param._id in updated]
            if len(params) == len(updated) and _current(optimizer, group, params) == (algorithm, expected):
                numbers = [
                    name
                    for name, value in expected.items()
                    if type(value) is float and type(group.get(name)) is float and name not in looked_at[id(group)]
                ]
                found.append(Settings(optimizer, group, params, algorithm, dict(expected), tuple(numbers)))
    return found
