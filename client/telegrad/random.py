"""``telegrad.random``: where random numbers come from, as ``torch.random``.

Tensors draw theirs in the session, samplers here. A state is a tensor of bytes in the session: keeping one and
putting it back takes no message.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from telegrad_engine.random_state import SIZE
from telegrad_engine.shapes import Spec

from .exclusions import attribute_of
from .session.generators import Generator, default_generator, initial_seed, manual_seed
from .session.sessions import current
from .tape.recorder import Recorder
from .tensor.handle import Tensor, handle


class State(Tensor):
    """A state of the session's random numbers, with that of the numbers that order samples."""

    order: Any = None


def get_rng_state() -> Tensor:
    """The state of the current session's random numbers, a tensor of bytes."""
    state: Any = state_of(current().recorder, State)
    state.order = copy.deepcopy(default_generator.numpy)
    found: Tensor = state
    return found


def state_of(recorder: Recorder, kind: type[Tensor] = Tensor) -> Tensor:
    """The state of a session's random numbers."""
    state = handle(recorder, Spec((SIZE,), np.dtype(np.uint8)), cls=kind)
    recorder.emit("get_rng_state", (), [state._id])
    return state


def set_rng_state(new_state: Tensor) -> None:
    """Go on from a state that ``get_rng_state`` gave. Raises TypeError for what are no bytes."""
    if not isinstance(new_state, Tensor) or new_state.dtype.name != "uint8":
        raise TypeError("RNG state must be a torch.ByteTensor")
    new_state._recorder.emit("set_rng_state", [new_state._id])
    if isinstance(new_state, State):
        default_generator.numpy = copy.deepcopy(new_state.order)


def seed() -> int:
    """Restart the random numbers from a random seed, and return the seed."""
    found = Generator().seed()
    manual_seed(found)
    return found


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **options: Any) -> Iterator[None]:
    """Restore the random state at the end of the block, if ``enabled``."""
    if not enabled:
        yield
        return
    before = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(before)


__getattr__ = attribute_of("random")

__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]
