"""Limits on the size of a registered function, and the budget of one call.

A definition comes from an untrusted client, so all work that it causes on the server is bounded here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import LimitExceeded
from ...tensor.abstract import Meta
from ...tensor.base import TensorBase
from ...tensor.conversion import NumberList

MAX_INSTRUCTIONS = 10_000
"""Instructions of one function, including those of its branches and loops."""
MAX_EXPANDED = 100_000
"""The same, with the functions that it applies written out."""
MAX_DEPTH = 12
"""The nesting depth of branches and loops, of expressions, and of lists."""
MAX_LEVELS = 48
"""The same, with the functions that it applies written out: each level takes a few frames of Python's stack."""
MAX_TENSORS = 1_000
"""Inputs, outputs, saved tensors and parameters of one function, each; and items of any one list."""
MAX_CONSTANT = 4_096
"""Numbers in one constant."""
MAX_DOC = 10_000
"""Characters of a function's description."""
MAX_WEIGHT = 2**21
"""Values and characters of one definition, which is stored as it was sent."""
WEIGHT_BYTES = 100
"""The bytes of memory that each of them takes, read and checked."""
MAX_LIBRARY_WEIGHT = 2**24
"""The same for all functions of one session, or of a library, together."""
MAX_ITERATIONS = 10_000
"""Iterations of one loop."""
MAX_STEPS = 1_000_000
"""Instructions that one call runs, forward or backward; an iteration of a loop counts as one more."""
NAMES_PER_STEP = 32
"""The number of tensors passed to a loop iteration that cost as much as one instruction."""
MAX_VERIFIED = 1_000
"""Numbers that a function takes, and that it returns, if its derivative is checked against finite differences."""
MAX_FUNCTIONS = 1_000
"""Functions of one session, or of a library."""


def weight(definition: Any) -> int:
    """Return the number of values and characters of a definition. Raises LimitExceeded if there are too many."""
    total, waiting = 0, [definition]
    while waiting:
        value = waiting.pop()
        total += 1
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, Mapping):
            total += sum([len(str(key)) for key in value])
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            total += len(value)
            waiting.extend(value)
        elif isinstance(value, NumberList):
            total += value.array.size
        if total > MAX_WEIGHT:
            raise LimitExceeded(
                f"a definition has at most {MAX_WEIGHT} values and characters; pass large data as tensors"
            )
    return total


class Budget:
    """The work that one call may still do, and the decisions that depended on values.

    ``known`` are the decisions of the same call made elsewhere, for abstract tensors, which have no values. Without
    them, ``asking`` is true if the caller can find them out. ``shared`` means for several calls and their backwards.
    Without ``python`` the call must not run Python that the operator installed.
    """

    __slots__ = ("_known", "_shared", "asking", "decisions", "left", "python")

    def __init__(
        self, *, asking: bool = False, known: Sequence[int] | None = None, shared: bool = False, python: bool = True
    ) -> None:
        self.left = MAX_STEPS
        self.asking, self.python = asking, python
        self._shared = shared
        self.decisions: list[bool] = []
        """Which branches were taken and whether loops continued, in order."""
        self._known = None if known is None else iter(known)

    def decide(self, predicate: Any) -> bool | None:
        """Return whether a predicate holds; None for an abstract tensor whose value is not known."""
        if isinstance(predicate, Meta):
            return None if self._known is None else bool(next(self._known))
        answer = bool(predicate)
        if isinstance(predicate, TensorBase):
            self.decisions.append(answer)
        return answer

    def spend(self, steps: int) -> None:
        """Count instructions that are about to run. Raises LimitExceeded if there are too many."""
        self.left -= steps
        if self.left < 0:
            raise LimitExceeded(
                f"a call of a registered function runs at most {MAX_STEPS} instructions; have its loops end earlier"
            )

    def anew(self) -> Budget:
        """Return the budget of a backward through this call, which may run many times if the graph is retained."""
        return self if self._shared else Budget(python=self.python)
