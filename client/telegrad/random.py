"""``telegrad.random``: the random number generators' state, as ``torch.random``.

Tensors draw in the session, samplers on the client. A state is a tensor of bytes in the session: saving and restoring
one takes no message.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .exclusions import attribute_of
from .sessions.generators import Generator, default_generator, initial_seed, manual_seed
from .sessions.session import current
from .tensor.handle import Tensor
from .tensor.keyword_arguments import state_of


class State(Tensor):
    """A state of the session's generator, together with that of the client's, which orders samples."""

    order: Any = None


def get_rng_state() -> Tensor:
    """Return the state of the current session's generator, a tensor of bytes.

    Examples:
        >>> state = tg.get_rng_state()
        >>> first = tg.rand(2)
        >>> tg.set_rng_state(state)
        >>> tg.equal(first, tg.rand(2))
        True
    """
    state: Any = state_of(current().recorder, State)
    state.order = copy.deepcopy(default_generator.numpy)
    found: Tensor = state
    return found


def set_rng_state(new_state: Tensor) -> None:
    """Restore a state from ``get_rng_state``. Raises TypeError for anything but a tensor of bytes.

    ``new_state`` is the state.

    Examples:
        >>> tg.set_rng_state(tg.get_rng_state())
    """
    if not isinstance(new_state, Tensor) or new_state.dtype.name != "uint8":
        raise TypeError("RNG state must be a torch.ByteTensor")
    new_state._recorder.emit("set_rng_state", [new_state._id])
    if isinstance(new_state, State):
        default_generator.numpy = copy.deepcopy(new_state.order)


def seed() -> int:
    """Seed the generators with a random seed, and return the seed.

    Examples:
        >>> isinstance(tg.seed(), int)
        True
    """
    found = Generator().seed()
    manual_seed(found)
    return found


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **options: Any) -> Iterator[None]:
    """Restore the random state at the end of the block, if ``enabled``.

    ``devices`` and ``options`` have no effect.

    Examples:
        >>> state = tg.get_rng_state()
        >>> with tg.random.fork_rng():
        ...     _ = tg.rand(2)
        >>> tg.equal(state, tg.get_rng_state())
        True
    """
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
