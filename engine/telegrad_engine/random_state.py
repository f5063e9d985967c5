"""Conversion of a random number generator's state to bytes and back, so that a tensor can store it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import InvalidArgument, InvalidOperation

SIZE = 37
"""The size in bytes: PCG64's two 128-bit numbers, whether it has an unused 32-bit draw, and that draw."""


def to_bytes(generator: np.random.Generator) -> Any:
    """Return the generator's state as a uint8 array of ``SIZE`` elements."""
    state: Any = generator.bit_generator.state
    numbers = (state["state"]["state"], 16), (state["state"]["inc"], 16), (state["has_uint32"], 1)
    parts = [number.to_bytes(size, "little") for number, size in (*numbers, (state["uinteger"], 4))]
    return np.frombuffer(b"".join(parts), np.uint8).copy()


def from_bytes(array: Any) -> np.random.Generator:
    """Return a generator in this state. Raises TypeError or RuntimeError if the state is invalid."""
    if array.dtype != np.uint8:
        raise InvalidArgument("RNG state must be a torch.ByteTensor")
    if array.shape != (SIZE,):
        raise InvalidOperation(
            f"Expected a CPUGeneratorImplState of size {SIZE} but found the input RNG state size to be {array.size}"
        )
    data = array.tobytes()
    state, increment, left, half = (
        int.from_bytes(data[start:end], "little") for start, end in ((0, 16), (16, 32), (32, 33), (33, 37))
    )
    if left > 1 or not increment % 2:
        raise InvalidOperation("RNG state is not one that a generator was in")
    generator = np.random.default_rng()
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": state, "inc": increment},
        "has_uint32": left,
        "uinteger": half,
    }
    return generator
