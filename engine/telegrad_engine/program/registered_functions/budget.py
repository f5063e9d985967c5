"""Budgets: how much one call of a registered function may still do."""

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
    """What one call may still do, the memory of what it has made, and what it decided by values.

    ``known`` are the decisions of the same call elsewhere, for stand-ins without values to take. Without them
    ``asking`` says that whoever calls can find them out.
    """

    __slots__ = ("_held", "_known", "asking", "decisions", "left")

    def __init__(self, *, asking: bool = False, known: Sequence[int] | None = None) -> None:
        self.left = MAX_STEPS
        self.asking = asking
        self.decisions: list[bool] = []
        """Which branches were taken and whether loops went on, in their order."""
        self._known = None if known is None else iter(known)
        self._held: dict[int, tuple[weakref.ref[Any], int]] = {}

    def decide(self, predicate: Any) -> bool | None:
        """Whether a predicate holds; None for a stand-in of which that is not known."""
        if isinstance(predicate, Meta):
            return None if self._known is None else bool(next(self._known))
        answer = bool(predicate)
        if isinstance(predicate, Tracked):
            self.decisions.append(answer)
        return answer

    def spend(self, steps: int) -> None:
        """Count instructions about to run. Raises LimitExceeded when they are too many."""
        self.left -= steps
        if self.left < 0:
            raise LimitExceeded(
                f"a call of a registered function runs at most {MAX_STEPS} instructions; have its loops end earlier"
            )

    def admit(self, name: str) -> None:
        """Let Python of this name, which an operator installed, be called."""

    def hold(self, array: Any) -> None:
        """Count an array against the room that results have, for as long as it lives. Raises TooLarge."""
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
        """Count no more. The arrays that are still alive, as outputs or in the graph, for somebody else to count."""
        state.room += sum(nbytes for _, nbytes in self._held.values())
        arrays = [reference() for reference, _ in self._held.values()]
        self._held.clear()
        return [array for array in arrays if array is not None]

    def anew(self) -> Budget:
        """The budget of a backward through this call: a retained graph may be differentiated any number of times."""
        return Budget()


class SharedBudget(Budget):
    """A budget for several calls and their backwards together."""

    __slots__ = ()

    def anew(self) -> Budget:
        """The same one."""
        return self
