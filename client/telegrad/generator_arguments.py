"""``generator=``: random ops that draw from a Generator's own state.

The session has one generator. A draw from another one is wrapped in instructions that swap that generator's state in
and out; nothing is fetched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.tensor.namespace import Functions

from .sessions.generators import Generator
from .tape.recorder import Recorder
from .tensor.handle import Tensor, recorder_of

FUNCTIONS = frozenset([op.name for op in CATALOGUE if op.random and not op.internal])
"""The functions for which torch accepts a generator."""
METHODS = frozenset(
    [op.name for op in CATALOGUE if op.random and op.method and not op.internal]
    + [f"{op.name}_" for op in CATALOGUE if op.random and op.inplace]
)
"""The methods for which torch accepts a generator."""


@contextmanager
def from_generator(recorder: Recorder, generator: Generator) -> Iterator[None]:
    """Within the block, let the session draw from ``generator``, and keep the generator's new state."""
    from .random import state_of

    with recorder.lock:  # no other thread draws in between
        before, own = state_of(recorder), generator.states.get(recorder)
        if own is None:
            recorder.emit("manual_seed", (), (), {"seed": generator.initial_seed()})
        else:
            recorder.emit("set_rng_state", [own._id])
        try:
            yield
        finally:
            generator.states[recorder] = state_of(recorder)
            recorder.emit("set_rng_state", [before._id])


def taking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function`` so that it accepts a ``generator``."""

    @functools.wraps(function)
    def draw(*args: Any, generator: Generator | None = None, **kwargs: Any) -> Any:
        if generator is None:
            return function(*args, **kwargs)
        if not isinstance(generator, Generator):
            raise TypeError(f"generator must be a Generator, not {type(generator).__name__}")
        with from_generator(recorder_of(args), generator):
            return function(*args, **kwargs)

    return draw


def install(cls: type[Tensor], functions: Functions) -> None:
    """Make functions and the methods of ``cls`` accept generators."""
    functions.add_wrapper(lambda name, function: taking(function) if name in FUNCTIONS else function)
    for name in METHODS:
        if hasattr(cls, name):
            setattr(cls, name, taking(getattr(cls, name)))
