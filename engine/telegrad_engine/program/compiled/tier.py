"""The ways to make executables of programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...dtypes import DType
from .analysis import Analysis
from .executable import Executable
from .input_signature import InputSignature
from .tracing import compile_program, plan_program


class Tier(NamedTuple):
    """A way to make executables of programs."""

    word: str
    """What it does to a program, as a participle."""
    make: Callable[[Analysis, InputSignature, DType, Sequence[float], Sequence[Any]], Executable]
    """Makes one for inputs of these kinds, with such operands and arrays. Raises Untraceable, with the reason."""
    after: int
    """How often a program runs before."""
    longest_s: float
    """Seconds an instruction beyond which there is nothing to gain."""
    everywhere: bool
    """Whether it is one for devices other than the CPU, too."""
    apart: bool
    """Whether it takes so long that it is done on a thread of its own, without the arrays."""
    by_value: bool
    """Whether an executable is for one value of each operand."""
    slowest: float
    """How many times as long as without it an executable may take and still be kept; times differ by a fifth."""


PLANNED = Tier(
    "planned", plan_program, after=2, longest_s=1e-3, everywhere=False, apart=False, by_value=False, slowest=1.2
)
"""As a list of NumPy calls, with the very numbers of the eager run."""
COMPILED = Tier(
    "compiled",
    compile_program,
    after=20,
    longest_s=float("inf"),
    everywhere=True,
    apart=True,
    by_value=True,
    slowest=1.0,
)
"""By ``jax.jit``, for sessions that ask for it: sums come in another order."""
