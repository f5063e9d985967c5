"""Effects of instructions on the shadow graph, so that they can be undone for instructions that never ran.

Tensors are referenced weakly, so that an instruction in flight keeps no handle alive.
"""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Any, Protocol

from ..call_site import Line

HISTORY = ("_data", "_node", "_output_nr", "_requires_grad", "_lazy", "_inverse_chain", "_seen_version")
"""The attributes of a tensor that an in-place change may replace, besides its version."""
Reference = weakref.ref[Any]


class Effect(Protocol):
    """The effect of one instruction on the shadow graph."""

    def undo(self) -> None:
        """Restore the state before the instruction; all later effects on the same tensors were undone already."""
        ...


class Affecting(Line):
    """The line of an instruction that has an effect. It equals no other line, so it stays with its instruction."""

    effect: Effect

    def __new__(cls, code: CodeType, offset: int, effect: Effect) -> Affecting:
        """Create a line with an effect."""
        line = super().__new__(cls, code, offset)
        line.effect = effect
        return line

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


def effect_of(line: Line | None) -> Effect | None:
    """The effect of this line's instruction on the shadow graph, or None."""
    return line.effect if isinstance(line, Affecting) else None


def bare(line: Line | None) -> Line | None:
    """The line without its effect."""
    return Line(*line) if isinstance(line, Affecting) else line


class Changed:
    """An in-place change of a tensor, which also moves its base to another place in the graph."""

    def __init__(self, tensor: Any) -> None:
        self.cell = tensor._version_counter
        self._version = self.cell[0]
        self.versions = [(self.cell, self._version)]
        both = (tensor,) if tensor._base is None else (tensor, tensor._base)
        self._before = [(weakref.ref(x), {n: vars(x)[n] for n in HISTORY if n in vars(x)}) for x in both]

    def undo(self) -> None:
        """Restore the tensor's version and its place in the graph."""
        self.cell[0] = self._version
        for reference, before in self._before:
            tensor = reference()
            if tensor is not None:
                for name in HISTORY:
                    vars(tensor).pop(name, None)
                vars(tensor).update(before)


class Stepped:
    """An optimizer step, which changes versions. ``versions`` holds counters and their values before the step."""

    def __init__(self, versions: list[tuple[list[int], int]]) -> None:
        self.versions = versions

    def undo(self) -> None:
        """Restore the versions."""
        for cell, version in self.versions:
            cell[0] = version


class Received:
    """A backward pass, which sets gradients of leaves and of tensors that retain theirs.

    ``noted`` holds weak references to the tensors, whether each had a gradient before, and the version counter of that
    gradient's handle.
    """

    def __init__(self, noted: list[tuple[Reference, bool, list[int] | None]]) -> None:
        self.noted = noted

    def undo(self) -> None:
        """Restore the versions of the gradients that the pass added to."""
        for _, _, cell in self.noted:
            if cell is not None:
                cell[0] -= 1

    @property
    def tensors(self) -> list[tuple[Any, bool]]:
        """The tensors that are still alive, each with whether it had a gradient before."""
        return [(tensor, had) for reference, had, _ in self.noted if (tensor := reference()) is not None]
