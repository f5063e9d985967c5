"""Loops in two sessions, and under ``tg.compile``. With torch, the sessions and the compilation are omitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .batches import resident
from .loop import Run, Size, classifier, fresh, loop, train_step


@contextmanager
def another_session(library: Any, beside: Any) -> Iterator[None]:
    """Create new tensors in a second session on the server of the tensor ``beside``; do nothing with torch."""
    if library.__name__ == "torch":
        yield
        return
    with library.connect(beside._recorder.transport.url):
        yield


def compiled(library: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``tg.compile(function)``; with torch, the function itself."""
    made: Callable[..., Any] = function if library.__name__ == "torch" else library.compile(function)
    return made


@loop("two sessions in turn")
def two_sessions(library: Any, size: Size) -> Run:
    """Each session has its own dataset, so that each turn uses tensors of one session."""
    offsets = 10
    first, data = classifier(library, size), resident(library, size, offsets * size.batch)
    with another_session(library, data[0]):
        second, other_data = classifier(library, size, seed=1), resident(library, size, offsets * size.batch)
        optimizers = [library.optim.SGD(net.parameters(), lr=0.05) for net in (first, second)]
        yield [*first.parameters(), *second.parameters()]
        turn = 0
        while True:
            start = turn % offsets * size.batch
            rows = slice(start, start + size.batch)
            loss = train_step(library, first, optimizers[0], *[tensor[rows] for tensor in data])
            other = train_step(library, second, optimizers[1], *[tensor[rows] for tensor in other_data])
            turn += 1
            yield loss.item() + other.item()


@loop("tg.compile on slices")
def compiled_slices(library: Any, size: Size) -> Run:
    offsets = 10
    images, labels = resident(library, size, offsets * size.batch)
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)

    def step(start: int) -> Any:
        rows = slice(start, start + size.batch)
        return train_step(library, net, optimizer, images[rows], labels[rows])

    run = compiled(library, step)
    yield list(net.parameters())
    while True:
        for start in range(0, len(labels), size.batch):
            yield run(start)


@loop("tg.compile with a float")
def compiled_float(library: Any, size: Size) -> Run:
    """The weight of a penalty changes from call to call."""
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)

    def step(x: Any, y: Any, strength: float) -> Any:
        optimizer.zero_grad()
        scores = net(x)
        loss = library.nn.functional.cross_entropy(scores, y) + strength * scores.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = compiled(library, step)
    yield list(net.parameters())
    for turn, (x, y) in enumerate(fresh(library, size)):
        yield run(x, y, 0.1 * 0.99**turn)
