"""Random numbers of the client, for the order of samples, which is drawn before anything is sent.

Random tensors are drawn in the session; :func:`manual_seed` restarts both.
"""

from __future__ import annotations

import os
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .session import current

if TYPE_CHECKING:
    from ..tape.recorder import Recorder


class Generator:
    """A source of random numbers, for samplers and splits in the client and, as ``generator=…``, for random tensors.

    The same seed gives the same numbers.

    ``device`` is accepted as in torch; the numbers are drawn in the session.

    Examples:
        >>> generator = tg.Generator().manual_seed(0)
        >>> first = tg.rand(2, generator=generator)
        >>> tg.equal(first, tg.rand(2, generator=generator.manual_seed(0)))
        True
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device = device
        self.manual_seed(DEFAULT_SEED)

    def manual_seed(self, seed: int) -> Generator:
        """Restart from ``seed``, and return the generator."""
        self._seed = int(seed)
        self.states: weakref.WeakKeyDictionary[Recorder, Any] = weakref.WeakKeyDictionary()
        """Its state in each session that draws tensors from it."""
        self.__dict__.pop("numpy", None)
        return self

    @cached_property
    def numpy(self) -> np.random.Generator:
        """The generator that orders samples. It is made on first use, because NumPy imports its generators then."""
        return np.random.default_rng(self._seed % 2**64)

    def seed(self) -> int:
        """Restart from a random seed, and return the seed."""
        self.manual_seed(int.from_bytes(os.urandom(8)) >> 1)
        return self._seed

    def initial_seed(self) -> int:
        """Return the seed that it was last started from."""
        return self._seed


DEFAULT_SEED = 67280421310721
"""The seed of a new generator, as in torch."""
default_generator = Generator()
default_generator.seed()


def manual_seed(seed: int) -> Generator:
    """Restart the random numbers of the current session, and those that order samples.

    ``seed`` is an int. The generator of samples is returned.

    Examples:
        >>> _ = tg.manual_seed(0)
        >>> first = tg.rand(2)
        >>> _ = tg.manual_seed(0)
        >>> tg.equal(first, tg.rand(2))
        True
    """
    number = int(seed)
    current().recorder.emit("manual_seed", (), (), {"seed": number})
    return default_generator.manual_seed(number)


def initial_seed() -> int:
    """Return the seed of the last :func:`manual_seed`.

    Examples:
        >>> _ = tg.manual_seed(7)
        >>> tg.initial_seed()
        7
    """
    return default_generator.initial_seed()
