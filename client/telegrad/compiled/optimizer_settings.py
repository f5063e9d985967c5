"""The numbers among optimizer settings, which may change from call to call, such as scheduled learning rates."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from telegrad_engine.optim import algorithms
from telegrad_engine.program import Instruction

from ..optim.optimizer import Optimizer
from ..tape.replay import STEP
from .guards import Guards

SCHEDULERS = "telegrad.optim.lr_scheduler"


class Settings(NamedTuple):
    """The source of a step's settings, and their values in the trace."""

    optimizer: Optimizer
    group: dict[str, Any]
    algorithm: str
    expected: dict[str, Any]
    numbers: tuple[str, ...]
    """The names of the settings that each call supplies."""

    def now(self) -> list[float] | None:
        """The current numbers; None if anything else has changed."""
        algorithm, given = self.optimizer.algorithm(self.group)
        settings = algorithms.get(algorithm).settings(given)
        if algorithm != self.algorithm or settings.keys() != self.expected.keys():
            return None
        found = []
        for name, value in settings.items():
            if name in self.numbers:
                if type(value) is not float:
                    return None
                found.append(value)
            elif value != self.expected[name]:
                return None
        return found


class _Group(dict[str, Any]):
    """A parameter group that notes which settings are read by any code but an optimizer's."""

    looked_at: set[str]

    def __getitem__(self, name: str) -> Any:
        self._note({name})
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._note({name})
        return super().get(name, default)

    def items(self) -> Any:
        self._note(self.keys())
        return super().items()

    def values(self) -> Any:
        self._note(self.keys())
        return super().values()

    def _note(self, names: Any) -> None:
        caller = sys._getframe(2).f_globals.get("__name__", "")
        if not caller.startswith("telegrad.optim") or caller.startswith(SCHEDULERS):
            self.looked_at |= names


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
    instructions: Sequence[Instruction], guards: Guards, looked_at: dict[int, set[str]]
) -> list[tuple[int, Settings]]:
    """The sources of the settings of all optimizer steps, with the instructions' indices, which are guarded no longer.

    None of them if one is not known.
    """
    found: list[tuple[int, Settings]] = []
    for index, instruction in enumerate(instructions):
        if instruction.op == STEP:
            settings = _settings_of(instruction, guards.optimizers, looked_at)
            if settings is None:
                return []
            found.append((index, settings))
    for _, settings in found:
        guards.loosen(settings.group, settings.numbers)
    return found


def _settings_of(
    instruction: Instruction, optimizers: Sequence[Optimizer], looked_at: dict[int, set[str]]
) -> Settings | None:
    """Return the source of a recorded step's settings; None unless exactly one parameter group is possible."""
    params, attrs = set(instruction.inputs[0]), instruction.attrs
    found = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if params <= {param._id for param in group["params"]}:
                algorithm, given = optimizer.algorithm(group)
                if algorithm == attrs["algorithm"] and algorithms.get(algorithm).settings(given) == attrs["settings"]:
                    found.append((optimizer, group))
    if len(found) != 1:
        return None
    optimizer, group = found[0]
    numbers = [
        name
        for name, value in attrs["settings"].items()
        if type(value) is float and type(group.get(name)) is float and name not in looked_at[id(group)]
    ]
    return Settings(optimizer, group, attrs["algorithm"], dict(attrs["settings"]), tuple(numbers))
