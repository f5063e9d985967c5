"""Names of nodes where torch has several for one op: one if an operand is a tensor, another if it is a number.

A node does not remember an operand that no gradient flows to, so one that is not tracked counts as a
number, which it mostly is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def by_operand(name: str, *, at: int = 1, tensor: int, number: int) -> Callable[[Any], str]:
    """A node's name as a function of the node: the suffix says what the input ``at`` is."""
    return lambda node: f"{name}Backward{number if node.next_edges[at] is None else tensor}"


def by_operands(name: str, *, tensors: int, number_first: int, number_second: int) -> Callable[[Any], str]:
    """As :func:`by_operand`, where either of two inputs may be a number."""

    def choose(node: Any) -> str:
        first, second = node.next_edges
        suffix = number_first if first is None else number_second if second is None else tensors
        return f"{name}Backward{suffix}"

    return choose
