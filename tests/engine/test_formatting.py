"""``repr`` of a tensor is torch's, to the character.

Internals: print options are restored after each test.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import telegrad_engine as tg
from telegrad_engine.tensor import formatting

VALUES = [
    [1, 2, 3], [1.0, 2.0, 3.0], [1.5, 2.0, -3.0], 1.0, 1, -7, True, [True, False], [[True], [True]],
    [1e10, 1.0], [1e-5, 1.0], [1e5, 1.5], [1e8], [1.00001e8], [1e9], [1.0, math.nan], [math.inf, -1.0],
    [math.inf, 2.0], [math.inf, -1.5], [math.nan], [math.nan, 0.0], [math.inf], -math.inf, [0.0],
    [1e-5], [1e-4], [9e-4, 1.0], [1e-3, 1.0], [999.5, 0.5], [500.0, 0.5], [500.5, 0.5], [1.0, 1001.0],
    [1.0, 1000.0], 1e10, 1e-7, [-0.0], [-0.0, 1.5], -0.0, [1e-45], [3e38, -3e38], [[[1, -20], [300,
    4]]], [[1.25], [-2.5]], [-1.0, 1e10, math.inf],
]  # fmt: skip
SHAPES = [
    (0,), (0, 3), (2, 0, 3), (1000,), (1001,), (2000,), (40, 40), (3, 4, 5), (30,), (100, 2, 6), (2, 2, 300),
    (1, 1, 1, 30),    (20, 20, 20), (7, 200), (6, 200), (1, 25), (1, 9), (3, 0),
]  # fmt: skip
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def agree(array: np.ndarray, dtype: str, requires_grad: bool = False, scale: float | None = None) -> None:
    theirs = torch.tensor(array, requires_grad=requires_grad, dtype=getattr(torch, dtype))
    ours = tg.tensor(array, requires_grad=requires_grad, dtype=dtype)
    if scale is not None:
        theirs, ours = theirs * scale, ours * scale
    assert_same_text(repr(ours), repr(theirs))


def assert_same_text(ours: str, theirs: str) -> None:
    """To the character; but a dtype is Telegrad's, whose longer name may move the suffixes to another line."""
    assert "torch" not in ours
    if "dtype=" in theirs:
        ours, theirs = (" ".join(text.replace("telegrad.", "torch.").split()) for text in (ours, theirs))
    assert ours == theirs


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values(value: object) -> None:
    assert repr(tg.tensor(value)) == repr(torch.tensor(value))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_and_dtypes(shape: tuple[int, ...], dtype: str) -> None:
    agree(np.arange(math.prod(shape)).reshape(shape) % 120, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradient_suffixes(shape: tuple[int, ...], dtype: str) -> None:
    array = np.linspace(-1.0, 1.0, math.prod(shape)).reshape(shape)
    agree(array, dtype, requires_grad=True)
    agree(array, dtype, requires_grad=True, scale=2.0)


@pytest.mark.parametrize("length", range(1, 30))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_suffixes_break_the_line_where_torch_does(length: int, dtype: str) -> None:
    for fill in (1.5, 1.0, 1e9):
        agree(np.full(length, fill), dtype, requires_grad=True)
        agree(np.full(length, fill), dtype, requires_grad=True, scale=2.0)


floats = st.one_of(st.floats(width=32), st.integers(-2000, 2000).map(float), st.floats(-10, 10, width=32), st.just(0.0))
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@given(shapes, st.data(), st.sampled_from(["float16", "bfloat16", "float32", "float64"]), st.booleans())
def test_any_floats(shape: tuple[int, ...], data: st.DataObject, dtype: str, requires_grad: bool) -> None:
    n = math.prod(shape)
    values = data.draw(st.lists(floats, min_size=n, max_size=n))
    agree(np.array(values, dtype=np.float64).reshape(shape), dtype, requires_grad)


@given(shapes, st.data())
def test_any_integers(shape: tuple[int, ...], data: st.DataObject) -> None:
    n = math.prod(shape)
    values = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n))
    agree(np.array(values, dtype=np.int64).reshape(shape), "int64")


@pytest.fixture
def default_options() -> Iterator[None]:
    yield
    for side in (formatting, torch):
        side.set_printoptions(profile="default")


@pytest.mark.usefixtures("default_options")
@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2}, {"precision": 8}, {"sci_mode": True}, {"sci_mode": False}, {"threshold": 5},
        {"threshold": 5, "edgeitems": 1}, {"linewidth": 40}, {"profile": "short"}, {"profile": "full"},
        {"profile": "short", "precision": 6}, {"precision": 1, "sci_mode": True, "linewidth": 30},
    ],
    ids=str,
)  # fmt: skip
def test_print_options(options: dict[str, Any]) -> None:
    arrays = [np.arange(1200) / 7, np.array([1.0, -20.0, 1e9]), np.array([1e-7, 2.5]), np.array([0.0, math.nan])]
    arrays += [np.arange(12.0).reshape(3, 4), np.array([[math.inf, 1.5]]), np.zeros((0, 2)), np.array(3.14159)]
    for side in (formatting, torch):
        side.set_printoptions(**options)
    for array in arrays:
        agree(array, "float32", requires_grad=True)
        agree(array, "float64")
    agree(np.arange(1200), "int64")
    for side in (formatting, torch):
        side.set_printoptions(precision=3)
    agree(arrays[1], "float32")
