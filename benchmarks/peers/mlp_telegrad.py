"""A Telegrad client in its own process, with a training step of a 784-128-10 network on the server at ``url``."""

from __future__ import annotations

import sys

import numpy as np
from calls import answer

import telegrad as tg

BATCH, BATCHES, READ_EVERY, WARM_UP = 64, 10, 10, 300


def main(url: str) -> None:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((BATCHES, BATCH, 784)).astype(np.float32)
    labels = rng.integers(0, 10, (BATCHES, BATCH))
    with tg.connect(url):
        net = tg.nn.Sequential(tg.nn.Linear(784, 128), tg.nn.ReLU(), tg.nn.Linear(128, 10))
        optimizer = tg.optim.SGD(net.parameters(), lr=0.01)
        loss_function = tg.nn.CrossEntropyLoss()
        turn = 0

        def step() -> None:
            nonlocal turn
            optimizer.zero_grad()
            loss = loss_function(net(tg.tensor(images[turn % BATCHES])), tg.tensor(labels[turn % BATCHES]))
            loss.backward()
            optimizer.step()
            turn += 1
            if turn % READ_EVERY == 0:
                loss.item()

        for _ in range(WARM_UP):
            step()
        answer(step)


if __name__ == "__main__":
    main(*sys.argv[1:])
