"""Loops whose networks have layers with state, or draw random numbers."""

from __future__ import annotations

from typing import Any

from .loop import Run, Size, filled, fresh, loop, train_step


@loop("BatchNorm", rtol=1e-3)
def batch_norm(library: Any, size: Size) -> Run:
    nn = library.nn
    net = nn.Sequential(
        nn.Linear(size.features, size.hidden),
        nn.BatchNorm1d(size.hidden),
        nn.ReLU(),
        nn.Linear(size.hidden, size.classes),
    )
    filled(library, net)
    optimizer = library.optim.SGD(net.parameters(), lr=0.02)
    yield [*net.parameters(), net[1].running_mean, net[1].running_var]
    for x, y in fresh(library, size):
        yield train_step(library, net, optimizer, x, y)


@loop("dropout", random=True)
def dropout(library: Any, size: Size) -> Run:
    nn = library.nn
    net = nn.Sequential(
        nn.Linear(size.features, size.hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(size.hidden, size.classes)
    )
    filled(library, net)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        yield train_step(library, net, optimizer, x, y)


@loop("convolutions")
def convolutions(library: Any, size: Size) -> Run:
    """Each row of features is a 1-d signal."""
    nn = library.nn
    net = nn.Sequential(
        nn.Unflatten(1, (1, size.features)),
        nn.Conv1d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(4 * (size.features // 2), size.classes),
    )
    filled(library, net)
    optimizer = library.optim.SGD(net.parameters(), lr=0.02)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        yield train_step(library, net, optimizer, x, y)
