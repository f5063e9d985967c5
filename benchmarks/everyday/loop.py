"""The registry of loops, and the data, the classifier and the training step that many of them share.

A loop is a generator function of a library, ``torch`` or ``telegrad``, and a size. It first yields the tensors that it
changes, then at the end of every turn one number: a float, or a tensor that has not been read yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

Run = Iterator[Any]


class Size(NamedTuple):
    """The sizes of a loop's networks and batches."""

    batch: int
    features: int
    hidden: int
    classes: int


SMALL = Size(batch=8, features=12, hidden=16, classes=4)
LARGE = Size(batch=64, features=784, hidden=128, classes=10)


class Loop(NamedTuple):
    """A loop, and the tolerance of its numbers relative to torch's."""

    name: str
    start: Callable[[Any, Size], Run]
    rtol: float
    random: bool
    """Whether the library draws random numbers; then only the mean of the loop's numbers matches torch's."""


LOOPS: dict[str, Loop] = {}
"""All loops, by name."""


def loop(name: str, rtol: float = 1e-4, random: bool = False, **options: Any) -> Callable[[Any], Any]:
    """Register a generator function as a loop, with these options as its keyword arguments."""

    def register(start: Callable[..., Run]) -> Callable[..., Run]:
        LOOPS[name] = Loop(name, partial(start, **options), rtol, random)
        return start

    return register


def arrays(size: Size, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in float32, and labels in int64 that a network can learn from them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, size.features), dtype=np.float32)
    return x, (x @ rng.standard_normal((size.features, size.classes), dtype=np.float32)).argmax(1)


def fresh(library: Any, size: Size, count: int = 10) -> Iterator[tuple[Any, Any]]:
    """An endless iterator of batches, each converted from an array when it is needed."""
    x, y = arrays(size, size.batch * count)
    while True:
        for start in range(0, len(y), size.batch):
            rows = slice(start, start + size.batch)
            yield library.tensor(x[rows]), library.tensor(y[rows])


def filled(library: Any, module: Any, seed: int = 0) -> Any:
    """Fill the module with weights that are the same in both libraries, and return it."""
    rng = np.random.default_rng(seed)
    with library.no_grad():
        for parameter in module.parameters():
            shape = tuple(parameter.shape)
            values = rng.standard_normal(shape, dtype=np.float32) / np.float32(shape[-1] ** 0.5)
            parameter.copy_(library.tensor(values))
    return module


def weight(library: Any, *shape: int, seed: int = 0) -> Any:
    """A leaf that requires grad, with the same values in both libraries."""
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return library.tensor(values / np.float32(shape[-1] ** 0.5), requires_grad=True)


def classifier(library: Any, size: Size, seed: int = 0) -> Any:
    """A network with one hidden layer."""
    nn = library.nn
    net = nn.Sequential(nn.Linear(size.features, size.hidden), nn.ReLU(), nn.Linear(size.hidden, size.classes))
    return filled(library, net, seed)


def train_step(library: Any, net: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """Run a training step of a classifier and return the loss."""
    optimizer.zero_grad()
    loss = library.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss
