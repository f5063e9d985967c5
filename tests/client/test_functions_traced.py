"""Registration: what can be traced, which requests the session gets, and what another process sees.

Internals: the names that this process knows are removed, as another process does not know them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.errors import FunctionExists, UnknownFunction

from .registering import custom_relu, plain, power, unique

pytestmark = pytest.mark.usefixtures("session")


def test_shapes_are_known_without_asking(session: tg.Session) -> None:
    name = unique("relu")
    tg.register_function(name, custom_relu(tg))
    x = tg.ones(3, 4, requires_grad=True)
    before = session.requests
    y = getattr(tg.ops, name)(x)
    y.sum().backward()
    assert (tuple(y.shape), y.requires_grad, x.grad.shape, session.requests) == ((3, 4), True, (3, 4), before)
    assert type(y.grad_fn).__name__ == "FunctionNode" and x.grad.tolist() == [[1.0] * 4] * 3
    assert session.requests == before + 1


def test_plain_functions_branches_and_parameters() -> None:
    name = unique("reduced")

    @tg.register_function(name)
    def reduced(x: Any, reduction: str = "mean", scale: float = 1.0) -> Any:
        if reduction == "mean":
            return x.mean() * scale
        if reduction == "sum":
            return x.sum() * scale
        return x * scale

    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    call = getattr(tg.ops, name)
    assert [call(x).item(), call(x, "sum").item(), call(x, reduction="none", scale=2.0).tolist()] == [2, 6, [2, 4, 6]]
    call(x, "sum", 3.0).backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]
    for wrong in ((x, 3), (x, "sum", x), (), (x, "sum", 1.0, 2.0)):
        with pytest.raises(TypeError):
            call(*wrong)


def test_constants_are_computed_with_before_they_meet_a_tensor(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        def shifted(x: Any) -> Any:
            c = lib.tensor([1.0, 2.0])
            return (c * 2.0).tanh() + c[1:] * x - lib.ones(2) * 3.0

        return plain(lib, shifted)

    values = [0.5, -1.0]
    ours, theirs = (function(lib)(lib.tensor(values, requires_grad=True)) for lib in (tg, torch))
    np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-6)


def test_code_that_needs_an_example() -> None:
    def rows(x: Any) -> Any:
        total = 0
        for row in x:
            total = total + row * row
        return total

    name = unique("rows")
    tg.register_function(name, rows)  # traced when it is called
    for count in (2, 3, 2):
        x = tg.arange(count * 2, dtype=tg.float64).reshape(count, 2)
        np.testing.assert_allclose(getattr(tg.ops, name)(x).numpy(), (x.numpy() ** 2).sum(0))


def test_a_function_of_functions() -> None:
    inner, outer = unique("inner"), unique("outer")
    tg.register_function(inner, power(tg))
    tg.register_function(outer, lambda x: getattr(tg.ops, inner)(x, 3) + getattr(tg.ops, inner)(x, 2))
    x = tg.tensor([2.0], requires_grad=True)
    y = getattr(tg.ops, outer)(x)
    y.backward()
    assert (y.item(), x.grad.item()) == (12.0, 16.0)


def test_registered_again_it_is_the_new_one() -> None:
    name = unique("again")
    x = tg.tensor([3.0])
    for factor in (2, 5):
        tg.register_function(name, lambda x, factor=factor: x * factor)
        assert getattr(tg.ops, name)(x).item() == 3 * factor


# Other sessions, other languages -------------------------------------------------------------------------------------


@pytest.fixture
def shared(session: tg.Session) -> Iterator[str]:
    name = unique("shared")
    tg.register_function(name, custom_relu(tg), scope="server")
    yield name
    tg.remove_function(name, scope="server")
    with pytest.raises(UnknownFunction):
        getattr(tg.ops, name)(tg.ones(1))


def test_a_function_of_the_server(address: str, shared: str) -> None:
    from telegrad.registered_functions import library

    del library.own[shared]  # as if in another process
    with tg.connect(address):
        x = tg.tensor([-1.0, 2.0], requires_grad=True)
        y = getattr(tg.ops, shared)(x)
        y.sum().backward()
        assert (y.tolist(), x.grad.tolist()) == ([0.0, 2.0], [0.0, 1.0])
    tg.register_function(shared, custom_relu(tg), scope="server")  # registering the same function again
    with pytest.raises(FunctionExists):
        tg.register_function(shared, power(tg), scope="server")


def test_from_json_to_the_sdk_and_back(server: str) -> None:
    with tg.connect(server) as session:
        path = f"{server}/v1/sessions/{session.recorder.transport.session_id}"
        cube = {
            "name": "cube",
            "forward": {
                "inputs": ["x"],
                "instructions": [{"op": "pow", "in": ["x", 3], "out": ["y"]}],
                "outputs": ["y"],
                "saves": ["x"],
            },
            "backward": {
                "inputs": ["x", "g"],
                "instructions": [
                    {"op": "square", "in": ["x"], "out": ["s"]},
                    {"op": "mul", "in": ["s", "g"], "out": ["p"]},
                    {"op": "mul", "in": ["p", 3], "out": ["gx"]},
                ],
                "outputs": ["gx"],
            },
        }
        assert httpx.post(f"{path}/functions", json=cube).status_code == 201
        x = tg.tensor([2.0, -1.0], requires_grad=True)
        y = tg.ops.cube(x)
        (g,) = tg.autograd.grad(y.sum(), x, create_graph=True)
        g.sum().backward()
        assert (y.tolist(), g.tolist(), x.grad.tolist()) == ([8.0, -1.0], [12.0, 3.0], [12.0, -6.0])

        name = unique("relu")
        tg.register_function(name, custom_relu(tg))
        session.flush()
        assert httpx.post(f"{path}/tensors", json={"id": "mine", "data": [-1.0, 4.0]}).status_code == 201
        answer = httpx.post(f"{path}/functions/{name}/apply", json={"inputs": ["mine"]}, params={"data": True})
        assert answer.json()["outputs"][0]["data"] == [0.0, 4.0]
