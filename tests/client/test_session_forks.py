"""Forks of sessions in the SDK, and sessions in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import telegrad as tg


@pytest.fixture(params=["local", "server", "requests"])
def session(request: pytest.FixtureRequest) -> Any:
    address = "local://" if request.param == "local" else request.getfixturevalue("server")
    with tg.connect(address, seed=0, stream=False if request.param == "requests" else None) as session:
        yield session


def made() -> tuple[Any, ...]:
    model = tg.nn.Sequential(tg.nn.Linear(200, 100), tg.nn.Dropout(0.5), tg.nn.Linear(100, 3))
    return model, tg.optim.Adam(model.parameters(), lr=0.01), tg.randn(8, 200), tg.randint(0, 3, (8,))


def train(model: Any, optimizer: Any, x: Any, y: Any, steps: int = 3) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_fork_trains_like_its_session_and_apart_from_it(session: Any) -> None:
    own = made()
    train(*own)
    with session.fork() as other:
        assert tg.current() is other
        copies = other.copy_of(own)
        model, optimizer, *_ = copies
        assert optimizer.param_groups[0]["params"][0] is next(model.parameters())
        losses = train(*copies)
        optimizer.param_groups[0]["lr"] = 0.5
        train(*copies)
    assert tg.current() is session
    assert train(*own) == losses


@pytest.mark.full
def test_gradients_and_tensors_that_share_memory_come_along(session: Any) -> None:
    w = tg.ones(3, requires_grad=True)
    (w * w).sum().backward()
    x = tg.zeros(2, 2)
    row = x[0]
    with session.fork() as other:
        w2, x2, row2 = other.copy_of((w, x, row))
        row2.add_(1)
        (w2 * 3).sum().backward()
        assert w2.grad.tolist() == [5, 5, 5]
        assert x2.tolist() == [[1, 1], [0, 0]]
        assert x2._version == x._version + 1
    assert w.grad.tolist() == [2, 2, 2]
    assert x.tolist() == [[0, 0], [0, 0]]


@pytest.mark.full
def test_what_has_no_copy_says_so(session: Any) -> None:
    x = tg.ones(2, requires_grad=True)
    y = x * 2
    hooked = tg.ones(2, requires_grad=True)
    handle = hooked.register_hook(lambda grad: grad)
    other = session.fork()
    with other:
        for tensor, why in ((y, "history"), (hooked, "hooks")):
            with pytest.raises(RuntimeError, match=why):
                other.copy_of(tensor)
    handle.remove()
    with pytest.raises(RuntimeError, match="not a fork"):
        session.copy_of(x)
    with session.fork() as late:
        x.add(1).sum().item()
        with pytest.raises(RuntimeError, match="went on after the fork"):
            late.copy_of(x)


def test_a_session_goes_to_a_file_and_comes_back(session: Any, tmp_path: Path) -> None:
    model, optimizer, x, y = made()
    train(model, optimizer, x, y)
    file = tmp_path / "session.safetensors"
    weight = tg.ones(2, requires_grad=True)
    weight.sum().backward()
    session.export(file, {**model.state_dict(prefix="model."), "x": x, "weight": weight})
    expected = model[2].bias.tolist()
    x.zero_()
    with tg.import_session(file, session.url) as other:
        named = other.named()
        assert sorted(named) == sorted([*model.state_dict(prefix="model."), "x", "weight"])
        assert named["model.2.bias"].tolist() == expected
        assert named["x"].abs().sum().item() > 0
        assert named["weight"].requires_grad
        (named["weight"] * 2).sum().backward()
        assert named["weight"].grad.tolist() == [3, 3]
        assert named["x"].grad is None
    assert "x" not in session.named(), "the names were for the file alone"


@pytest.mark.full
def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "session.safetensors"
    file.write_bytes(b"no snapshot at all")
    with pytest.raises(tg.TelegradError):
        tg.import_session(file, "local://")
