"""Functions over REST: registered as data by any client, listed, applied, differentiated, refused."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import telegrad as tg

from ..servers import running
from . import documented
from .conftest import SessionClient, problem

REGISTER = documented.request_examples("register_function")
POWER = {name: value for name, value in REGISTER["power"].items() if name != "verify"}
RELU = {name: value for name, value in REGISTER["relu"].items() if name != "scope"}
CONDITIONAL = REGISTER["conditional"]
X = [-2.0, -0.5, 0.0, 1.5, 3.0]


def changed(definition: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {**copy.deepcopy(definition), **members}


def forward(*instructions: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"name": "f", "forward": {"inputs": ["x"], "instructions": list(instructions), "outputs": ["y"], **members}}


def register(session: SessionClient, definition: dict[str, Any]) -> None:
    answer = session.post("/functions", definition)
    assert answer.status_code == 201, answer.text


def grad(session: SessionClient, output: str, of: str, **options: Any) -> list[float]:
    summed = session.post("/ops/sum", {"inputs": [output]}).json()["outputs"][0]["id"]
    answer = session.post("/grad", {"outputs": [summed], "inputs": [of], **options})
    assert answer.status_code == 200, answer.text
    found: list[float] = answer.json()["grads"][0]["data"]
    return found


class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, power: int) -> Any:
        ctx.save_for_backward(x)
        ctx.power = power
        return x**power

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * ctx.power * x ** (ctx.power - 1), None


def test_a_function_with_a_parameter(session: SessionClient) -> None:
    answer = session.post("/functions", {**POWER, "verify": True})
    assert answer.status_code == 201
    assert answer.headers["location"] == f"{session.path}/functions/my_power"
    assert answer.json()["signature"] == "my_power(Tensor x, Number power = 2)"
    assert answer.json()["definition"] == POWER
    assert session.get("/functions/my_power").json() == answer.json()

    session.tensor("x", X, dtype="float64", requires_grad=True)
    path, body = "/functions/my_power/apply", {"inputs": ["x"], "params": {"power": 3}, "outputs": ["y"]}
    (y,) = session.post(path, body, params={"data": True}).json()["outputs"]
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    theirs: Any = Power.apply(x, 3)
    np.testing.assert_allclose(y["data"], theirs.tolist())
    assert (y["id"], y["grad_fn"], y["is_leaf"]) == ("y", "MyPowerBackward", False)
    (first,) = torch.autograd.grad(theirs.sum(), x, create_graph=True)
    np.testing.assert_allclose(grad(session, "y", "x", create_graph=True, names=["g"]), first.tolist())
    (second,) = torch.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(grad(session, "g", "x"), second.tolist())


def test_a_branch_on_a_value(session: SessionClient) -> None:
    register(session, CONDITIONAL)
    for name, values, factor in (("a", [3.0, -1.0], 2), ("b", [-3.0, 1.0], 0.5)):
        session.tensor(name, values, requires_grad=True)
        (y,) = session.post("/functions/double_or_half/apply", {"inputs": [name]}, params={"data": True}).json()[
            "outputs"
        ]
        assert y["data"] == [v * factor for v in values]
        assert grad(session, y["id"], name) == [factor, factor]


def test_loops(session: SessionClient) -> None:
    doubling = forward(
        {
            "op": "while_loop",
            "in": [["x"]],
            "out": ["y"],
            "attrs": {
                "cond": {
                    "inputs": ["v"],
                    "instructions": [
                        {"op": "sum", "in": ["v"], "out": ["s"]},
                        {"op": "lt", "in": ["s", 100], "out": ["more"]},
                    ],
                    "outputs": ["more"],
                },
                "body": {
                    "inputs": ["v"],
                    "instructions": [{"op": "mul", "in": ["v", 2], "out": ["w"]}],
                    "outputs": ["w"],
                },
            },
        }
    )
    register(session, changed(doubling, name="doubling"))
    running = {
        "name": "running",
        "forward": {
            "inputs": ["h", "xs"],
            "instructions": [
                {
                    "op": "scan",
                    "in": [["h"], ["xs"]],
                    "out": ["last", "all"],
                    "attrs": {
                        "body": {
                            "inputs": ["h", "x"],
                            "instructions": [
                                {"op": "mul", "in": ["h", "x"], "out": ["p"]},
                                {"op": "add", "in": ["p", 1], "out": ["n"]},
                            ],
                            "outputs": ["n", "p"],
                        }
                    },
                }
            ],
            "outputs": ["last", "all"],
        },
    }
    register(session, running)
    session.tensor("x", [3.0, 4.0], requires_grad=True)
    (y,) = session.post("/functions/doubling/apply", {"inputs": ["x"]}, params={"data": True}).json()["outputs"]
    assert y["data"] == [48.0, 64.0]
    assert grad(session, y["id"], "x") == [16.0, 16.0]
    session.tensor("h", 2.0, requires_grad=True)
    session.tensor("xs", [3.0, 5.0], requires_grad=True)
    answer = session.post("/functions/running/apply", {"inputs": ["h", "xs"]}, params={"data": True}).json()
    assert [o["data"] for o in answer["outputs"]] == [36.0, [6.0, 35.0]]
    assert grad(session, answer["outputs"][0]["id"], "xs") == [10.0, 7.0]


def test_a_function_of_functions_and_shapes(session: SessionClient) -> None:
    register(session, POWER)
    composed = {
        "name": "mean_of_cubes",
        "forward": {
            "inputs": ["x"],
            "instructions": [
                {"op": "apply", "in": [["x"]], "out": ["c"], "attrs": {"function": "my_power", "params": {"power": 3}}},
                {"op": "reshape", "in": ["c"], "out": ["r"], "attrs": {"shape": [{"numel": "x"}]}},
                {"op": "sum", "in": ["r"], "out": ["s"]},
                {"op": "div", "in": ["s", {"shape": ["x", 0]}], "out": ["y"]},
            ],
            "outputs": ["y"],
        },
    }
    register(session, composed)
    session.tensor("x", [[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (y,) = session.post("/functions/mean_of_cubes/apply", {"inputs": ["x"]}, params={"data": True}).json()["outputs"]
    assert y["data"] == 50.0
    assert grad(session, y["id"], "x") == [[1.5, 6.0], [13.5, 24.0]]  # type: ignore[comparison-overlap]
    # What applies a function keeps it.
    assert session.request("DELETE", "/functions/my_power").status_code == 204
    assert session.post("/functions/mean_of_cubes/apply", {"inputs": ["x"]}).status_code == 200


@pytest.fixture
def shared(session: SessionClient) -> Iterator[str]:
    register(session, changed(RELU, name="shared_relu", scope="server"))
    yield "shared_relu"
    assert session.request("DELETE", "/functions/shared_relu", params={"scope": "server"}).status_code == 204


def test_a_function_of_the_server(
    session: SessionClient, shared: str, new_session: Callable[..., SessionClient], client: httpx.Client
) -> None:
    other = new_session()
    other.tensor("x", X, requires_grad=True)
    (y,) = other.post(f"/functions/{shared}/apply", {"inputs": ["x"]}, params={"data": True}).json()["outputs"]
    assert y["data"] == [max(v, 0) for v in X]
    (listed,) = other.get("/functions").json()["items"]
    assert (listed["name"], listed["scope"], listed["definition"]) == (shared, "server", None)
    (entry,) = client.get(f"/v1/ops/{shared}").json()["overloads"]
    assert (entry["kind"], entry["signature"]) == ("function", listed["signature"])
    assert shared in {e["key"] for e in client.get("/v1/ops", params={"kind": "function"}).json()["items"]}
    found = problem(other.post("/functions", changed(RELU, name=shared, scope="server")), 409, "function-exists")
    assert "remove it first" in found["detail"]


def test_listed_and_removed(session: SessionClient) -> None:
    for name in ("a", "b", "c"):
        register(session, changed(RELU, name=name))
    assert [item["name"] for item in session.get("/functions").json()["items"]] == ["a", "b", "c"]
    problem(session.post("/functions", changed(RELU, name="a")), 409, "function-exists")
    of_catalogue = problem(session.post("/functions", changed(RELU, name="add")), 409, "function-exists")
    assert "an op of the catalogue" in of_catalogue["detail"]
    assert session.request("DELETE", "/functions/a").status_code == 204
    problem(session.get("/functions/a"), 404, "unknown-function")
    problem(session.request("DELETE", "/functions/a"), 404, "unknown-function")
    problem(session.post("/functions/a/apply", {"inputs": []}), 404, "unknown-function")
    register(session, changed(RELU, name="a"))


def test_a_wrong_derivative(session: SessionClient) -> None:
    wrong = changed(RELU, name="wrong", verify=True)
    wrong["backward"]["instructions"][1]["inputs"][2] = 1
    problem(session.post("/functions", wrong), 422, "gradcheck-failed")
    problem(session.get("/functions/wrong"), 404, "unknown-function")


def test_functions_that_double_each_others_work_are_refused_at_some_depth(session: SessionClient) -> None:
    before = "f0"
    register(session, changed(RELU, name=before))
    for level in range(1, 30):
        step = {"op": "apply", "in": [["x"]], "attrs": {"function": before}}
        definition = forward({**step, "out": ["z"]}, {**step, "out": ["y"]})
        before = f"f{level}"
        answer = session.post("/functions", {**definition, "name": before})
        if answer.status_code != 201:
            problem(answer, 422, "limit-exceeded")
            break
    else:
        pytest.fail("2 ** 30 instructions were taken")
    session.assert_usable()


def test_wrong_calls(session: SessionClient) -> None:
    register(session, POWER)
    session.tensor("x", X)
    path = "/functions/my_power/apply"
    for body, status, slug in (
        ({"inputs": []}, 422, "invalid-argument"),
        ({"inputs": ["x", "x"]}, 422, "invalid-argument"),
        ({"inputs": ["nope"]}, 404, "unknown-tensor"),
        ({"inputs": ["x"], "params": {"power": "many"}}, 422, "invalid-argument"),
        ({"inputs": ["x"], "params": {"strength": 1}}, 422, "invalid-argument"),
        ({"inputs": ["x"], "outputs": ["x"]}, 409, "tensor-exists"),
        ({"inputs": ["x"], "outputs": ["y", "z"]}, 422, "invalid-argument"),
    ):
        problem(session.post(path, body), status, slug)
    session.assert_usable()


def test_an_error_inside_says_where(session: SessionClient) -> None:
    register(session, forward({"op": "matmul", "in": ["x", "x"], "out": ["y"]}))
    session.tensor("x", [[1.0, 2.0, 3.0]])
    found = problem(session.post("/functions/f/apply", {"inputs": ["x"]}), 422, "shape-mismatch")
    assert found["detail"] == "mat1 and mat2 shapes cannot be multiplied (1x3 and 1x3)"
    assert found["where"] == {"path": "forward[0]", "op": "matmul"}


def test_inputs_are_not_written_to(session: SessionClient) -> None:
    for name, steps in {
        "direct": [{"op": "mul_", "in": ["x", 2], "out": ["y"]}],
        "by_a_view": [
            {"op": "view", "in": ["x"], "out": ["v"], "attrs": {"shape": [-1]}},
            {"op": "exp_", "in": ["v"], "out": ["y"]},
        ],
        "by_index": [{"op": "index_set", "in": ["x", 1], "out": ["y"], "attrs": {"index": [0]}}],
    }.items():
        register(session, changed(forward(*steps), name=name))
        session.tensor(f"x_{name}", X)
        problem(session.post(f"/functions/{name}/apply", {"inputs": [f"x_{name}"]}), 422, "invalid-operation")
        assert session.data(f"x_{name}") == X


INSTALLED = """
from telegrad_engine.autograd import Function
from telegrad_engine.schema.parameters import Array, Number


class Swish(Function):
    '''x * sigmoid(beta * x).'''

    @staticmethod
    def forward(ctx, x: Array, beta: Number = 1.0):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x * (x * beta).sigmoid()

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        s = (x * ctx.beta).sigmoid()
        return grad * (s + ctx.beta * x * s * (1 - s)), None


DOUBLE = {
    "forward": {"inputs": ["x"], "instructions": [{"op": "mul", "in": ["x", 2], "out": ["y"]}], "outputs": ["y"]}
}
"""


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[str]:
    """The address of a server on which a package with functions is installed."""
    (tmp_path / "operators_own.py").write_text(INSTALLED)
    info = tmp_path / "operators_own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: operators-own\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[telegrad.functions]\nswish = operators_own:Swish\ndoubled = operators_own:DOUBLE\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with running(env={"PYTHONPATH": path}) as (address, _):
        yield address


def test_functions_that_the_operator_installed(operator: str) -> None:
    with httpx.Client(base_url=operator) as client:
        found = {entry["key"]: entry for entry in client.get("/v1/ops", params={"kind": "function"}).json()["items"]}
        assert set(found) == {"swish", "doubled"}
        assert found["swish"]["doc"] == "x * sigmoid(beta * x)."
        session = SessionClient(client)
        assert session.get("/functions/swish").json()["definition"] is None
        session.tensor("x", X, requires_grad=True)
        body = {"inputs": ["x"], "params": {"beta": 2.0}, "outputs": ["y"]}
        assert session.post("/functions/swish/apply", body).status_code == 200
        x = torch.tensor(X, requires_grad=True)
        theirs = x * torch.sigmoid(2 * x)
        np.testing.assert_allclose(session.data("y"), theirs.tolist(), rtol=1e-6)
        (expected,) = torch.autograd.grad(theirs.sum(), x)
        np.testing.assert_allclose(grad(session, "y", "x"), expected.tolist(), rtol=1e-6)
        problem(session.request("DELETE", "/functions/swish"), 404, "unknown-function")
    with tg.connect(operator):
        ours = tg.tensor(X, requires_grad=True)
        y = tg.ops.swish(ours, beta=2.0)
        y.sum().backward()
        np.testing.assert_allclose(y.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(ours.grad.numpy(), expected.numpy(), rtol=1e-6)
        assert tg.ops.doubled(ours).tolist() == [2 * v for v in X]
