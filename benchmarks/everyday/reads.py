"""Loops that read values during training, to print them or to branch on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .loop import Run, Size, arrays, classifier, filled, fresh, loop, train_step


@loop(".item() before backward")
def item_before_backward(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    total = 0.0
    for x, y in fresh(library, size):
        optimizer.zero_grad()
        loss = library.nn.functional.cross_entropy(net(x), y)
        total += loss.item()
        loss.backward()
        optimizer.step()
        yield total


@loop("NaN check")
def nan_check(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        optimizer.zero_grad()
        loss = library.nn.functional.cross_entropy(net(x), y)
        if library.isnan(loss):
            raise RuntimeError("the loss is NaN")
        loss.backward()
        optimizer.step()
        yield loss


@loop("metrics before and after step")
def metrics(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        scores = net(x)
        loss = library.nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in net.parameters()))
        optimizer.step()
        accuracy = (scores.argmax(1) == y).float().mean().item()
        yield loss.item() + norm + accuracy


@loop("two metrics of a step")
def two_metrics(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.Adam(net.parameters(), lr=0.01)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        optimizer.zero_grad()
        scores = net(x)
        loss = library.nn.functional.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        with library.no_grad():
            hits = (scores.argmax(1) == y).sum()
        yield loss.item() + hits.item()


@loop("early exit")
def early_exit(library: Any, size: Size) -> Run:
    """A fixed-point iteration until the change is small enough, with a different number of steps each time."""
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((size.hidden, size.hidden)).astype(np.float32)
    matrix = library.tensor(0.3 * matrix / np.float32(np.linalg.norm(matrix, 2)))
    yield [matrix]
    while True:
        b = library.tensor(rng.standard_normal(size.hidden).astype(np.float32))
        tolerance = 10 ** float(rng.uniform(-3, -1))
        x, change = library.zeros(size.hidden), math.inf
        while change > tolerance:
            following = (matrix @ x + b).tanh()
            change = (following - x).norm().item()
            x = following
        yield x.sum()


@loop("early exit, six waits")
def six_waits(library: Any, size: Size) -> Run:
    """A training step of six layers, with a check after each whether its confidence is high enough to stop."""
    nn, F = library.nn, library.nn.functional
    net = classifier(library, size)
    heads = [classifier(library, size, seed) for seed in range(1, 7)]
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        scores = net(x)
        for head in heads:
            scores = scores + 0.1 * head(x)
            if nn.functional.softmax(scores, 1).amax(1).mean().item() > 2:
                break
        optimizer.zero_grad()
        loss = F.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        yield loss


@loop("deep equilibrium")
def deep_equilibrium(library: Any, size: Size) -> Run:
    """A layer that is a fixed point. A hook replaces its gradient by the solution of a second fixed-point equation."""
    nn, autograd = library.nn, library.autograd

    def solve(f: Callable[[Any], Any], x: Any) -> Any:
        for _ in range(50):
            x, before = f(x), x
            if (x - before).norm().item() < 1e-3 * x.norm().item():
                break
        return x

    class Equilibrium(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(size.hidden, size.hidden, bias=False)
            self.norm = nn.LayerNorm(size.hidden)

        def step(self, z: Any, x: Any) -> Any:
            return self.norm((x + 0.3 * self.inner(z)).tanh())

        def forward(self, x: Any) -> Any:
            with library.no_grad():
                z = solve(lambda z: self.step(z, x), library.zeros_like(x))
            z = self.step(z, x)
            fixed = z.clone().detach().requires_grad_()
            again = self.step(fixed, x)

            def solve_backward(grad: Any) -> Any:
                return solve(lambda g: autograd.grad(again, fixed, g, retain_graph=True)[0] + grad, grad)

            z.register_hook(solve_backward)
            return z

    net = nn.Sequential(nn.Linear(size.features, size.hidden), Equilibrium(), nn.Linear(size.hidden, size.classes))
    filled(library, net[0])
    filled(library, net[2])
    filled(library, net[1].inner)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        yield train_step(library, net, optimizer, x, y)


@loop("evaluation between steps")
def evaluation(library: Any, size: Size) -> Run:
    """Evaluation without gradients after every other step, on a resident dataset."""
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    x_test, y_test = map(library.tensor, arrays(size, 4 * size.batch))
    accuracy = 0.0
    yield list(net.parameters())
    for turn, (x, y) in enumerate(fresh(library, size)):
        net.train()
        loss = train_step(library, net, optimizer, x, y)
        if turn % 2 == 1:
            net.eval()
            with library.no_grad():
                accuracy = (net(x_test).argmax(1) == y_test).float().mean().item()
        yield loss.item() + accuracy


@loop("best loss so far")
def best_so_far(library: Any, size: Size) -> Run:
    """The weights with the best loss are saved, in a branch on a value."""
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    best, kept = math.inf, [p.detach().clone() for p in net.parameters()]
    yield kept
    for x, y in fresh(library, size):
        loss = train_step(library, net, optimizer, x, y).item()
        if loss < best:
            best = loss
            for copy, parameter in zip(kept, net.parameters(), strict=True):
                copy.copy_(parameter.detach())
        yield best


@loop("HMC")
def hamiltonian(library: Any, size: Size) -> Run:
    """Hamiltonian Monte Carlo on a logistic regression, which reads a value after each leapfrog step."""
    rng = np.random.default_rng(4)
    inputs = rng.standard_normal((size.batch, size.classes)).astype(np.float32)
    x, y = library.tensor(inputs), library.tensor((inputs.sum(1) > 0).astype(np.float32))
    w = library.zeros(size.classes)

    def potential(w: Any) -> tuple[Any, Any]:
        w = w.detach().requires_grad_()
        energy = library.nn.functional.binary_cross_entropy_with_logits(x @ w, y, reduction="sum") + 0.5 * (w * w).sum()
        return energy.detach(), library.autograd.grad(energy, w)[0]

    yield [w]
    while True:
        momentum = library.tensor(rng.standard_normal(size.classes).astype(np.float32))
        energy, grad = potential(w)
        start = (energy + 0.5 * (momentum * momentum).sum()).item()
        at, level = w, start
        for _ in range(10):
            momentum = momentum - 0.025 * grad
            at = at + 0.05 * momentum
            energy, grad = potential(at)
            momentum = momentum - 0.025 * grad
            level = (energy + 0.5 * (momentum * momentum).sum()).item()
            if level - start > 100:
                break
        if rng.uniform() < math.exp(min(0.0, start - level)):
            w.copy_(at)
        yield level
