"""A training step of a 784-128-10 network from the SDK over loopback HTTP, a fresh batch sent each time.

Twice: with the loss read after every step, which waits for the server each time, and with the loss read
after every tenth, as a loop that prints now and then does. Both sides read alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

import telegrad as tg
from telegrad_service.launch import running_server

from .timing import Call, Timed

BATCH = 64
WHAT = "MLP 784-128-10 step, batch 64, SDK over loopback HTTP, loss read every"
AGAINST, LIMIT = "torch eager in-process", 3.0


@contextmanager
def sides(read_every: int) -> Iterator[tuple[Call, Call]]:
    """A step on a server, and the same step in this process."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((10, BATCH, 784)).astype(np.float32)
    labels = rng.integers(0, 10, (10, BATCH))
    turn = {"ours": 0, "theirs": 0}

    def batch(side: str) -> tuple[np.ndarray, np.ndarray]:
        turn[side] = (turn[side] + 1) % len(images)
        return images[turn[side]], labels[turn[side]]

    theirs = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    torch_optimizer = torch.optim.SGD(theirs.parameters(), lr=0.01)
    torch_loss = torch.nn.CrossEntropyLoss()

    def torch_step() -> None:
        x, y = batch("theirs")
        torch_optimizer.zero_grad()
        loss = torch_loss(theirs(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        torch_optimizer.step()
        if turn["theirs"] % read_every == 0:
            loss.item()

    with running_server() as url, tg.connect(url):
        ours = tg.nn.Sequential(tg.nn.Linear(784, 128), tg.nn.ReLU(), tg.nn.Linear(128, 10))
        ours.load_state_dict(theirs.state_dict())
        optimizer = tg.optim.SGD(ours.parameters(), lr=0.01)
        loss_function = tg.nn.CrossEntropyLoss()

        def step() -> None:
            x, y = batch("ours")
            optimizer.zero_grad()
            loss = loss_function(ours(tg.tensor(x)), tg.tensor(y))
            loss.backward()
            optimizer.step()
            if turn["ours"] % read_every == 0:
                loss.item()

        yield step, torch_step


SUITES = [Timed(f"{WHAT} {'step' if n == 1 else f'{n} steps'}", AGAINST, LIMIT, lambda n=n: sides(n)) for n in (10, 1)]
