"""Arguments that the ops are tested with, and stand-ins for the tensors among them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """Arguments, in torch's calling form, with which an op is compared with torch."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


Cases = dict[str, list[Case]]
"""The cases of several ops, by the op's key."""


def case(*args: Any, **kwargs: Any) -> Case:
    """The arguments of one case; ``T(2, 3)`` stands for a tensor of that shape."""
    return Case(args, kwargs)


class T:
    """A tensor of ``shape`` with values drawn from ``low`` to ``high``.

    ``dtype`` None means the dtype under test; "int64" and "bool" fix it. ``values`` fixes the values.
    A ``constant`` one is not to require grad.
    """

    def __init__(
        self,
        *shape: int,
        low: float = -2.0,
        high: float = 2.0,
        dtype: str | None = None,
        values: Any = None,
        constant: bool = False,
    ) -> None:
        self.shape = shape
        self.low, self.high, self.dtype, self.values, self.constant = low, high, dtype, values, constant

    def __repr__(self) -> str:
        return f"T{self.shape}" + (f":{self.dtype}" if self.dtype else "")

    def make(self, rng: np.random.Generator, dtype: np.dtype[Any]) -> Any:
        """The array: of the dtype under test unless the case fixes it."""
        wanted = np.dtype(self.dtype) if self.dtype else dtype
        if self.values is not None:
            return np.array(self.values, dtype=wanted)
        if wanted.kind == "b":
            return rng.random(self.shape) < 0.5
        if wanted.kind in "iu":
            low = 0 if wanted.kind == "u" else int(np.floor(self.low))
            return rng.integers(low, max(low + 1, int(np.ceil(self.high)) + 1), self.shape).astype(wanted)
        return rng.uniform(self.low, self.high, self.shape).astype(wanted)


def I(*shape: int, high: int) -> T:  # noqa: E743 - reads as T does
    """An int64 tensor of indices below ``high``."""
    return T(*shape, low=0, high=high - 1, dtype="int64")


def M(*shape: int) -> T:
    """A bool mask."""
    return T(*shape, dtype="bool")


def unary(low: float = -2.0, high: float = 2.0) -> list[Case]:
    """Cases of a one-argument elementwise op whose domain is low to high."""
    return [case(T(*shape, low=low, high=high)) for shape in ((2, 3), (), (0, 3), (2, 1, 4))]


def binary(low: float = -2.0, high: float = 2.0, scalar: float = 1.5) -> list[Case]:
    """Cases of a two-argument elementwise op: same shapes, broadcasting, 0-dim, empty, a number."""
    pairs = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((), (2, 2)), ((), ()), ((0, 3), (1, 3))]
    cases = [case(T(*a, low=low, high=high), T(*b, low=low, high=high)) for a, b in pairs]
    return [*cases, case(T(2, 3, low=low, high=high), scalar)]


REDUCTIONS: list[dict[str, Any]] = [
    {},
    {"dim": 0},
    {"dim": -1, "keepdim": True},
    {"dim": (0, 2)},
]


def reduction(shape: tuple[int, ...] = (2, 3, 4), low: float = -2.0, high: float = 2.0) -> list[Case]:
    """Cases of a reduction that takes any dims, a 0-dim and an empty tensor included."""
    cases = [case(T(*shape, low=low, high=high), **kwargs) for kwargs in REDUCTIONS]
    return [*cases, case(T(low=low, high=high)), case(T(0, 3), dim=0)]
