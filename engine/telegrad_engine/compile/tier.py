"""The tiers above the interpreter: plans for NumPy, and executables that XLA compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..dtypes import DType
from ..program.program_cache import Remembered
from .effects import Executable
from .input_signature import InputSignature
from .tracing import compile_program, plan_program


class Tier(NamedTuple):
    """One way to make executables of programs."""

    word: str
    """The participle for a program that runs in this tier."""
    make: Callable[[Remembered, InputSignature, DType, Sequence[float], Sequence[Any]], Executable]
    """Makes an executable for inputs of a signature, from example operands and arrays. Raises Untraceable."""
    below: str
    """How a program runs if it does not run in this tier."""
    after: int
    """The number of runs of a program before its executable is made."""
    longest_s: float
    """Seconds per instruction above which an executable cannot be faster."""
    any_device: bool
    """Whether it also serves devices other than the CPU."""
    in_background: bool
    """Whether executables are made on a separate thread, without the arrays."""
    by_value: bool
    """Whether an executable is made for one value of each operand."""
    max_ratio: float
    """An executable is set aside if it takes more than this many times as long as the tier below."""


PLANNED = Tier(
    "planned",
    plan_program,
    "one instruction at a time",
    after=2,
    longest_s=1e-3,
    any_device=False,
    in_background=False,
    by_value=False,
    max_ratio=1.2,
)
"""A list of NumPy calls. The results are bit for bit those of the interpreter."""
COMPILED = Tier(
    "compiled",
    compile_program,
    "without XLA",
    after=20,
    longest_s=float("inf"),
    any_device=True,
    in_background=True,
    by_value=True,
    max_ratio=1.0,
)
"""Compiled by ``jax.jit``, for sessions that ask for it. The results are equal up to rounding."""
