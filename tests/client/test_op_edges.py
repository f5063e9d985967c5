"""Edges of ops and modules on which the SDK once differed from torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import same, same_error

RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((4, 3))
CUBE = RNG.standard_normal((2, 3, 4))


def graded(function: Any) -> Any:
    """The result of ``function(lib, x)`` on a matrix, and its gradient."""

    def run(lib: Any) -> Any:
        x = lib.tensor(MATRIX, requires_grad=True)
        y = function(lib, x)
        (y * y).sum().backward()
        return y, x.grad

    return run


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_leaves_out_what_it_is_told_to(session: tg.Session, reduction: str, smoothing: float) -> None:
    def function(lib: Any, x: Any) -> Any:
        target = lib.tensor([0, -100, 2, -100])
        weight = lib.tensor([0.5, 1.0, 2.0], dtype=lib.float64)
        losses = [
            lib.nn.CrossEntropyLoss(reduction=reduction, label_smoothing=smoothing)(x, target),
            lib.nn.CrossEntropyLoss(weight=weight, ignore_index=2, reduction=reduction, label_smoothing=smoothing)(
                x, lib.tensor([0, 1, 2, 1])
            ),
        ]
        return losses[0].sum() + 2 * losses[1].sum()

    same(graded(function))


def test_a_batch_norm_of_an_empty_batch_keeps_its_statistics(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        norm = lib.nn.BatchNorm1d(3)
        x = lib.zeros(0, 3, requires_grad=True)
        y = norm(x)
        y.sum().backward()
        flat = lib.nn.functional.batch_norm(lib.zeros(0), lib.zeros(0), lib.zeros(0), training=True)
        return y, x.grad, norm.running_mean, norm.running_var, norm.num_batches_tracked, flat

    same(function)


Attend = Callable[[Any, Any], Any]
QKV = (2, 2, 5, 4)
MASK = np.random.default_rng(2).standard_normal((5, 3))
MASKS: dict[str, Attend] = {
    "bools": lambda lib, t: lib.tensor(MASK > 0),
    "that hides a row": lambda lib, t: lib.tensor((MASK > 0) & (np.arange(5)[:, None] > 0)),
    "numbers": lambda lib, t: lib.tensor(MASK),
    "of one row": lambda lib, t: lib.tensor(MASK[:1]),
    "of each head": lambda lib, t: lib.tensor(MASK).expand(2, 2, 5, 3).contiguous(),
    "of three dims": lambda lib, t: lib.tensor(MASK).expand(2, 5, 3).contiguous(),
    "with a gradient": lambda lib, t: lib.tensor(MASK, requires_grad=True),
    "across memory": lambda lib, t: lib.tensor(MASK.T.copy()).T,
}
SIZES: dict[str, tuple[tuple[int, ...], ...]] = {
    "four dims": (QKV, (2, 2, 3, 4), (2, 2, 3, 4)),
    "three dims": ((2, 5, 4), (2, 3, 4), (2, 3, 4)),
    "two dims": ((5, 4), (3, 4), (3, 4)),
    "wide values": (QKV, (2, 2, 3, 4), (2, 2, 3, 6)),
    "across memory": ((2, 2, 4, 5), (2, 2, 4, 3), (2, 2, 4, 3)),
    "one batch": (QKV, (1, 2, 3, 4), (1, 2, 3, 4)),
}


@pytest.mark.parametrize("dropout", [0.0, 1.0])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mask", MASKS)
def test_attention_takes_a_mask_and_is_causal_where_torchs_does(
    session: tg.Session, mask: str, sizes: str, dropout: float
) -> None:
    """torch's fused kernel for the CPU applies both; the other one rejects them."""
    values = [np.random.default_rng(1).standard_normal(shape) for shape in SIZES[sizes]]

    def function(lib: Any) -> Any:
        qkv = [lib.tensor(x, requires_grad=True) for x in values]
        given = MASKS[mask](lib, qkv)
        used = [x.mT for x in qkv] if sizes == "across memory" else qkv
        out = lib.nn.functional.scaled_dot_product_attention(*used, given, dropout, is_causal=True)
        (out * out.detach().cos()).sum().backward()
        return out, *[x.grad for x in qkv]

    try:
        function(torch)
    except RuntimeError:
        same_error(function, whole=True)
    else:
        same(function)


@pytest.mark.parametrize("full", [False, True])
def test_gaussian_nll_takes_one_variance_for_all_of_a_sample(session: tg.Session, full: bool) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(MATRIX, requires_grad=True)
        variances = [np.abs(MATRIX[:, :1]), np.abs(MATRIX[:, 0]), np.abs(MATRIX)]
        loss = lib.nn.GaussianNLLLoss(full=full)
        losses = [loss(x, lib.tensor(MATRIX[::-1].copy()), lib.tensor(v) + 0.1) for v in variances]
        losses += [loss(x, lib.tensor(MATRIX[::-1].copy()), 0.5)]
        sum(losses).backward()
        return losses, x.grad

    same(function)


EDGES: dict[str, Any] = {
    "combinations of too few": lambda lib, x: lib.combinations(x[0, :1], 2).sum() + x.sum() * 0,
    "combinations": lambda lib, x: lib.combinations(x[0], 2),
    "normalize zero": lambda lib, x: lib.nn.functional.normalize(x * 0, dim=1),
    "normalize infinity": lambda lib, x: lib.nn.functional.normalize(x, p=float("inf"), dim=0),
    "normalize p=0": lambda lib, x: lib.nn.functional.normalize(x, p=0.0),
    "normalize p=1": lambda lib, x: lib.nn.functional.normalize(x, p=1.0, dim=-1),
    "cdist with itself": lambda lib, x: lib.cdist(x, x),
    "cdist p=0": lambda lib, x: lib.cdist(x, x + 1, p=0.0) + x.sum() * 0,
    "cdist p=1": lambda lib, x: lib.cdist(x, x, p=1.0),
    "cdist p=inf": lambda lib, x: lib.cdist(x, x[:2], p=float("inf")),
    "cdist p=3": lambda lib, x: lib.cdist(x, x, p=3.0),
    "cdist of none": lambda lib, x: lib.cdist(x[:0], x).sum() + x.sum(),
    "cdist without width": lambda lib, x: lib.cdist(x[:, :0], x[:, :0]).sum() + x.sum(),
    "pdist p=0": lambda lib, x: lib.nn.functional.pdist(x, 0.0) + x.sum() * 0,
    "pdist p=1": lambda lib, x: lib.nn.functional.pdist(x, 1.0),
    "pdist p=2": lambda lib, x: lib.nn.functional.pdist(lib.cat((x, x))),
    "pdist p=inf": lambda lib, x: lib.nn.functional.pdist(x, float("inf")),
    "pdist of one": lambda lib, x: lib.nn.functional.pdist(x[:1]).sum() + x.sum(),
    "interpolate area 1d": lambda lib, x: lib.nn.functional.interpolate(x.unsqueeze(0), size=2, mode="area"),
    "interpolate area 1d larger": lambda lib, x: lib.nn.functional.interpolate(x.unsqueeze(0), size=5, mode="area"),
    "interpolate area by factor": lambda lib, x: lib.nn.functional.interpolate(
        x.reshape(1, 1, 4, 3), scale_factor=(0.6, 1.7), mode="area"
    ),
    "interpolate area recomputed": lambda lib, x: lib.nn.functional.interpolate(
        x.reshape(1, 1, 4, 3), scale_factor=1.5, mode="area", recompute_scale_factor=True
    ),
    "attention causal": lambda lib, x: lib.nn.functional.scaled_dot_product_attention(
        x.unsqueeze(0), x[:2].unsqueeze(0), x[:2].unsqueeze(0), is_causal=True
    ),
    "attention causal wide": lambda lib, x: lib.nn.functional.scaled_dot_product_attention(
        x[:2].unsqueeze(0), x.unsqueeze(0), x.unsqueeze(0), is_causal=True, scale=0.3
    ),
    "attention masked": lambda lib, x: lib.nn.functional.scaled_dot_product_attention(
        x, x, x, attn_mask=lib.tensor([[True, False, False, True]] * 3 + [[False] * 4])
    ),
    "attention grouped": lambda lib, x: lib.nn.functional.scaled_dot_product_attention(
        x.expand(4, 4, 3).unsqueeze(0), x.expand(2, 4, 3).unsqueeze(0), x.expand(2, 4, 3).unsqueeze(0), enable_gqa=True
    ),
    "var of all, biased": lambda lib, x: lib.var(x, False) + x.var(True) + lib.std(x, unbiased=False) + x.std(False),
    "var_mean": lambda lib, x: sum(lib.var_mean(x, False)) + sum(lib.std_mean(x, True)),
    "adaptive pools": lambda lib, x: (
        lib.nn.AdaptiveAvgPool2d((None, 2))(x.unsqueeze(0)).sum() + lib.nn.AdaptiveMaxPool2d((3, None))(x.unsqueeze(0))
    ),
    "tensor_split by a tensor": lambda lib, x: (
        lib.tensor_split(x, lib.tensor([1, 3]))[1].sum() * 2 + x.tensor_split(lib.tensor(2), dim=1)[0]
    ),
    "multi_margin of a number": lambda lib, x: lib.nn.functional.multi_margin_loss(x[0, 0], lib.tensor(0)) + x,
    "gather of a number": lambda lib, x: lib.gather(x[0, 0], 0, lib.tensor([0])),
    "gather of nothing": lambda lib, x: lib.gather(x[0], 0, lib.zeros(0, dtype=lib.uint8)).sum() + x,
    "cat with an empty vector": lambda lib, x: lib.cat([lib.zeros(0, dtype=lib.float64), x, x], 1),
    "index_put by a mask": lambda lib, x: x.index_put((lib.tensor([True, False, True, True]),), x[0]),
    "index_put by masks, added": lambda lib, x: x.index_put((x > 0,), lib.tensor(2.0, dtype=lib.float64), True),
    "index_put of nothing": lambda lib, x: x.index_put((lib.zeros(0, dtype=lib.long),), x[:0]),
    "index_put of nothing, added": lambda lib, x: x.index_put(
        (lib.zeros(0, dtype=lib.long),), lib.tensor(1.0, dtype=lib.float64), accumulate=True
    ),
    "index_put, added": lambda lib, x: x.index_put((lib.tensor([0, 0, 1]),), x[:3], accumulate=True),
    "indexed by a bool": lambda lib, x: lib.cat([x[0, 0][True], x[0, 0][False], x[0, 0][None]]),
    "indexed by a 0-dim mask": lambda lib, x: x[0, 0][lib.tensor(True)] + x[lib.tensor(True)].sum(),
    "batched embedding bag": lambda lib, x: lib.nn.functional.embedding_bag(
        lib.tensor([[0, 1], [2, 3]]), x, per_sample_weights=x[:2, :2].detach(), mode="sum"
    ),
}


@pytest.mark.parametrize("edge", EDGES)
def test_an_edge_is_as_in_torch(session: tg.Session, edge: str) -> None:
    same(graded(EDGES[edge]))


SETTING: dict[str, Any] = {
    "leading ones": lambda lib, x: x.__setitem__(0, lib.tensor(MATRIX[:1, :3].reshape(1, 1, 3))),
    "a slice, leading ones": lambda lib, x: x.__setitem__(slice(0, 2), lib.tensor(MATRIX[:2].reshape(1, 1, 2, 3))),
    "a mask, leading ones": lambda lib, x: x.__setitem__(x > 0, lib.ones(1, 1, dtype=lib.float64)),
    "an index, leading ones": lambda lib, x: x.__setitem__(lib.tensor([0, 2]), lib.ones(1, 1, 2, 3, dtype=lib.float64)),
    "an empty index": lambda lib, x: x.__setitem__(lib.zeros(0, dtype=lib.long), lib.ones(0, 3, dtype=lib.float64)),
    "an empty list": lambda lib, x: x.__setitem__([], 5.0),
    "a mask of nothing": lambda lib, x: x.__setitem__(x > 100, 5.0),
    "true": lambda lib, x: x.__setitem__(True, 5.0),
    "false": lambda lib, x: x.__setitem__(False, 5.0),
    "a number, by true": lambda lib, x: x[0, 0].__setitem__(True, 7.0),
    "a number, by an ellipsis": lambda lib, x: x[0, 0].__setitem__(..., 7.0),
}


@pytest.mark.parametrize("setting", SETTING)
def test_setting_items_is_as_in_torch(session: tg.Session, setting: str) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(MATRIX, requires_grad=True)
        y = x * 1
        SETTING[setting](lib, y)
        (y * y).sum().backward()
        return y, x.grad

    same(function)


def test_the_rank_by_a_tolerance_a_matrix(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(CUBE)
        atol = lib.tensor([0.5, 5.0], dtype=lib.float64)
        return [
            lib.linalg.matrix_rank(x, atol=atol),
            lib.linalg.matrix_rank(x, rtol=atol / 10),
            lib.linalg.matrix_rank(x, atol=atol, rtol=atol / 10),
            lib.linalg.matrix_rank(x, tol=atol),
        ]

    same(function)


WRONG: dict[str, Any] = {
    "embedding": lambda lib: lib.nn.functional.embedding(lib.tensor([0]), lib.ones(3)),
    "tensor_split floats": lambda lib: lib.tensor_split(lib.ones(4), lib.tensor([1.0])),
    "tensor_split matrix": lambda lib: lib.tensor_split(lib.ones(4), lib.tensor([[1]])),
    "adaptive": lambda lib: lib.nn.functional.adaptive_avg_pool2d(lib.ones(1, 3, 4), (None, 2, 1)),
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_arguments_raise_as_in_torch(session: tg.Session, call: str) -> None:
    same_error(WRONG[call])
