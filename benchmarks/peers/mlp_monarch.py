"""Monarch's tensor engine: a training step of a 784-128-10 network in a worker, ``eager`` or under its ``compile``.

Each step sends its batch to the worker. Eager, each op is a message; compiled, the worker repeats a recording.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # with two threads on two cores, the worker is several times slower
import monarch
import numpy as np
import torch
from calls import answer
from monarch.actor import this_host
from monarch.common._coalescing import compile
from monarch.mesh_controller import spawn_tensor_engine

BATCH, WIDTH, CLASSES, BATCHES, READ_EVERY = 64, 784, 10, 10, 10
WARM_UP = 20


def tensors(images: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The tensors of a batch, in the worker."""
    return torch.from_numpy(images), torch.from_numpy(labels)


def shapes(images: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The shapes and dtypes of the result of ``tensors``, which the client needs."""
    return torch.empty(images.shape), torch.empty(labels.shape, dtype=torch.int64)


def main(how: str) -> None:
    # The engine numbers the workers of a host by this dimension, even if they compute on the CPU.
    mesh = spawn_tensor_engine(this_host().spawn_procs(per_host={"gpus": 1}))
    rng = np.random.default_rng(0)
    images = rng.standard_normal((BATCHES, BATCH, WIDTH), np.float32)
    labels = rng.integers(0, CLASSES, (BATCHES, BATCH))
    with mesh.activate():
        train(how == "compile", images, labels)
    mesh.exit()


def train(compiled: bool, images: np.ndarray, labels: np.ndarray) -> None:
    """Report the time of training steps on tensors of the active mesh."""
    send = monarch.remote(tensors, propagate=shapes)
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, 128), torch.nn.ReLU(), torch.nn.Linear(128, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loss_function = torch.nn.CrossEntropyLoss()

    def eager_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_function(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()  # a compiled function must not return tensors that require grad

    step = compile(eager_step) if compiled else eager_step
    turn = 0

    def call() -> None:
        nonlocal turn
        loss = step(*send(images[turn % BATCHES], labels[turn % BATCHES]))
        turn += 1
        if turn % READ_EVERY == 0:
            monarch.inspect(loss).item()

    for _ in range(WARM_UP):
        call()
    answer(call)


if __name__ == "__main__":
    main(*sys.argv[1:])
