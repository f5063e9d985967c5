"""A model trained through the SDK learns as one trained with PyTorch, a request a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 16, 64))
Y = RNG.integers(0, 10, (20, 16))

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    ("Adam", {"lr": 1e-2}),
    ("AdamW", {"lr": 1e-2}),
]


def network(lib: Any) -> Any:
    return lib.nn.Sequential(lib.nn.Linear(64, 32), lib.nn.ReLU(), lib.nn.Dropout(0.0), lib.nn.Linear(32, 10)).double()


def train(lib: Any, model: Any, optimizer: Any) -> Iterator[Any]:
    """The losses, each before it is looked at."""
    criterion = lib.nn.CrossEntropyLoss()
    for x, y in zip(X, Y, strict=True):
        optimizer.zero_grad()
        loss = criterion(model(lib.tensor(x)), lib.tensor(y))
        loss.backward()
        optimizer.step()
        yield loss


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_the_loss_falls_as_in_torch(session: tg.Session, name: str, options: dict[str, Any]) -> None:
    ours, theirs = network(tg), network(torch)
    ours.load_state_dict(theirs.state_dict())
    optimizer = getattr(tg.optim, name)(ours.parameters(), **options)
    session.flush()
    before, mine = session.requests, []
    for step, loss in enumerate(train(tg, ours, optimizer), start=1):
        mine.append(loss.item())
        assert session.requests == before + step
    expected = [
        loss.item() for loss in train(torch, theirs, getattr(torch.optim, name)(theirs.parameters(), **options))
    ]
    np.testing.assert_allclose(mine, expected, rtol=1e-6)
    for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), other.detach().numpy(), rtol=1e-6, atol=1e-9)


def test_steps_nobody_looks_at_ask_for_nothing(session: tg.Session) -> None:
    model = network(tg)
    optimizer = tg.optim.Adam(model.parameters())
    steps = 0
    for loss in train(tg, model, optimizer):
        assert loss.shape == ()
        steps += 1
    sent = session.requests
    assert sent <= (steps if session.recorder.transport.remote else 0)
    assert np.isfinite(loss.item())
    assert session.requests == sent + 1


def test_training_holds_a_constant_number_of_tensors(session: tg.Session) -> None:
    from ..client.parity import held

    model = network(tg)
    optimizer = tg.optim.Adam(model.parameters())
    counts = []
    for loss in train(tg, model, optimizer):
        loss.item()
        counts.append(len(held(session)))
    assert len(set(counts[1:])) == 1


def test_a_model_goes_on_where_it_was_saved(session: tg.Session) -> None:
    model = network(tg)
    optimizer = tg.optim.Adam(model.parameters(), lr=1e-2)
    for _ in train(tg, model, optimizer):
        pass
    other = network(tg)
    resumed = tg.optim.Adam(other.parameters(), lr=1e-2)
    other.load_state_dict({name: value.numpy() for name, value in model.state_dict().items()})
    resumed.load_state_dict(optimizer.state_dict())
    first = [loss.item() for loss in train(tg, model, optimizer)]
    assert [loss.item() for loss in train(tg, other, resumed)] == first
