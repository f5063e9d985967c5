"""Loops over sequences: recurrent cells, attention, embeddings, and targets that are padded or masked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .loop import Run, Size, arrays, classifier, filled, fresh, loop, weight

LENGTHS = range(5, 41, 5)
SYMBOLS, IGNORED = 20, -100


def sequences(size: Size) -> Iterator[np.ndarray]:
    """An endless iterator of sequences of shape ``(length, rows, width)``; every eight contain each length once."""
    rng = np.random.default_rng(1)
    while True:
        for length in rng.permutation(LENGTHS).tolist():
            yield rng.standard_normal((length, size.batch, size.hidden), dtype=np.float32)


def sentences(size: Size, length: int = 10) -> Iterator[np.ndarray]:
    """An endless iterator of symbols of shape ``(rows, length + 1)``: the inputs and, shifted by one, the targets."""
    rng = np.random.default_rng(1)
    while True:
        yield (rng.integers(SYMBOLS, size=(size.batch, 1)) + np.arange(length + 1)) % SYMBOLS


@loop("truncated backpropagation")
def truncated(library: Any, size: Size) -> Run:
    """The detached state is passed on from one segment to the next."""
    nn, F = library.nn, library.nn.functional
    cell = filled(library, nn.RNNCell(size.features, size.hidden))
    head = filled(library, nn.Linear(size.hidden, size.features), seed=1)
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = library.optim.SGD(parameters, lr=0.05)
    state = library.zeros(size.batch, size.hidden)
    batches = fresh(library, size)
    yield parameters
    while True:
        state = state.detach()
        loss: Any = 0
        for _ in range(5):
            x, _ = next(batches)
            state = cell(x, state)
            loss = loss + F.mse_loss(head(state), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@loop("LSTM written out")
def lstm(library: Any, size: Size) -> Run:
    F, width = library.nn.functional, size.hidden
    w, u = weight(library, 4 * width, width), weight(library, 4 * width, width, seed=1)
    b = weight(library, 4 * width, seed=2)
    optimizer = library.optim.SGD([w, u, b], lr=0.05)
    yield [w, u, b]
    for x in map(library.tensor, sequences(size)):
        h = c = library.zeros(size.batch, width)
        for t in range(len(x)):
            gates = F.linear(x[t], w, b) + F.linear(h, u)
            i, f, g, o = gates.chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        loss = (h - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@loop("GRU written out")
def gru(library: Any, size: Size) -> Run:
    F, width = library.nn.functional, size.hidden
    w, u = weight(library, 3 * width, width), weight(library, 3 * width, width, seed=1)
    optimizer = library.optim.Adam([w, u], lr=0.005)
    yield [w, u]
    for x in map(library.tensor, sequences(size)):
        h = library.zeros(size.batch, width)
        for step in x:
            of_input, of_state = F.linear(step, w).chunk(3, 1), F.linear(h, u).chunk(3, 1)
            reset = (of_input[0] + of_state[0]).sigmoid()
            update = (of_input[1] + of_state[1]).sigmoid()
            candidate = (of_input[2] + reset * of_state[2]).tanh()
            h = update * h + (1 - update) * candidate
        loss = (h - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@loop("nn.LSTM")
def lstm_module(library: Any, size: Size) -> Run:
    """The module ``nn.LSTM``, on sequences of the same lengths."""
    net = filled(library, library.nn.LSTM(size.hidden, size.hidden))
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for x in map(library.tensor, sequences(size)):
        optimizer.zero_grad()
        output, _ = net(x)
        loss = (output[-1] - 0.5).square().mean()
        loss.backward()
        optimizer.step()
        yield loss


@loop("embedding")
def embedding(library: Any, size: Size) -> Run:
    nn, F = library.nn, library.nn.functional
    net = filled(library, nn.Sequential(nn.Embedding(SYMBOLS, size.hidden), nn.Linear(size.hidden, SYMBOLS)))
    optimizer = library.optim.Adam(net.parameters(), lr=0.01)
    yield list(net.parameters())
    for symbols in map(library.tensor, sentences(size)):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(symbols[:, :-1]).flatten(0, 1), symbols[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        yield loss


@loop("attention with a causal mask")
def attention(library: Any, size: Size) -> Run:
    """A transformer block, with a new mask each turn."""
    nn, F, width, heads = library.nn, library.nn.functional, size.hidden, 4
    net = nn.ModuleDict(
        {
            "symbols": nn.Embedding(SYMBOLS, width),
            "project": nn.Linear(width, 3 * width),
            "mix": nn.Linear(width, width),
            "norm": nn.LayerNorm(width),
            "head": nn.Linear(width, SYMBOLS),
        }
    )
    filled(library, net)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for symbols in map(library.tensor, sentences(size)):
        x = net["symbols"](symbols[:, :-1])
        rows, length, _ = x.shape
        parts = net["project"](net["norm"](x)).reshape(rows, length, 3, heads, width // heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mask = library.ones(length, length, dtype=library.bool).triu(1)
        scores = (q @ k.transpose(-2, -1) / (width // heads) ** 0.5).masked_fill(mask, -float("inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width)
        x = x + net["mix"](mixed)
        optimizer.zero_grad()
        loss = F.cross_entropy(net["head"](x).flatten(0, 1), symbols[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        yield loss


@loop("padded targets")
def padded(library: Any, size: Size) -> Run:
    """Sentences of different lengths in one batch; the loss ignores the padding."""
    nn, F = library.nn, library.nn.functional
    net = filled(library, nn.Sequential(nn.Embedding(SYMBOLS, size.hidden), nn.Linear(size.hidden, SYMBOLS)))
    optimizer = library.optim.SGD(net.parameters(), lr=0.1)
    rng = np.random.default_rng(2)
    yield list(net.parameters())
    for symbols in sentences(size):
        lengths = rng.integers(3, symbols.shape[1], (size.batch, 1))
        targets = np.where(np.arange(symbols.shape[1] - 1) < lengths, symbols[:, 1:], IGNORED)
        scores = net(library.tensor(symbols[:, :-1]))
        optimizer.zero_grad()
        loss = F.cross_entropy(scores.transpose(1, 2), library.tensor(targets), ignore_index=IGNORED)
        loss.backward()
        optimizer.step()
        yield loss


@loop("boolean mask")
def boolean_mask(library: Any, size: Size) -> Run:
    """The loss of the rows that have a label, whose number depends on values."""
    F, rng = library.nn.functional, np.random.default_rng(1)
    x, y = arrays(size, 10 * size.batch)
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    while True:
        rows = rng.permutation(len(y))[: size.batch]
        labels = library.tensor(np.where(rng.random(size.batch) < 0.7, y[rows], -1))
        labelled = labels >= 0
        scores = net(library.tensor(x[rows]))
        optimizer.zero_grad()
        loss = F.cross_entropy(scores[labelled], labels[labelled])
        loss.backward()
        optimizer.step()
        yield loss


@loop("sum over a mask")
def masked_sum(library: Any, size: Size) -> Run:
    """A masked loss whose shapes do not depend on values."""
    F, rng = library.nn.functional, np.random.default_rng(1)
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        counts = library.tensor(rng.random(size.batch) < 0.7)
        losses = F.cross_entropy(net(x), y, reduction="none")
        loss = library.where(counts, losses, 0.0).sum() / counts.sum().clamp(min=1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@loop("Kalman filter")
def kalman_filter(library: Any, size: Size) -> Run:
    """The likelihood of 60 observations of a moving point, whose noises are learned: small linear algebra, in order."""
    rng, linalg = np.random.default_rng(3), library.linalg
    move = library.tensor([[1.0, 0.0, 0.1, 0.0], [0.0, 1.0, 0.0, 0.1], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    observe = library.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    seen = library.tensor(rng.standard_normal((60, 2)).cumsum(0).astype(np.float32) / 4)
    noises = library.tensor([-1.0, 0.0], requires_grad=True)
    optimizer = library.optim.Adam([noises], lr=0.02)
    yield [noises]
    while True:
        variances = noises.exp()
        moved, observed = variances[0] * library.eye(4), variances[1] * library.eye(2)
        x, P, loss = library.zeros(4), library.eye(4), library.zeros(())
        for step in range(60):
            x, P = move @ x, move @ P @ move.T + moved
            gap, S = seen[step] - observe @ x, observe @ P @ observe.T + observed
            factor = linalg.cholesky(S)
            whitened = linalg.solve_triangular(factor, gap.unsqueeze(1), upper=False).squeeze(1)
            loss = loss + 0.5 * (whitened * whitened).sum() + factor.diagonal().log().sum()
            gain = linalg.solve(S, observe @ P).T
            x, P = x + gain @ gap, P - gain @ observe @ P
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss / 60
