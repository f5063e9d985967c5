"""How large a registered function may be, and how much one call of it may do.

A registration is a stranger's data: whatever it makes the server do is bounded here.
"""

from __future__ import annotations

from ..errors import LimitExceeded

MAX_INSTRUCTIONS = 10_000
"""Instructions of one function, those of its branches and loops included."""
MAX_EXPANDED = 100_000
"""The same, with the functions that it applies written out."""
MAX_DEPTH = 12
"""How deep branches and loops, expressions, and lists may nest."""
MAX_TENSORS = 1_000
"""Inputs, outputs, saved tensors and parameters of one function, each; and items of any one list."""
MAX_CONSTANT = 4_096
"""Numbers in one constant."""
MAX_ITERATIONS = 10_000
"""Of one loop."""
MAX_STEPS = 1_000_000
"""Instructions that one call runs, forward or backward."""
MAX_FUNCTIONS = 1_000
"""Functions of one session, or of a library."""


class Budget:
    """What one call may still do."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Count instructions about to run. Raises LimitExceeded when they are too many."""
        self.left -= steps
        if self.left < 0:
            raise LimitExceeded(f"a call of a registered function runs at most {MAX_STEPS} instructions")
