"""Training steps of ordinary networks in the engine, in one process with torch and on the same values.

Each network is written once, over a namespace: ``torch`` with ``torch.nn.functional``, or the engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import telegrad_engine as engine
from telegrad_engine.optim import algorithms as optim

from .peers import mlp_by_hand
from .timing import Call, Timed

OURS = SimpleNamespace(F=engine.functions, tensor=engine.tensor)
THEIRS = SimpleNamespace(F=torch.nn.functional, tensor=torch.tensor)
RATE = 0.01
Loss = Callable[[Any, Sequence[Any], Sequence[Any]], Any]
"""``loss(F, parameters, batch)``."""


class Net(SimpleNamespace):
    """A loss, the shapes of its parameters, and a function that draws a batch."""

    loss: Loss
    shapes: Sequence[tuple[int, ...]]
    batch: Callable[[np.random.Generator], Sequence[Any]]


def mlp(sizes: Sequence[int], rows: int) -> Net:
    """Linear layers with ReLU between them, and cross entropy."""

    def loss(F: Any, parameters: Sequence[Any], batch: Sequence[Any]) -> Any:
        x, target = batch
        for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
            x = F.relu(F.linear(x, weight, bias))
        return F.cross_entropy(F.linear(x, *parameters[-2:]), target)

    shapes = [s for a, b in itertools.pairwise(sizes) for s in ((b, a), (b,))]
    return Net(
        loss=loss,
        shapes=shapes,
        batch=lambda rng: (
            rng.standard_normal((rows, sizes[0])).astype(np.float32),
            rng.integers(0, sizes[-1], rows),
        ),
    )


MLP = mlp((784, 128, 10), 64)


def lstm(steps: int = 100, rows: int = 16, width: int = 32) -> Net:
    """An LSTM cell composed of basic ops, over a sequence: many small ops."""

    def loss(F: Any, parameters: Sequence[Any], batch: Sequence[Any]) -> Any:
        w, u, b = parameters
        x, h, c = batch
        for t in range(steps):
            gates = F.linear(x[t], w, b) + F.linear(h, u)
            i, f, g, o = gates.chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h.square().mean()

    def batch(rng: np.random.Generator) -> Sequence[Any]:
        start = np.zeros((2, rows, width), np.float32)
        return rng.standard_normal((steps, rows, width)).astype(np.float32), *start

    return Net(loss=loss, shapes=[(4 * width, width), (4 * width, width), (4 * width,)], batch=batch)


def convolutional() -> Net:
    """Two convolutions with pooling on 8 images of 1x28x28, and a linear layer."""

    def loss(F: Any, parameters: Sequence[Any], batch: Sequence[Any]) -> Any:
        k1, b1, k2, b2, w, b = parameters
        x, target = batch
        x = F.max_pool2d(F.relu(F.conv2d(x, k1, b1, padding=1)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, k2, b2, padding=1)), 2)
        return F.cross_entropy(F.linear(x.flatten(1), w, b), target)

    return Net(
        loss=loss,
        shapes=[(8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,), (10, 16 * 7 * 7), (10,)],
        batch=lambda rng: (rng.standard_normal((8, 1, 28, 28)).astype(np.float32), rng.integers(0, 10, 8)),
    )


def attention(rows: int = 8, length: int = 32, width: int = 64, heads: int = 4) -> Net:
    """A transformer block: layer norm, self-attention, and the two residual additions."""

    def loss(F: Any, parameters: Sequence[Any], batch: Sequence[Any]) -> Any:
        gain, shift, w_in, b_in, w_out, b_out, gain2, shift2 = parameters
        (x,) = batch
        normed = F.layer_norm(x, (width,), gain, shift)
        parts = F.linear(normed, w_in, b_in).reshape(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, length, width)
        x = F.layer_norm(x + F.linear(mixed, w_out, b_out), (width,), gain2, shift2)
        return x.square().mean()

    return Net(
        loss=loss,
        shapes=[(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,), (width,), (width,)],
        batch=lambda rng: (rng.standard_normal((rows, length, width)).astype(np.float32),),
    )


def values(net: Net) -> tuple[list[Any], Sequence[Any]]:
    """Parameters and a batch, the same for both sides."""
    rng = np.random.default_rng(0)
    scale = [1 / np.sqrt(shape[-1]) for shape in net.shapes]
    parameters = [(rng.standard_normal(s) * k).astype(np.float32) for s, k in zip(net.shapes, scale, strict=True)]
    return parameters, net.batch(rng)


def our_step(net: Net) -> Call:
    """A training step in the engine."""
    arrays, batch = values(net)
    parameters = [engine.tensor(a, requires_grad=True) for a in arrays]
    tensors = [engine.tensor(a) for a in batch]

    def step() -> None:
        for p in parameters:
            p.grad = None
        net.loss(OURS.F, parameters, tensors).backward()
        optim.step("sgd", parameters, [], {"lr": RATE})

    return step


def their_step(net: Net) -> Call:
    """The same step in torch."""
    arrays, batch = values(net)
    parameters = [torch.tensor(a, requires_grad=True) for a in arrays]
    tensors = [torch.tensor(a) for a in batch]
    optimizer = torch.optim.SGD(parameters, lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        net.loss(THEIRS.F, parameters, tensors).backward()
        optimizer.step()

    return step


def step_by_hand() -> Call:
    """The step of the 784-128-10 network without a graph."""
    (w1, b1, w2, b2), (x, target) = values(MLP)
    return partial(mlp_by_hand.Net(w1.T.copy(), b1, w2.T.copy(), b2).step, x, target)


@contextmanager
def by_hand() -> Iterator[tuple[Call, Call]]:
    """NumPy without a graph, against torch, which compares only the arithmetic of the two libraries."""
    yield step_by_hand(), their_step(MLP)


@contextmanager
def sides(net: Net) -> Iterator[tuple[Call, Call]]:
    """A step of the engine and one of torch."""
    yield our_step(net), their_step(net)


def suite(name: str, limit: float, net: Net, block: int = 10) -> Timed:
    """A training step of ``net`` against torch's."""
    return Timed(f"{name}, training step in the engine", "torch eager", limit, lambda: sides(net), block)


SUITES = [
    suite("MLP 784-128-10, batch 64", 0.8, MLP),
    Timed("the same step by hand in NumPy, without a graph", "torch eager", None, by_hand),
    suite("MLP 784-1024-10, batch 256", 1.25, mlp((784, 1024, 10), 256), block=3),
    suite("LSTM written out, 100 steps of 16x32", 0.9, lstm(), block=3),
    suite("convolutional net, 8x1x28x28", 2.5, convolutional()),
    suite("layer norm and attention block, 8x32x64", 1.3, attention()),
]
