"""Families of ops on shapes that Hypothesis makes up, held against torch with their derivatives."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import telegrad_engine as tg
from telegrad_engine import autograd

from . import oracle

SIZES = st.integers(0, 4)
SHAPES = st.lists(SIZES, max_size=4).map(tuple)


def numbers(shape: tuple[int, ...], seed: int = 0, low: float = 0.5, high: float = 2.0) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).uniform(low, high, shape))


def agree(function: Callable[[Any, list[Any]], Any], shapes: list[tuple[int, ...]]) -> None:
    """``function(namespace, tensors)`` gives the same on both: value, gradients, and their gradients.

    Where torch raises, ours raises the same class.
    """
    arrays = [numbers(shape, seed) for seed, shape in enumerate(shapes)]
    theirs_in = [torch.tensor(a, requires_grad=True) for a in arrays]
    ours_in = [tg.tensor(a, requires_grad=True) for a in arrays]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns where a variance has no degrees of freedom
        theirs = oracle.attempt(lambda: function(torch, theirs_in))
    ours = oracle.attempt(lambda: function(tg.functions, ours_in))
    if isinstance(theirs, oracle.Failure):
        assert isinstance(ours, oracle.Failure), f"torch raises {theirs}"
        assert ours.kind is theirs.kind
        return
    assert not isinstance(ours, oracle.Failure), ours
    assert [tuple(m.shape) for m in ours] == [tuple(t.shape) for t in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        oracle.assert_close(mine, other, "value")
    if not theirs[0].requires_grad:
        return
    seeds = oracle.random_like(theirs, seed=9)
    expected = torch.autograd.grad(
        theirs, theirs_in, [torch.tensor(s) for s in seeds], create_graph=True, allow_unused=True
    )
    found = autograd.grad(ours, ours_in, [tg.tensor(s) for s in seeds], create_graph=True, allow_unused=True)
    for mine, other, like in zip(found, expected, theirs_in, strict=True):
        oracle.assert_close(tg.tensor(oracle.zero_or(mine, like)), torch.tensor(oracle.zero_or(other, like)), "first")
    again = [
        (m, o) for m, o in zip(found, expected, strict=True) if m is not None and o is not None and o.requires_grad
    ]
    if again:
        seconds = torch.autograd.grad([(o * o).sum() for _, o in again], theirs_in, allow_unused=True)
        ours_second = autograd.grad([(m * m).sum() for m, _ in again], ours_in, allow_unused=True)
        terms = max((float(o.detach().abs().max()) ** 2 for _, o in again if o.numel()), default=0.0)
        for mine, other, like in zip(ours_second, seconds, theirs_in, strict=True):
            oracle.assert_close(
                tg.tensor(oracle.zero_or(mine, like)), torch.tensor(oracle.zero_or(other, like)), "second", terms
            )


@st.composite
def broadcastable(draw: Any, count: int = 2) -> list[tuple[int, ...]]:
    """Shapes that mostly broadcast with each other; now and then one that does not."""
    full = draw(SHAPES)
    shapes = []
    for _ in range(count):
        kept = full[draw(st.integers(0, len(full))) :]
        shapes.append(tuple(1 if draw(st.booleans()) else n for n in kept))
    if draw(st.integers(0, 9)) == 0:
        shapes[0] = draw(SHAPES)
    return shapes


@given(broadcastable(), st.sampled_from(["add", "sub", "mul", "div", "pow", "maximum", "minimum", "remainder"]))
def test_binary_ops_broadcast(shapes: list[tuple[int, ...]], name: str) -> None:
    agree(lambda F, x: getattr(F, name)(*x), shapes)


@given(broadcastable(3))
def test_where_broadcasts(shapes: list[tuple[int, ...]]) -> None:
    agree(lambda F, x: F.where(x[0] > 1.2, x[1], x[2]), shapes)


@given(broadcastable(3))
def test_expressions_broadcast(shapes: list[tuple[int, ...]]) -> None:
    agree(lambda F, x: (x[0] * x[1] + x[2]).exp() / (1 + x[1] ** 2), shapes)


@given(
    SHAPES,
    st.data(),
    st.sampled_from(["sum", "mean", "amax", "amin", "logsumexp", "var", "std", "all", "any"]),
)
def test_reductions(shape: tuple[int, ...], data: st.DataObject, name: str) -> None:
    ndim = len(shape)
    dims = st.lists(st.integers(-ndim - 1, ndim), max_size=ndim + 1).map(tuple)
    dim = data.draw(st.one_of(dims, st.integers(-ndim - 1, ndim)))
    keepdim = data.draw(st.booleans())
    if not isinstance(dim, int) and len(set(dim)) < len(dim) and not {*dim} <= set(range(-ndim, ndim)):
        return  # wrong in two ways: which one torch names differs from op to op
    if dim == () and name in ("logsumexp", "var", "std"):
        return  # torch takes () for all dims and then fails over its own shapes, or divides by zero
    if name in ("var", "std") and 0 not in shape:
        wrapped = {d % max(ndim, 1) for d in ((dim,) if isinstance(dim, int) else dim or range(ndim))}
        if math.prod(n for i, n in enumerate(shape) if i in wrapped) < 2:
            return  # no degrees of freedom: a NaN here or there more
    agree(lambda F, x: getattr(F, name)(x[0], dim=dim, keepdim=keepdim), [shape])


@given(
    SHAPES,
    st.integers(-5, 4),
    st.booleans(),
    st.sampled_from(["max", "min", "cumsum", "softmax", "log_softmax", "argmax", "unbind"]),
)
def test_along_one_dim(shape: tuple[int, ...], dim: int, keepdim: bool, name: str) -> None:
    options = {"keepdim": keepdim} if name in ("max", "min", "argmax") else {}

    def function(F: Any, x: list[Any]) -> Any:
        return (
            list(getattr(F, name)(x[0], dim=dim, **options))
            if name == "unbind"
            else _values(getattr(F, name)(x[0], dim=dim, **options))
        )

    if name == "unbind" and dim in range(-len(shape), len(shape)) and shape[dim] == 0:
        return  # no outputs to compare
    agree(function, [shape])


def _values(result: Any) -> Any:
    return result[0] if isinstance(result, (tuple, list)) else result


@st.composite
def matrix_pair(draw: Any) -> list[tuple[int, ...]]:
    batch = draw(broadcastable())
    n, k, m = draw(SIZES), draw(SIZES), draw(SIZES)
    left, right = (*batch[0][:2], n, k), (*batch[1][:2], k, m)
    if draw(st.integers(0, 4)) == 0:
        left = (k,)
    if draw(st.integers(0, 4)) == 0:
        right = (k,)
    if draw(st.integers(0, 9)) == 0:
        right = draw(SHAPES)
    return [left, right]


@given(matrix_pair())
def test_matmul(shapes: list[tuple[int, ...]]) -> None:
    agree(lambda F, x: x[0] @ x[1], shapes)


@given(SHAPES, st.data())
def test_reshape(shape: tuple[int, ...], data: st.DataObject) -> None:
    size = math.prod(shape)
    target: list[int] = []
    left = size
    while left > 1 and data.draw(st.booleans()):
        target.append(data.draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= target[-1]
    target.append(data.draw(st.sampled_from([left, -1, left, left, 7])))
    agree(lambda F, x: x[0].reshape(target) * 2, [shape])
    agree(lambda F, x: x[0].permute(tuple(range(len(shape)))[::-1]).reshape(target) * 2, [shape])


@given(SHAPES, st.data())
def test_permute_and_transpose(shape: tuple[int, ...], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    signed = tuple(d - len(shape) if data.draw(st.booleans()) else d for d in order)
    agree(lambda F, x: x[0].permute(signed) * 2, [shape])
    a, b = data.draw(st.integers(-5, 4)), data.draw(st.integers(-5, 4))
    agree(lambda F, x: x[0].transpose(a, b) ** 2, [shape])


@given(st.lists(SHAPES, min_size=1, max_size=3), st.integers(-4, 4), st.booleans())
def test_cat_and_stack(shapes: list[tuple[int, ...]], dim: int, alike: bool) -> None:
    shapes = [shapes[0]] * len(shapes) if alike else shapes
    if (0,) in shapes:
        return  # torch lets an empty vector join anything, a leftover from before it had shapes with a 0
    agree(lambda F, x: F.stack(x, dim), shapes)
    if len({len(s) for s in shapes}) == 1:
        agree(lambda F, x: F.cat(x, dim), shapes)


@st.composite
def indices(draw: Any, shape: tuple[int, ...]) -> Any:
    """An index expression for a tensor of ``shape``; mostly in range."""
    items: list[Any] = []
    dim = 0
    dots = draw(st.booleans())
    while dim < len(shape):
        n = shape[dim]
        kind = draw(st.sampled_from(["int", "slice", "none", "list", "tensor", "mask", "skip", "stop"]))
        reach = st.integers(-n, n - 1) if n else st.just(0)
        if kind == "none":
            items.append(None)
            continue
        if kind == "stop" or (kind == "skip" and not dots):
            break
        if kind == "skip":
            items.append(...)
            dots = False
            dim += draw(st.integers(0, len(shape) - dim))
            continue
        if kind == "int":
            items.append(draw(reach))
        elif kind == "slice":
            ends = st.one_of(st.none(), st.integers(-n - 2, n + 2))
            items.append(slice(draw(ends), draw(ends), draw(st.one_of(st.none(), st.integers(1, 3)))))
        elif kind == "list":
            items.append(draw(st.lists(reach, min_size=1, max_size=3)))
        elif kind == "tensor":
            size = draw(st.sampled_from([(), (1,), (2,), (2, 1)]))
            items.append(
                np.array(draw(st.lists(reach, min_size=math.prod(size), max_size=math.prod(size)))).reshape(size)
            )
        else:
            items.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool))
        dim += 1
    return tuple(items) if len(items) != 1 or draw(st.booleans()) else items[0]


def with_tensors(index: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(index, tuple):
        return tuple(with_tensors(i, make) for i in index)
    return make(index) if isinstance(index, np.ndarray) else index


def maker(x: Any) -> Callable[[Any], Any]:
    return torch.tensor if torch.is_tensor(x) else tg.tensor


@given(SHAPES, st.data())
def test_getitem(shape: tuple[int, ...], data: st.DataObject) -> None:
    index = data.draw(indices(shape))
    agree(lambda F, x: x[0][with_tensors(index, maker(x[0]))] * 2, [shape])


@given(SHAPES, st.data(), st.booleans())
def test_setitem(shape: tuple[int, ...], data: st.DataObject, number: bool) -> None:
    index = data.draw(indices(shape))
    try:
        target = np.zeros(shape)[index].shape
    except (IndexError, ValueError):
        target = ()
    value_shape = tuple(1 if data.draw(st.booleans()) else n for n in target[data.draw(st.integers(0, len(target))) :])
    for item in index if isinstance(index, tuple) else (index,):
        if (
            isinstance(item, (list, np.ndarray))
            and np.asarray(item).dtype != bool
            and len(set(np.ravel(item))) < np.size(item)
        ):
            number = True  # which of several values for one place wins is left open

    def function(F: Any, x: list[Any]) -> Any:
        y = x[0] * 1.5
        y[with_tensors(index, maker(y))] = 3.0 if number else x[1] * 2
        return y * y

    agree(function, [shape, value_shape])


@given(SHAPES, st.data())
def test_expand_and_broadcast(shape: tuple[int, ...], data: st.DataObject) -> None:
    target = tuple(data.draw(st.sampled_from([n, n, n, -1, 3])) if n != 1 else data.draw(SIZES) for n in shape)
    lead = data.draw(st.lists(SIZES, max_size=2))
    agree(lambda F, x: x[0].expand((*lead, *target)) * 2, [shape])


@given(SHAPES, st.data())
def test_parts(shape: tuple[int, ...], data: st.DataObject) -> None:
    dim = data.draw(st.integers(-4, 4))
    size, start = data.draw(st.integers(-1, 4)), data.draw(st.integers(-4, 4))
    agree(lambda F, x: [p * 1 for p in x[0].split(size, dim)], [shape])
    agree(lambda F, x: x[0].narrow(dim, start, size) * 1, [shape])
    agree(lambda F, x: x[0].select(dim, start) * 1, [shape])
    agree(lambda F, x: x[0].unsqueeze(dim) * 1, [shape])
    agree(lambda F, x: x[0].squeeze(dim) * 1, [shape])
    agree(lambda F, x: x[0].flip(dim) * 1, [shape])


@given(
    st.sampled_from(
        [
            "ij,jk->ik",
            "ij,kj->ik",
            "ij,ij->ij",
            "ij,ij->",
            "ij->j",
            "bij,bjk->bik",
            "i,j->ij",
            "ii->i",
            "...i,...i->...",
            "ij,jk,kl->il",
        ]
    ),
    st.data(),
)
def test_einsum(equation: str, data: st.DataObject) -> None:
    sizes = {c: data.draw(SIZES) for c in "ijklb"}
    lead = data.draw(st.lists(SIZES, max_size=2)) if "..." in equation else []
    terms = equation.split("->")[0].split(",")
    shapes = [(*(lead if "..." in t else []), *[sizes[c] for c in t.replace("...", "")]) for t in terms]
    agree(lambda F, x: F.einsum(equation, *x), shapes)
