"""Node names of ops for which torch has several: one if an operand is a tensor, another if it is a number.

A node does not store an operand that receives no gradient, so such an operand counts as a number, which it usually is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def by_operand(name: str, *, at: int = 1, tensor: int, number: int) -> Callable[[Any], str]:
    """Return a function of the node that gives its name; the suffix depends on whether input ``at`` is a tensor."""
    return lambda node: f"{name}Backward{number if node.next_edges[at] is None else tensor}"


def by_operands(name: str, *, tensors: int, number_first: int, number_second: int) -> Callable[[Any], str]:
    """Like :func:`by_operand`, for ops where either of two inputs may be a number."""

    def choose(node: Any) -> str:
        first, second = node.next_edges
        suffix = number_first if first is None else number_second if second is None else tensors
        return f"{name}Backward{suffix}"

    return choose
