"""Loops in which a Python number changes from turn to turn."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import numpy as np

from .loop import Run, Size, classifier, filled, fresh, loop, train_step


@loop("KL weight")
def kl_weight(library: Any, size: Size) -> Run:
    """A variational autoencoder whose KL term has a growing weight."""
    nn, F = library.nn, library.nn.functional
    latent = size.hidden // 2
    encoder = filled(library, nn.Linear(size.features, 2 * latent))
    decoder = filled(library, nn.Linear(latent, size.features), seed=1)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = library.optim.SGD(parameters, lr=0.01)
    rng = np.random.default_rng(1)
    yield parameters
    for turn, (x, _) in enumerate(fresh(library, size)):
        noise = library.tensor(rng.standard_normal((size.batch, latent), dtype=np.float32))
        optimizer.zero_grad()
        mean, log_variance = encoder(x).chunk(2, 1)
        decoded = decoder(mean + noise * (0.5 * log_variance).exp())
        kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).mean()
        loss = F.mse_loss(decoded, x) + min(1.0, turn / 100) * kl
        loss.backward()
        optimizer.step()
        yield loss


@loop("running mean, 1 / (i + 1)")
def running_mean(library: Any, size: Size) -> Run:
    """The running mean of the hidden units over all batches."""
    net = classifier(library, size)
    mean = library.zeros(size.hidden)
    yield [mean]
    for turn, (x, _) in enumerate(fresh(library, size)):
        with library.no_grad():
            mean += (net[0](x).mean(0) - mean) * (1 / (turn + 1))
        yield mean.sum()


@loop("EMA decay")
def ema_decay(library: Any, size: Size) -> Run:
    """An average of the weights with a decay that grows."""
    net, average = classifier(library, size), classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(average.parameters())
    for turn, (x, y) in enumerate(fresh(library, size)):
        loss = train_step(library, net, optimizer, x, y)
        decay = min(0.999, (1 + turn) / (10 + turn))
        with library.no_grad():
            for kept, parameter in zip(average.parameters(), net.parameters(), strict=True):
                kept.mul_(decay).add_(parameter, alpha=1 - decay)
        yield loss


@loop("noise level", random=True)
def noise_level(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for turn, (x, y) in enumerate(fresh(library, size)):
        noisy = x + 0.5 * 0.97**turn * library.randn_like(x)
        yield train_step(library, net, optimizer, noisy, y)


@loop("learning rate by hand")
def manual_lr(library: Any, size: Size) -> Run:
    """Plain gradient descent without an optimizer."""
    net = classifier(library, size)
    yield list(net.parameters())
    for turn, (x, y) in enumerate(fresh(library, size)):
        loss = library.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        with library.no_grad():
            for parameter in net.parameters():
                parameter -= 0.1 / (1 + 0.01 * turn) * parameter.grad
                parameter.grad = None
        yield loss


@loop("REINFORCE weight")
def reinforce(library: Any, size: Size) -> Run:
    """The log-probability of a random action is weighted by a reward and a baseline, both Python floats."""
    net = classifier(library, size)
    optimizer = library.optim.Adam(net.parameters(), lr=0.01)
    rng = np.random.default_rng(1)
    baseline = 0.0
    yield list(net.parameters())
    for x, _ in fresh(library, size):
        action, reward = int(rng.integers(size.classes)), float(rng.standard_normal())
        log_probability = library.log_softmax(net(x[0]), 0)[action]
        loss = -log_probability * (reward - baseline)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        baseline = 0.9 * baseline + 0.1 * reward
        yield loss


@loop("temperature")
def temperature(library: Any, size: Size) -> Run:
    """Distillation with a temperature that falls."""
    F = library.nn.functional
    net, teacher = classifier(library, size), classifier(library, size, seed=1)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for turn, (x, _) in enumerate(fresh(library, size)):
        heat = 1 + 3 * 0.98**turn
        with library.no_grad():
            targets = (teacher(x) / heat).softmax(1)
        optimizer.zero_grad()
        loss = F.kl_div(F.log_softmax(net(x) / heat, 1), targets, reduction="batchmean") * heat**2
        loss.backward()
        optimizer.step()
        yield loss


@loop("lr schedule through 0 and back")
def cosine_schedule(library: Any, size: Size) -> Run:
    """A cosine schedule whose learning rate is exactly 0 once per period."""
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    schedule = library.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        loss = train_step(library, net, optimizer, x, y)
        schedule.step()
        yield loss


@loop("lr schedule with warm-up")
def warm_up(library: Any, size: Size) -> Run:
    """Adam with a learning rate that rises from 0 and falls to 0 again."""
    net = classifier(library, size)
    optimizer = library.optim.Adam(net.parameters(), lr=0.01)
    schedule = library.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, min(step / 10, 2 - step / 15)))
    yield list(net.parameters())
    for x, y in fresh(library, size):
        loss = train_step(library, net, optimizer, x, y)
        schedule.step()
        yield loss


@loop("power that changes")
def power(library: Any, size: Size) -> Run:
    """A loss ``|error| ** p`` with p from 1 to 2 and back, which are special cases of the kernel."""
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.01)
    yield list(net.parameters())
    batches = fresh(library, size)
    for turn in count():
        x, _ = next(batches)
        exponent = 1.5 - 0.5 * math.cos(math.pi * (turn % 20) / 10)
        optimizer.zero_grad()
        loss = ((net(x) - 1).abs() + 0.1).pow(exponent).mean()
        loss.backward()
        optimizer.step()
        yield loss
