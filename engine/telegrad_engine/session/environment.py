"""The environment of a session's programs: device, default dtype and random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ..arrays import NUMPY
from ..context import MemoryBudget, state
from ..devices import Device
from ..dtypes import DType
from ..errors import InvalidArgument


class Environment:
    """The state in which a program starts, and which it leaves to the next one.

    ``device`` is None for NumPy in this process. Raises InvalidArgument for a default ``dtype`` that is not floating.
    """

    def __init__(self, device: Device | None, dtype: DType, generator: np.random.Generator) -> None:
        _check_default(dtype)
        self.device = device
        self.stream = (NUMPY if device is None else device.backend).make_stream()
        """The queue of this session's work on its device: nothing is computed outside of its block."""
        self.dtype = dtype
        """The default dtype of floating-point tensors."""
        self.generator = generator

    @contextmanager
    def entered(self, largest: int, memory: MemoryBudget | None = None) -> Iterator[None]:
        """Enter the environment on this thread, with ``memory`` of a session; a view may span ``largest`` bytes."""
        saved = state.grad_enabled, state.default_dtype, state.generator, state.room, state.largest
        placed = state.device, state.memory
        outer = state.autocast, state.inference, state.anomaly, state.observer, state.ops_observed
        try:
            state.device, state.memory, state.largest = self.device, memory, largest
            # A recorder in this process has its own modes and transforms, which the program already reflects.
            state.autocast, state.inference, state.anomaly = None, False, None
            state.observer, state.ops_observed = None, False
            state.grad_enabled, state.default_dtype, state.generator = True, self.dtype.numpy, self.generator
            with np.errstate(all="ignore"):
                yield
        finally:
            self.generator = state.generator or self.generator
            state.grad_enabled, state.default_dtype, state.generator, state.room, state.largest = saved
            state.device, state.memory = placed
            state.autocast, state.inference, state.anomaly, state.observer, state.ops_observed = outer

    # Changes by a running program ----------------------------------------------------------

    def set_default_dtype(self, dtype: DType) -> None:
        """Set the default dtype. Raises InvalidArgument for one that is not floating."""
        _check_default(dtype)
        self.dtype, state.default_dtype = dtype, dtype.numpy

    def seed(self, seed: int) -> None:
        """Seed the random number generator."""
        self.use_generator(np.random.default_rng(seed & (2**64 - 1)))

    def use_generator(self, generator: np.random.Generator) -> None:
        """Replace the random number generator."""
        self.generator = state.generator = generator


def _check_default(dtype: DType) -> None:
    if not dtype.is_floating_point:
        raise InvalidArgument(f"only floating-point types are supported as the default type, got {dtype.name}")
