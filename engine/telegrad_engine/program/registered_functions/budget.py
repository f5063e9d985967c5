"""Budgets: the limits on the work and the memory of one call of a registered function."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ...context import state
from ...errors import LimitExceeded, TooLarge
from ...shapes import Spec
from ...tensor.abstract import Meta
from ...tensor.base import Tracked
from .limits import MAX_STEPS


class Budget:
    """The work that one call may still do, the memory of its results, and the decisions that depended on values.

    ``known`` are the decisions of the same call made elsewhere, for abstract tensors, which have no values. Without
    them, ``asking`` is true if the caller can find them out.
    """

    __slots__ = ("_held", "_known", "asking", "decisions", "left")

    def __init__(self, *, asking: bool = False, known: Sequence[int] | None = None) -> None:
        self.left = MAX_STEPS
        self.asking = asking
        self.decisions: list[bool] = []
        """Which branches were taken and whether loops continued, in order."""
        self._known = None if known is None else iter(known)
        self._held: dict[int, tuple[weakref.ref[Any], int]] = {}

    def decide(self, predicate: Any) -> bool | None:
        """Return whether a predicate holds; None for an abstract tensor whose value is not known."""
        if isinstance(predicate, Meta):
            return None if self._known is None else bool(next(self._known))
        answer = bool(predicate)
        if isinstance(predicate, Tracked):
            self.decisions.append(answer)
        return answer

    def spend(self, steps: int) -> None:
        """Count instructions that are about to run. Raises LimitExceeded if there are too many."""
        self.left -= steps
        if self.left < 0:
            raise LimitExceeded(
                f"a call of a registered function runs at most {MAX_STEPS} instructions; have its loops end earlier"
            )

    def admit(self, name: str) -> None:
        """Allow a call of the installed Python function of this name; subclasses may refuse."""

    def hold(self, array: Any) -> None:
        """Count an array against the room for results while it is alive. Raises TooLarge."""
        if type(array) is Spec or id(array) in self._held:
            return
        key, nbytes = id(array), array.nbytes
        held = self._held

        def release(_: Any) -> None:
            if held.pop(key, None) is not None:
                state.room += nbytes

        held[key] = weakref.ref(array, release), nbytes
        state.room -= nbytes
        if state.room < 0:
            raise TooLarge("what a registered function has made so far takes more memory than there is room for")

    def close(self) -> list[Any]:
        """Stop counting. Return the arrays that are alive, as outputs or in the graph, for the caller to count."""
        state.room += sum(nbytes for _, nbytes in self._held.values())
        arrays = [reference() for reference, _ in self._held.values()]
        self._held.clear()
        return [array for array in arrays if array is not None]

    def anew(self) -> Budget:
        """Return the budget of a backward through this call, which may run many times if the graph is retained."""
        return Budget()


class SharedBudget(Budget):
    """A budget that several calls and their backward passes share."""

    __slots__ = ()

    def anew(self) -> Budget:
        """Return this budget."""
        return self
