"""Loops that differ in the source of a batch: an array, or a dataset that is uploaded once."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from .loop import Run, Size, arrays, classifier, fresh, loop, train_step


def resident(library: Any, size: Size, rows: int) -> tuple[Any, Any]:
    """A dataset as two tensors."""
    x, y = arrays(size, rows)
    return library.tensor(x), library.tensor(y)


@loop("fresh batches")
def fresh_batches(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        yield train_step(library, net, optimizer, x, y)


@loop("slices, 10 offsets", offsets=10)
@loop("slices, 80 offsets", offsets=80, first=60)
@loop("slices, 1000 offsets", offsets=1000, first=970)
def slices(library: Any, size: Size, offsets: int, first: int = 0) -> Run:
    """The last batch has half the rows. Training starts at the slice ``first``, as after a checkpoint."""
    images, labels = resident(library, size, offsets * size.batch - size.batch // 2)
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    yield list(net.parameters())
    for step in count(first):
        start = step % offsets * size.batch
        rows = slice(start, start + size.batch)
        yield train_step(library, net, optimizer, images[rows], labels[rows])


@loop("rows by a shuffled index")
def shuffled_index(library: Any, size: Size) -> Run:
    images, labels = resident(library, size, 10 * size.batch)
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    rng = np.random.default_rng(1)
    yield list(net.parameters())
    while True:
        order = library.tensor(rng.permutation(len(labels)))
        for start in range(0, len(labels), size.batch):
            rows = order[start : start + size.batch]
            yield train_step(library, net, optimizer, images[rows], labels[rows])


@loop("randperm and index", random=True)
def randperm(library: Any, size: Size) -> Run:
    images, labels = resident(library, size, 10 * size.batch)
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    while True:
        order = library.randperm(len(labels))
        for start in range(0, len(labels), size.batch):
            rows = order[start : start + size.batch]
            yield train_step(library, net, optimizer, images[rows], labels[rows])


@loop("X.split")
def split(library: Any, size: Size) -> Run:
    images, labels = resident(library, size, 10 * size.batch)
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    while True:
        for x, y in zip(images.split(size.batch), labels.split(size.batch), strict=True):
            yield train_step(library, net, optimizer, x, y)


@loop("DataLoader, shuffled", random=True)
def data_loader(library: Any, size: Size) -> Run:
    data = library.utils.data
    dataset = data.TensorDataset(*resident(library, size, 10 * size.batch))
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    while True:
        for x, y in data.DataLoader(dataset, batch_size=size.batch, shuffle=True):
            yield train_step(library, net, optimizer, x, y)


@loop("DataLoader over arrays, with a sampler")
def data_loader_of_arrays(library: Any, size: Size) -> Run:
    """Rows are collated in this process."""
    x, y = arrays(size, 10 * size.batch)
    rows = [(row, int(label)) for row, label in zip(x, y, strict=True)]
    order = np.random.default_rng(1).permutation(len(rows)).tolist()
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    while True:
        for images, labels in library.utils.data.DataLoader(rows, batch_size=size.batch, sampler=order):
            yield train_step(library, net, optimizer, images, labels)


@loop("batches of random size")
def random_sizes(library: Any, size: Size) -> Run:
    """Six sizes, in a different order each time."""
    images, labels = arrays(size, 10 * size.batch)
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    rng = np.random.default_rng(1)
    yield list(net.parameters())
    while True:
        for rows in rng.permutation(range(size.batch - 5, size.batch + 1)):
            start = int(rng.integers(0, len(labels) - rows))
            x, y = images[start : start + rows], labels[start : start + rows]
            yield train_step(library, net, optimizer, library.tensor(x), library.tensor(y))


@loop("roll by a random shift")
def rolled(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    rng = np.random.default_rng(1)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        shift = int(rng.integers(-size.features, size.features))
        yield train_step(library, net, optimizer, x.roll(shift, 1), y)


@loop("flip at random")
def flipped(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    rng = np.random.default_rng(1)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        x = x.flip(1) if rng.random() < 0.5 else x
        yield train_step(library, net, optimizer, x, y)


@loop("one row by its number")
def one_row(library: Any, size: Size) -> Run:
    """Training on single rows, each selected by a random integer."""
    images, labels = resident(library, size, 10 * size.batch)
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.01)
    rng = np.random.default_rng(1)
    yield list(net.parameters())
    while True:
        row = int(rng.integers(len(labels)))
        yield train_step(library, net, optimizer, images[row], labels[row])
