"""Parametrizations, the older norms, pruning and fusion, compared with torch's."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg

from .parity import bodies, same

pytestmark = pytest.mark.usefixtures("session")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5))
W = RNG.standard_normal((5, 5))


def parts(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.nn.utils")


def linear(lib: Any, rows: int = 5, columns: int = 5) -> Any:
    layer = lib.nn.Linear(columns, rows).double()
    with lib.no_grad():
        layer.weight.copy_(lib.tensor(W[:rows, :columns]))
        layer.bias.copy_(lib.tensor(W[0, :rows]))
    return layer


def conv(lib: Any) -> Any:
    layer = lib.nn.Conv2d(1, 2, 2).double()
    with lib.no_grad():
        layer.weight.copy_(lib.tensor(W.flatten()[:8].reshape(2, 1, 2, 2)))
        layer.bias.zero_()
    return layer


def trained(lib: Any, layer: Any, steps: int = 2) -> Any:
    """Train for some steps and return the gradients, the values and the repr."""
    optimizer = lib.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        layer(lib.tensor(X)).square().sum().backward()
        grads = [p.grad.clone() for p in layer.parameters()]
        optimizer.step()
    return grads, dict(layer.state_dict()), layer.weight.detach(), repr(layer)


def symmetric(lib: Any) -> Any:
    class Symmetric(lib.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).transpose(0, 1)

        def right_inverse(self, x: Any) -> Any:
            return x.triu()

    return Symmetric()


def doubled(lib: Any) -> Any:
    class Doubled(lib.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    return Doubled()


class Same:
    """Functions whose results must be the same in both libraries."""

    def symmetric_weight(lib: Any) -> Any:
        layer = linear(lib)
        made = parts(lib).parametrize.register_parametrization(layer, "weight", symmetric(lib))
        return made is layer, trained(lib, layer), parts(lib).parametrize.is_parametrized(layer, "weight")

    def two_of_them(lib: Any) -> Any:
        layer, P = linear(lib), parts(lib).parametrize
        P.register_parametrization(layer, "weight", symmetric(lib))
        P.register_parametrization(layer, "weight", doubled(lib))
        return trained(lib, layer), P.type_before_parametrizations(layer).__name__

    def assigned(lib: Any) -> Any:
        layer, P = linear(lib), parts(lib).parametrize
        P.register_parametrization(layer, "weight", symmetric(lib))
        layer.weight = lib.tensor(W + W.T)
        return layer.weight.detach(), layer.parametrizations.weight.original.detach()

    def removed(lib: Any) -> Any:
        layer, P = linear(lib), parts(lib).parametrize
        P.register_parametrization(layer, "weight", symmetric(lib))
        P.remove_parametrizations(layer, "weight")
        other = P.register_parametrization(linear(lib), "weight", symmetric(lib))
        P.remove_parametrizations(other, "weight", leave_parametrized=False)
        return trained(lib, layer), other.weight.detach(), repr(other), type(other).__name__

    def cached(lib: Any) -> Any:
        layer, P = linear(lib), parts(lib).parametrize
        P.register_parametrization(layer, "weight", symmetric(lib))
        with P.cached():
            within = layer.weight is layer.weight
        return within, layer.weight is layer.weight

    def copied(lib: Any) -> Any:
        layer, P = linear(lib), parts(lib).parametrize
        P.register_parametrization(layer, "weight", symmetric(lib))
        return trained(lib, copy.deepcopy(layer)), layer.weight.detach()

    def weight_norm(lib: Any) -> Any:
        return trained(lib, parts(lib).parametrizations.weight_norm(linear(lib, 3)))

    def weight_norm_of_the_whole(lib: Any) -> Any:
        return trained(lib, parts(lib).parametrizations.weight_norm(linear(lib, 3), dim=None))

    def weight_norm_loads_the_old_one(lib: Any) -> Any:
        old = parts(lib).weight_norm(linear(lib, 3))
        new = parts(lib).parametrizations.weight_norm(linear(lib, 3))
        return repr(new.load_state_dict(old.state_dict())), new.weight.detach()

    def old_weight_norm(lib: Any) -> Any:
        layer = parts(lib).weight_norm(linear(lib, 3), dim=1)
        before = trained(lib, layer)
        parts(lib).remove_weight_norm(layer)
        return before[:2], list(layer.state_dict()), layer.weight.detach()

    def orthogonal_maps(lib: Any) -> Any:
        made = []
        q = np.linalg.qr(W)[0]
        for name in ("matrix_exp", "cayley", "householder"):
            layer = linear(lib)
            with lib.no_grad():
                layer.weight.copy_(lib.tensor(q))
            parts(lib).parametrizations.orthogonal(layer, "weight", name)
            made.append(trained(lib, layer))
        return made

    def orthogonal_without_a_base(lib: Any) -> Any:
        layer = parts(lib).parametrizations.orthogonal(linear(lib, 3), "weight", "cayley", use_trivialization=False)
        other = parts(lib).parametrizations.orthogonal(linear(lib), "weight", "matrix_exp", use_trivialization=False)
        return trained(lib, layer), trained(lib, other)

    def pruned(lib: Any) -> Any:
        layer = parts(lib).prune.l1_unstructured(linear(lib), "weight", 0.3)
        before = trained(lib, layer), parts(lib).prune.is_pruned(layer)
        parts(lib).prune.remove(layer, "weight")
        return before, list(layer.state_dict()), layer.weight.detach(), parts(lib).prune.is_pruned(layer)

    def pruned_channels(lib: Any) -> Any:
        layer = parts(lib).prune.ln_structured(linear(lib), "weight", 2, n=2, dim=0)
        parts(lib).prune.l1_unstructured(layer, "weight", amount=4)
        return dict(layer.state_dict()), layer.weight.detach()

    def pruned_twice(lib: Any) -> Any:
        layer = parts(lib).prune.l1_unstructured(linear(lib), "weight", 5)
        parts(lib).prune.ln_structured(layer, "weight", 0.4, 1, -1)
        return dict(layer.state_dict())

    def pruned_together(lib: Any) -> Any:
        layers = [linear(lib), linear(lib, 3)]
        prune = parts(lib).prune
        prune.global_unstructured([(layer, "weight") for layer in layers], prune.L1Unstructured, amount=11)
        return [dict(layer.state_dict()) for layer in layers]

    def pruned_by_mask(lib: Any) -> Any:
        layer = parts(lib).prune.custom_from_mask(linear(lib), "bias", lib.tensor([1.0, 0, 1, 0, 1]))
        parts(lib).prune.identity(layer, "weight")
        return dict(layer.state_dict()), layer.bias.detach()

    def pruned_at_random(lib: Any) -> Any:
        layer = parts(lib).prune.random_unstructured(linear(lib), "weight", 7)
        other = parts(lib).prune.random_structured(linear(lib), "weight", 2, dim=1)
        return int(layer.weight_mask.sum()), int(other.weight_mask.sum())

    def pruned_tensor(lib: Any) -> Any:
        return parts(lib).prune.L1Unstructured(3).prune(lib.tensor(X))

    def fused(lib: Any) -> Any:
        norm = lib.nn.BatchNorm2d(2).double()
        with lib.no_grad():
            norm.running_mean.copy_(lib.tensor(W[0, :2]))
            norm.weight.copy_(lib.tensor(W[1, :2]))
        made = parts(lib).fuse_conv_bn_eval(conv(lib).eval(), norm.eval())
        of_linear = lib.nn.BatchNorm1d(5).double().eval()
        return dict(made.state_dict()), dict(parts(lib).fuse_linear_bn_eval(linear(lib).eval(), of_linear).state_dict())

    def without_first_values(lib: Any) -> Any:
        return [tuple(p.shape) for p in parts(lib).skip_init(lib.nn.Linear, 3, 2).parameters()]


@pytest.mark.parametrize("function", bodies(Same))
def test_it_is_torchs(function: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(function, 1e-8)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
@pytest.mark.parametrize("name", ["matrix_exp", "cayley", "householder", None])
def test_it_stays_orthogonal(shape: tuple[int, int], name: str | None) -> None:
    layer = tg.nn.utils.parametrizations.orthogonal(linear(tg, *shape), orthogonal_map=name)
    optimizer = tg.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(tg.tensor(X[:, : shape[1]])).square().sum().backward()
        optimizer.step()
    weight = layer.weight.detach().numpy()
    product = weight.T @ weight if shape[0] >= shape[1] else weight @ weight.T
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-10)


@pytest.mark.parametrize("module", ["parametrizations", ""])
def test_spectral_norms_are_one(module: str) -> None:
    def run(lib: Any) -> Any:
        make = getattr(parts(lib), module) if module else parts(lib)
        layer = make.spectral_norm(linear(lib, 3), n_power_iterations=30)
        for _ in range(5):
            layer(lib.tensor(X))
        layer.eval()
        grads = lib.autograd.grad(layer(lib.tensor(X)).square().sum(), list(layer.parameters()))
        norm = float(np.linalg.svd(layer.weight.detach().numpy())[1][0])
        return list(layer.state_dict()), layer.weight.detach(), round(norm, 6), [g.abs() for g in grads]

    same(run, 1e-6)


def test_the_old_spectral_norm_is_removed() -> None:
    layer = tg.nn.utils.spectral_norm(linear(tg, 3))
    layer(tg.tensor(X))
    tg.nn.utils.remove_spectral_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
