"""Limits on the size of a registered function, and on the work of one call.

A registration is a stranger's data: whatever it makes the server do is bounded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import LimitExceeded
from ...tensor.conversion import NumberList

MAX_INSTRUCTIONS = 10_000
"""Instructions of one function, those of its branches and loops included."""
MAX_EXPANDED = 100_000
"""The same, with the functions that it applies written out."""
MAX_DEPTH = 12
"""How deep branches and loops, expressions, and lists may nest."""
MAX_LEVELS = 48
"""The same, with the functions that it applies written out: each level takes a few frames of Python's stack."""
MAX_TENSORS = 1_000
"""Inputs, outputs, saved tensors and parameters of one function, each; and items of any one list."""
MAX_CONSTANT = 4_096
"""Numbers in one constant."""
MAX_DOC = 10_000
"""Characters of a function's description."""
MAX_WEIGHT = 2**21
"""Values and characters of one definition, which is kept as it came."""
MAX_LIBRARY_WEIGHT = 2**24
"""The same for all functions of one session, or of a library."""
MAX_ITERATIONS = 10_000
"""Of one loop."""
MAX_STEPS = 1_000_000
"""Instructions that one call runs, forward or backward; a turn of a loop counts as one more."""
NAMES_PER_STEP = 32
"""So many tensors that a turn of a loop is handed cost as much as an instruction."""
MAX_VERIFIED = 1_000
"""Numbers that a function takes, and that it gives, where its derivative is held against differences."""
MAX_FUNCTIONS = 1_000
"""Functions of one session, or of a library."""


def weight(definition: Any) -> int:
    """How many values and characters a definition has. Raises LimitExceeded beyond what one may have."""
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
