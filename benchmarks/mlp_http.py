"""A training step of a 784-128-10 network from the SDK over loopback, against torch in this process, torch's RPC and
Monarch's tensor engine.

Each step sends a new batch, or the dataset is uploaded once and each step selects its rows. The loss is read after
every tenth step, or after every step, which waits for the server each time. Both sides read equally often. A version by
hand, with a socket and NumPy, is included for scale.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import telegrad as tg

from .compiling import session, settle
from .peers import OWN, peer
from .timing import Call, Side, Timed

BATCH, BATCHES = 64, 10
IN_PROCESS, RPC = "torch eager in-process", "torch RPC and distributed autograd"
MONARCH = "Monarch's tensor engine"
Step = Callable[[Any, Any], Any]
Pairs = Iterator[tuple[Any, Any]]


def data() -> tuple[np.ndarray, np.ndarray]:
    """Images in float32 and labels in int64, of ten batches."""
    rng = np.random.default_rng(0)
    rows = BATCH * BATCHES
    return rng.standard_normal((rows, 784)).astype(np.float32), rng.integers(0, 10, rows)


def fresh(library: Any) -> Pairs:
    """Batches that are converted from arrays when they are needed."""
    images, labels = data()
    for start in itertools.cycle(range(0, len(labels), BATCH)):
        yield library.tensor(images[start : start + BATCH]), library.tensor(labels[start : start + BATCH])


def resident_ours() -> Pairs:
    """Batches of a dataset that is stored in the session."""
    dataset = tg.utils.data.TensorDataset(*map(tg.tensor, data()))
    loader = tg.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True)
    while True:
        yield from loader


def resident_torch() -> Pairs:
    """Batches selected by index, which is faster than torch's DataLoader, as that collates single rows."""
    images, labels = map(torch.tensor, data())
    while True:
        yield from ((images[rows], labels[rows]) for rows in torch.randperm(len(labels)).split(BATCH))


def network(library: Any, inputs: int = 784, hidden: int = 128) -> tuple[Any, Step]:
    """The network and its training step, in torch or Telegrad."""
    nn = library.nn
    net = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    optimizer = library.optim.SGD(net.parameters(), lr=0.01)
    loss_function = nn.CrossEntropyLoss()

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_function(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return net, step


def loop(step: Step, batches: Pairs, read_every: int) -> Call:
    """Return a call that runs one turn of the training loop."""
    turns = itertools.count(1)

    def turn() -> None:
        loss = step(*next(batches))
        if next(turns) % read_every == 0:
            loss.item()

    return turn


@contextmanager
def in_process(read_every: int, ours: Callable[[], Pairs], theirs: Callable[[], Pairs]) -> Iterator[tuple[Side, Side]]:
    """A step on a server, and the same step with torch in this process."""
    net, torch_step = network(torch)
    with session() as opened:
        our_net, step = network(tg)
        our_net.load_state_dict(net.state_dict())
        turn = loop(step, ours(), read_every)
        settle(opened, turn)
        yield turn, loop(torch_step, theirs(), read_every)


@contextmanager
def beside(script: str, *arguments: str, python: Path = OWN) -> Iterator[tuple[Side, Side]]:
    """A step on our server, and one on a peer's server."""
    with session() as opened, peer(script, *arguments, python=python) as theirs:
        _, step = network(tg)
        turn = loop(step, fresh(tg), 10)
        settle(opened, turn)
        yield turn, theirs


@contextmanager
def bare(under_way: int) -> Iterator[tuple[Side, Side]]:
    """The step by hand on its own server, without a graph and without Telegrad, and with torch in this process."""
    with peer("mlp_bare.py", str(under_way), python=Path(sys.executable)) as ours:
        yield ours, loop(network(torch)[1], fresh(torch), 10 if under_way > 1 else 1)


WHAT = "MLP 784-128-10 step over loopback"


def suite(how: str, limit: float, read_every: int, resident: bool = False) -> Timed:
    """A row against torch in this process."""
    ours, theirs = (resident_ours, resident_torch) if resident else (partial(fresh, tg), partial(fresh, torch))
    sides: Callable[[], AbstractContextManager[tuple[Side, Side]]] = partial(in_process, read_every, ours, theirs)
    return Timed(f"{WHAT}, {how}", IN_PROCESS, limit, sides)


SUITES = [
    suite("fresh batch, loss read every 10 steps", 1.2, 10),
    suite("fresh batch, loss read every step", 1.2, 1),
    suite("dataset uploaded once", 0.9, 10, resident=True),
    Timed(
        f"{WHAT}, fresh batch, loss read every 10 steps",
        RPC,
        0.3,
        partial(beside, "mlp_torch_rpc.py", python=Path(sys.executable)),
    ),
    *(
        Timed(
            f"{WHAT}, fresh batch, loss read every 10 steps",
            f"{MONARCH}, {how}",
            limit,
            partial(beside, "mlp_monarch.py", how),
            repeats=20,
        )
        for how, limit in (("eager", 0.05), ("compile", 0.1))
    ),
    Timed(f"{WHAT}, by hand: a socket and NumPy, four under way", IN_PROCESS, None, partial(bare, 4)),
    Timed(f"{WHAT}, by hand, each waited for", IN_PROCESS, None, partial(bare, 1)),
]
