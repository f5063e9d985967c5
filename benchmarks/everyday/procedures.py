"""Loops that train in more than one pass or with more than one network, or change gradients before the step."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .loop import Run, Size, arrays, classifier, filled, fresh, loop, train_step, weight


@loop("accumulation")
def accumulation(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for turn, (x, y) in enumerate(fresh(library, size)):
        loss = library.nn.functional.cross_entropy(net(x), y) / 4
        loss.backward()
        if turn % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        yield loss


@loop("GAN")
def gan(library: Any, size: Size) -> Run:
    nn, F = library.nn, library.nn.functional
    latent = size.hidden // 2
    generator = nn.Sequential(nn.Linear(latent, size.hidden), nn.ReLU(), nn.Linear(size.hidden, size.features))
    critic = nn.Sequential(nn.Linear(size.features, size.hidden), nn.LeakyReLU(0.2), nn.Linear(size.hidden, 1))
    filled(library, generator), filled(library, critic, seed=1)
    for_generator = library.optim.Adam(generator.parameters(), lr=0.001)
    for_critic = library.optim.Adam(critic.parameters(), lr=0.001)
    real, fake = library.ones(size.batch, 1), library.zeros(size.batch, 1)
    rng = np.random.default_rng(1)
    yield [*generator.parameters(), *critic.parameters()]
    for x, _ in fresh(library, size):
        made = generator(library.tensor(rng.standard_normal((size.batch, latent), dtype=np.float32)))
        for_critic.zero_grad()
        on_real = F.binary_cross_entropy_with_logits(critic(x), real)
        on_fake = F.binary_cross_entropy_with_logits(critic(made.detach()), fake)
        (on_real + on_fake).backward()
        for_critic.step()
        for_generator.zero_grad()
        loss = F.binary_cross_entropy_with_logits(critic(made), real)
        loss.backward()
        for_generator.step()
        yield loss


@loop("gradient scaler and clipping", rtol=2e-3)
def grad_scaler(library: Any, size: Size) -> Run:
    """Mixed precision with bfloat16."""
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    scaler = library.amp.GradScaler("cpu", init_scale=256.0, growth_interval=10)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        optimizer.zero_grad()
        with library.autocast("cpu", dtype=library.bfloat16):
            scores = net(x)
        loss = library.nn.functional.cross_entropy(scores.float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        library.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield loss


@loop("gradient clipping by norm")
def clip_norm(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.Adam(net.parameters(), lr=0.01)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        optimizer.zero_grad()
        library.nn.functional.cross_entropy(net(x), y).backward()
        norm = library.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        yield norm


@loop("gradient clipping by value")
def clip_value(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        optimizer.zero_grad()
        loss = library.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        library.nn.utils.clip_grad_value_(net.parameters(), 0.05)
        optimizer.step()
        yield loss


@loop("gradient penalty")
def gradient_penalty(library: Any, size: Size) -> Run:
    """The loss contains a gradient with respect to the input."""
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.02)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        x.requires_grad_(True)
        loss = library.nn.functional.cross_entropy(net(x), y)
        (slope,) = library.autograd.grad(loss, x, create_graph=True)
        loss = loss + 10 * slope.square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@loop("MAML")
def maml(library: Any, size: Size) -> Run:
    """Sine waves, one task per turn: an inner step with a graph, and an outer step through it."""
    weights = [weight(library, size.hidden, 1), weight(library, 1, size.hidden, seed=1)]
    biases = [weight(library, size.hidden, seed=2), weight(library, 1, seed=3)]
    parameters = [weights[0], biases[0], weights[1], biases[1]]
    optimizer = library.optim.Adam(parameters, lr=0.005)
    F, rng = library.nn.functional, np.random.default_rng(1)

    def predicted(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
        return F.linear(F.linear(x, w, b).tanh(), v, c)

    yield parameters
    while True:
        amplitude, phase = float(rng.uniform(0.1, 2)), float(rng.uniform(0, 3))
        x = library.tensor(rng.uniform(-3, 3, (2 * size.batch, 1)).astype(np.float32))
        y = amplitude * (x + phase).sin()
        loss = F.mse_loss(predicted(x[: size.batch], *parameters), y[: size.batch])
        gradients = library.autograd.grad(loss, parameters, create_graph=True)
        adapted = [p - 0.05 * g for p, g in zip(parameters, gradients, strict=True)]
        loss = F.mse_loss(predicted(x[size.batch :], *adapted), y[size.batch :])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@loop("PINN")
def pinn(library: Any, size: Size) -> Run:
    """The equation u'' + u' + 4 u = 0 at new random points each turn."""
    nn = library.nn
    net = nn.Sequential(nn.Linear(1, size.hidden), nn.Tanh(), nn.Linear(size.hidden, size.hidden), nn.Tanh())
    net = filled(library, nn.Sequential(*net, nn.Linear(size.hidden, 1)))
    optimizer = library.optim.Adam(net.parameters(), lr=0.002)
    start, rng = library.zeros(1, 1), np.random.default_rng(1)
    grad = library.autograd.grad
    yield list(net.parameters())
    while True:
        t = library.tensor(rng.uniform(0, 2, (size.batch, 1)).astype(np.float32), requires_grad=True)
        u = net(t)
        (du,) = grad(u.sum(), t, create_graph=True)
        (d2u,) = grad(du.sum(), t, create_graph=True)
        loss = (d2u + du + 4 * u).square().mean() + 10 * (net(start) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@loop("LBFGS")
def lbfgs(library: Any, size: Size) -> Run:
    """A fixed dataset, in float64 to keep rounding errors small; each step has at most four iterations."""
    net = classifier(library, size).double()
    x, y = map(library.tensor, arrays(size, 4 * size.batch))
    optimizer = library.optim.LBFGS(net.parameters(), lr=0.05, max_iter=4, history_size=5)

    def closure() -> Any:
        optimizer.zero_grad()
        penalty = sum(p.square().sum() for p in net.parameters())
        loss = library.nn.functional.cross_entropy(net(x.double()), y) + 0.01 * penalty
        loss.backward()
        return loss

    yield list(net.parameters())
    while True:
        yield optimizer.step(closure)


@loop("EMA of weights")
def averaged_weights(library: Any, size: Size) -> Run:
    net = classifier(library, size)
    swa = library.optim.swa_utils
    average = swa.AveragedModel(net, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(average.module.parameters())
    for x, y in fresh(library, size):
        loss = train_step(library, net, optimizer, x, y)
        average.update_parameters(net)
        yield loss


@loop("weights shared")
def shared_weights(library: Any, size: Size) -> Run:
    """An autoencoder whose decoder is the transposed encoder."""
    F = library.nn.functional
    shared = weight(library, size.hidden, size.features)
    optimizer = library.optim.SGD([shared], lr=0.05)
    yield [shared]
    for x, _ in fresh(library, size):
        optimizer.zero_grad()
        loss = F.mse_loss(F.linear(F.linear(x, shared).tanh(), shared.T), x)
        loss.backward()
        optimizer.step()
        yield loss


@loop("frozen parts")
def frozen(library: Any, size: Size) -> Run:
    """The first layer is frozen for four turns, then trained for four turns, and so on."""
    net = classifier(library, size)
    optimizer = library.optim.SGD(net.parameters(), lr=0.05)
    yield list(net.parameters())
    for turn, (x, y) in enumerate(fresh(library, size)):
        if turn % 4 == 0:
            net[0].requires_grad_(turn % 8 == 4)
        yield train_step(library, net, optimizer, x, y)


@loop("two models in turn")
def two_models(library: Any, size: Size) -> Run:
    nets = [classifier(library, size, seed) for seed in range(2)]
    optimizers = [library.optim.SGD(nets[0].parameters(), lr=0.05), library.optim.Adam(nets[1].parameters(), lr=0.01)]
    yield [*nets[0].parameters(), *nets[1].parameters()]
    for turn, (x, y) in enumerate(fresh(library, size)):
        yield train_step(library, nets[turn % 2], optimizers[turn % 2], x, y)


@loop("two optimizers that share a forward pass")
def two_optimizers(library: Any, size: Size) -> Run:
    """A body and two heads; each head's loss has its own optimizer step."""
    F, nn = library.nn.functional, library.nn
    body = filled(library, nn.Linear(size.features, size.hidden))
    classify = filled(library, nn.Linear(size.hidden, size.classes), seed=1)
    rebuild = filled(library, nn.Linear(size.hidden, size.features), seed=2)
    first = library.optim.SGD([*body.parameters(), *classify.parameters()], lr=0.05)
    second = library.optim.SGD(rebuild.parameters(), lr=0.05)
    yield [*body.parameters(), *classify.parameters(), *rebuild.parameters()]
    for x, y in fresh(library, size):
        hidden = body(x).relu()
        first.zero_grad()
        second.zero_grad()
        loss = F.cross_entropy(classify(hidden), y)
        loss.backward(retain_graph=True)
        other = F.mse_loss(rebuild(hidden), x)
        other.backward(inputs=list(rebuild.parameters()))
        first.step()
        second.step()
        yield loss.item() + other.item()


@loop("deep network, zeroed gradients")
def deep(library: Any, size: Size) -> Run:
    """Gradients are set to zero rather than to None, and weights decay."""
    nn = library.nn
    widths = [size.features, *[size.hidden] * 4, size.classes]
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.GELU())][:-1]
    net = filled(library, nn.Sequential(*layers))
    optimizer = library.optim.AdamW(net.parameters(), lr=0.003, weight_decay=0.01)
    yield list(net.parameters())
    for x, y in fresh(library, size):
        optimizer.zero_grad(set_to_none=False)
        loss = library.nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        yield loss
