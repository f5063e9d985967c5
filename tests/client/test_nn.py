"""Modules, compared with torch's modules with the same weights."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
import telegrad.nn.functional as F
from telegrad import nn

from .parity import bodies, check, held, same, same_error

pytestmark = pytest.mark.usefixtures("session")

X = np.random.default_rng(0).standard_normal((5, 4))


def build(lib: Any) -> Any:
    return lib.nn.Sequential(
        lib.nn.Linear(4, 8),
        lib.nn.ReLU(),
        lib.nn.Sequential(lib.nn.Linear(8, 6, bias=False), lib.nn.Tanh(), lib.nn.Identity()),
        lib.nn.Dropout(0.25),
        lib.nn.Flatten(),
        lib.nn.Linear(6, 3),
        lib.nn.Sigmoid(),
    ).to(lib.float64)


@pytest.mark.parametrize(
    "model",
    [
        build,
        lambda lib: lib.nn.Dropout(0.1, inplace=True),
        lambda lib: lib.nn.Sequential(),
        lambda lib: lib.nn.Sequential(OrderedDict(a=lib.nn.Tanh(), b=lib.nn.Sequential(lib.nn.MSELoss()))),
        lambda lib: lib.nn.Parameter(lib.tensor([1.0, 2.0])),
        lambda lib: lib.nn.Parameter(lib.tensor([[1.0], [2.0]]), requires_grad=False),
    ],
)
def test_they_print_as_in_torch(model: Callable[[Any], Any]) -> None:
    assert repr(model(tg)) == repr(model(torch))


# Attributes -------------------------------------------------------------------------------------


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tg.ones(2, 2))
        self.bias: nn.Parameter | None = nn.Parameter(tg.zeros(2))
        self.inner = nn.Linear(2, 2)

    def forward(self, x: tg.Tensor, scale: float = 1.0) -> tg.Tensor:
        return self.inner(x) @ self.weight * scale + self.bias  # type: ignore[no-any-return]


def test_a_subclass_registers_what_is_assigned() -> None:
    model = Affine()
    assert [name for name, _ in model.named_parameters()] == ["weight", "bias", "inner.weight", "inner.bias"]
    assert model(tg.ones(3, 2), scale=2.0).shape == (3, 2)
    model.bias = None
    assert [name for name, _ in model.named_parameters()] == ["weight", "inner.weight", "inner.bias"]
    del model.inner
    assert not hasattr(model, "inner")
    model.weight = nn.Parameter(tg.zeros(2, 2))
    assert model.weight.sum().item() == 0.0
    assert isinstance(model.weight, tg.Tensor)


# Parameters ---------------------------------------------------------------------------------------


def test_a_parameter_and_its_data_share_memory_and_die_apart(session: tg.Session) -> None:
    data = tg.ones(3)
    parameter = nn.Parameter(data)
    with tg.no_grad():
        parameter.mul_(5)
    assert data.tolist() == [5.0, 5.0, 5.0]
    del data
    assert len(held(session)) == 1
    assert parameter.tolist() == [5.0, 5.0, 5.0]
    del parameter
    assert held(session) == {}


def test_a_model_is_copied_and_converted(session: tg.Session) -> None:
    model = nn.Linear(2, 2)
    model(tg.ones(1, 2)).sum().backward()
    other = copy.deepcopy(model)
    assert isinstance(other.weight, nn.Parameter)
    with tg.no_grad():
        other.weight.zero_()
    assert model.weight.abs().sum().item() > 0
    weight = model.weight
    model.double()
    assert weight is model.weight
    assert weight.grad is not None
    assert (weight.dtype, weight.grad.dtype) == (tg.float64, tg.float64)
    model(tg.ones(1, 2, dtype=tg.float64)).sum().backward()
    assert weight.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    del model, other, weight
    assert held(session) == {}


def test_zero_grad_is_one_instruction(session: tg.Session) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model.zero_grad()
    model(tg.ones(1, 2)).sum().backward()
    before = len(session.recorder.pending)
    model.zero_grad()
    assert len(session.recorder.pending) == before + 1
    assert all(p.grad is None for p in model.parameters())
    model(tg.ones(1, 2)).sum().backward()
    grad = model[0].bias.grad
    model.zero_grad(set_to_none=False)
    assert [p.grad.abs().sum().item() for p in model.parameters()] == [0.0] * 4
    assert grad is model[0].bias.grad


def test_linear_starts_as_torchs_does() -> None:
    layer = nn.Linear(100, 200)
    assert fills_evenly(layer.weight.detach().numpy(), 0.1)
    assert layer.bias is not None
    assert fills_evenly(layer.bias.detach().numpy(), 0.1)
    assert nn.init.calculate_gain("leaky_relu", 5**0.5) == torch.nn.init.calculate_gain("leaky_relu", 5**0.5)
    with pytest.raises(ValueError, match="Fan in and fan out"):
        nn.init.kaiming_uniform_(tg.ones(3))


def fills_evenly(values: Any, bound: float) -> bool:
    """Whether the values fill [-bound, bound] evenly."""
    return bool(np.abs(values).max() <= bound and abs(values.std() - bound / 3**0.5) < 0.1 * bound)


# The state dict ---------------------------------------------------------------------------------------


def test_a_state_dict_goes_to_torch_and_back() -> None:
    ours, theirs = build(tg), build(torch)
    theirs.load_state_dict({name: torch.tensor(t.numpy()) for name, t in ours.state_dict().items()})
    check(ours.eval()(tg.tensor(X)), theirs.eval()(torch.tensor(X)), 1e-12)
    other = build(tg)
    other.load_state_dict({name: t.numpy() for name, t in ours.state_dict().items()})
    assert other.eval()(tg.tensor(X)).tolist() == ours(tg.tensor(X)).tolist()


def test_a_state_dict_shows_the_live_values() -> None:
    model = nn.Linear(2, 1)
    state = model.state_dict()
    assert not state["weight"].requires_grad
    with tg.no_grad():
        model.weight.fill_(7)
    assert state["weight"].tolist() == [[7.0, 7.0]]
    assert model.state_dict(keep_vars=True)["weight"] is model.weight


def test_a_state_dict_moves_to_another_session(address: str) -> None:
    model = nn.Linear(2, 1)
    with tg.connect(address):
        other = nn.Linear(2, 1)
        other.load_state_dict(model.state_dict())
        assert other.weight.tolist() == model.weight.tolist()


@pytest.mark.parametrize(
    "damage",
    [
        lambda state, lib: {},
        lambda state, lib: state | {"other": state["0.bias"], "another": state["0.bias"]},
        lambda state, lib: state | {"0.weight": lib.ones(2, 2), "0.bias": lib.ones(())},
        lambda state, lib: {k: v for k, v in state.items() if "bias" not in k} | {"0.weight": lib.ones(1), "x": 1},
        lambda state, lib: state | {"0.weight": 3},
    ],
)
def test_a_state_dict_that_does_not_fit_is_described_as_in_torch(damage: Callable[[Any, Any], Any]) -> None:
    def run(lib: Any) -> None:
        model = build(lib)
        model.load_state_dict(damage(dict(model.state_dict()), lib))

    same_error(run, whole=True)


# Functions ---------------------------------------------------------------------------------------------


def test_functional_has_what_torchs_has() -> None:
    from telegrad_engine import CATALOGUE

    # torch.nn.functional.unfold takes patches of images; Tensor.unfold is another function.
    public = {name for name, ops in CATALOGUE.overloads.items() if not ops[0].internal} - {"unfold"}
    assert {n for n in public if hasattr(F, n)} == {n for n in public if hasattr(torch.nn.functional, n)}
    assert {"relu", "softmax", "cross_entropy", "linear", "dropout", "tanh"} <= set(dir(F))
    with pytest.raises(AttributeError, match="no attribute 'matmul'"):
        F.matmul  # noqa: B018


def test_dropout_thins_out_only_while_training() -> None:
    layer = nn.Dropout(0.25)
    x = tg.ones(100, 100, requires_grad=True)
    y = layer(x)
    values = y.detach().numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((values == 0).mean() - 0.25) < 0.03
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), values)
    assert layer.eval()(x) is x


class Same:
    """Functions whose results must be the same in both libraries."""

    def a_tree_is_walked_as_in_torch(lib: Any) -> Any:
        model = build(lib)
        model.register_buffer("scale", lib.ones(1))
        model[0].register_buffer("hidden", lib.ones(1), persistent=False)
        model.tied = model[0]
        return [
            [name for name, _ in model.named_parameters()],
            [name for name, _ in model.named_parameters("model", recurse=False)],
            [name for name, _ in model.named_parameters(remove_duplicate=False)],
            [name for name, _ in model.named_buffers()],
            [(name, type(m).__name__) for name, m in model.named_modules()],
            [name for name, _ in model.named_children()],
            [type(m).__name__ for m in model.modules()],
            [tuple(p.shape) for p in model.parameters()],
            len(list(model.buffers())),
            len(list(model.children())),
            list(model.state_dict()),
            list(model.state_dict(prefix="x.")),
            model[0].bias.requires_grad,
            model[0].weight.is_leaf,
        ]

    def switches_reach_everything(lib: Any) -> Any:
        model, seen = build(lib), []
        model.eval()
        seen.append([m.training for m in model.modules()])
        model[2].train()
        seen.append([m.training for m in model.modules()])
        model.requires_grad_(False)
        seen.append([p.requires_grad for p in model.parameters()])
        model.apply(lambda m: seen.append(type(m).__name__))
        model.float()
        seen.append([str(p.dtype) for p in model.parameters()])
        return seen, model is model.to("cpu")

    def sequential_is_a_list(lib: Any) -> Any:
        model = build(lib)
        model[1] = lib.nn.Tanh()
        del model[3]
        model.append(lib.nn.ReLU())
        return repr(model), len(model), repr(model[-1]), repr(model[2:4]), [type(m).__name__ for m in model]

    def what_does_not_fit_may_be_left_out(lib: Any) -> Any:
        model = build(lib)
        return repr(model.load_state_dict({"0.weight": lib.ones(8, 4), "x": lib.ones(1)}, strict=False))

    def activations_work_in_place(lib: Any) -> Any:
        x = lib.tensor(X, requires_grad=True)
        y = x * 2
        z = lib.nn.functional.relu(y, True)
        lib.nn.Dropout(1.0, inplace=True)(w := x + 1)
        z.sum().backward()
        return z is y, y, w, x.grad


@pytest.mark.every
@pytest.mark.parametrize("function", bodies(Same))
def test_it_is_torchs(function: Callable[[Any], Any]) -> None:
    same(function)
