"""Kernels and matrix products in blocks: torch's numbers from a few blocks of memory, and an end between two of them.

Internals: how a product is split is decided by this module, and a session knows its programs by this cache, as a
server's does.
"""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad
import telegrad_engine as tg
from telegrad_engine.arrays import NUMPY
from telegrad_engine.arrays import blocked_matmul as pieces
from telegrad_engine.compile import Compiler
from telegrad_engine.errors import TimeLimitExceeded
from telegrad_engine.program import parse_program
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.session.session import Session

from .compiled.remembering import Remembering, connect, runs_planned

MIB = 2**20
BLOCKS = 96 * MIB
"""Bytes of the blocks that a kernel has at a time, and of what it makes of them."""

Shapes = tuple[tuple[int, ...], ...]
ROWS: Shapes = ((1500, 3000),)
QUERIES: Shapes = ((2, 3, 1000, 8), (2, 3, 1100, 8), (2, 3, 1100, 4))
MASK = np.random.default_rng(1).random((1000, 1100)) > 0.5
MASK[7] = False
PAIRS: Shapes = ((700, 16), (600, 16))

LARGE: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "var": (lambda lib, f, x: lib.var(x), ROWS),
    "std over rows": (lambda lib, f, x: lib.std(x, dim=0), ROWS),
    "std over columns": (lambda lib, f, x: lib.std(x, dim=1), ROWS),
    "logsumexp": (lambda lib, f, x: lib.logsumexp(x, (0, 1)), ROWS),
    "logsumexp over rows": (lambda lib, f, x: lib.logsumexp(x, 0, True), ROWS),
    "nansum": (lambda lib, f, x: lib.nansum(x, 1), ROWS),
    **{f"{p}-norm": (lambda lib, f, x, p=p: lib.norm(x, p, 1), ROWS) for p in (0.5, 1, 2, 3, math.inf, -math.inf)},
    "mse_loss": (lambda lib, f, x, y: f.mse_loss(x, y), ROWS * 2),
    "mse_loss of a broadcast": (lambda lib, f, x, y: f.mse_loss(x, y), ((3000, 1), (2000,))),
    "smooth_l1_loss": (lambda lib, f, x, y: f.smooth_l1_loss(x, y), ROWS * 2),
    "huber_loss": (lambda lib, f, x, y: f.huber_loss(x, y), ROWS * 2),
    **{
        f"cdist of the {p}-norm": (lambda lib, f, x, y, p=p: lib.cdist(x, y, p, MODE), PAIRS)
        for p in (0.0, 0.5, 1.0, 2.0, 3.0, math.inf)
    },
    "cdist of batches": (lambda lib, f, x, y: lib.cdist(x, y, 2.0, MODE), ((3, 1, 200, 16), (2, 250, 16))),
    "attention": (lambda lib, f, *x: f.scaled_dot_product_attention(*x), QUERIES),
    "attention of one head": (lambda lib, f, *x: f.scaled_dot_product_attention(*x), ((2300, 8),) * 3),
    "causal attention": (lambda lib, f, *x: f.scaled_dot_product_attention(*x, None, 0.0, True), ((3, 1300, 8),) * 3),
}
MASKS = {
    "bools": MASK,
    "numbers": np.linspace(-1, 1, 1100, dtype=np.float32)[None],
}
MODE = "donot_use_mm_for_euclid_dist"


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_large_arrays_give_the_numbers_of_torch(name: str) -> None:
    _compare(*LARGE[name])


@pytest.mark.parametrize("name", MASKS)
def test_large_attention_with_a_mask(name: str) -> None:
    def attention(lib: Any, f: Any, *x: Any) -> Any:
        mask = tg.tensor(MASKS[name]) if f is tg.functions else torch.tensor(MASKS[name])
        return f.scaled_dot_product_attention(*x, mask if name == "bools" else mask.to(dtype=x[0].dtype))

    _compare(attention, QUERIES)


def _compare(function: Callable[..., Any], shapes: Shapes) -> None:
    """Hold a function's result, gradients and memory against torch, in float64, and a few blocks."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
    ours = [tg.tensor(x).requires_grad_() for x in arrays]
    theirs = [torch.tensor(x, dtype=torch.float64).requires_grad_() for x in arrays]
    tracemalloc.start()
    try:
        result = function(tg.functions, tg.functions, *ours)
        assert tracemalloc.get_traced_memory()[1] < BLOCKS
        result.sum().backward()
        assert tracemalloc.get_traced_memory()[1] < BLOCKS + 4 * sum(x.nbytes for x in arrays)
    finally:
        tracemalloc.stop()
    expected = function(torch, torch.nn.functional, *theirs)
    expected.sum().backward()
    _assert_close(result.detach(), expected.detach())
    for mine, other in zip(ours, theirs, strict=True):
        assert other.grad is not None
        _assert_close(mine.grad, other.grad)


def _assert_close(found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(
        torch.tensor(found.numpy(), dtype=torch.float64), expected, rtol=2e-4, atol=2e-5 * float(expected.abs().max())
    )


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_unique_in_blocks(dtype: str) -> None:
    size = 17 * MIB // np.dtype(dtype).itemsize
    values = np.round(np.random.default_rng(0).standard_normal(size) * 50)
    nans = [3, 9, size - 2] if dtype.startswith("float") else []
    values[nans] = math.nan
    array = values.astype(dtype).reshape(2, -1)
    found = tg.functions.unique(tg.tensor(array), return_inverse=True, return_counts=True)
    different, inverse, counts = (x.numpy() for x in found)
    numbers, expected = np.unique(np.delete(array.reshape(-1).astype(np.float64), nans), return_counts=True)
    np.testing.assert_array_equal(different[: numbers.size], numbers)
    np.testing.assert_array_equal(counts, [*expected, *[1 for _ in nans]])
    np.testing.assert_array_equal(different[inverse], array)
    assert sorted(inverse.reshape(-1)[nans]) == [numbers.size + i for i in range(len(nans))]


def test_counts_and_whole_numbers_in_blocks() -> None:
    array = np.random.default_rng(0).integers(-2, 3, (5000, 1000), dtype=np.int32)
    x = tg.tensor(array)
    f = tg.functions
    assert f.count_nonzero(x).item() == np.count_nonzero(array)
    np.testing.assert_array_equal(f.sum(x, 1).numpy(), array.sum(1, dtype=np.int64))
    np.testing.assert_array_equal(f.count_nonzero(x, 0).numpy(), np.count_nonzero(array, 0))


def test_the_derivative_in_blocks_has_derivatives() -> None:
    x, y = (np.random.default_rng(i).standard_normal((650, 12), np.float32) for i in range(2))
    ours = [tg.tensor(a).requires_grad_() for a in (x, y)]
    theirs = [torch.tensor(a, dtype=torch.float64).requires_grad_() for a in (x, y)]
    (grad,) = tg.autograd.grad(tg.functions.cdist(*ours, 3.0).sum(), ours[:1], create_graph=True)
    differences = theirs[0][:, None] - theirs[1]
    norms = (differences.abs() ** 3).sum(-1) ** (1 / 3)
    (expected,) = torch.autograd.grad(norms.sum(), theirs[:1], create_graph=True)
    (grad * grad).sum().backward()
    (expected * expected).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        assert other.grad is not None
        _assert_close(mine.grad, other.grad)


# In sessions -----------------------------------------------------------------------------------------------


def op(name: str, inputs: list[Any], out: str = "y", **attrs: Any) -> dict[str, Any]:
    return {"op": name, "in": inputs, "out": [out], "attrs": attrs}


def ones(name: str, *size: int) -> dict[str, Any]:
    return {"op": "ones", "out": [name], "attrs": {"size": [*size]}}


WIDE = [ones("one", 1), op("expand", ["one"], "x", size=[2**26])]
FEASIBLE: dict[str, tuple[list[dict[str, Any]], float]] = {
    "attention": ([ones("x", 4, 4096, 1), op("scaled_dot_product_attention", ["x", "x", "x", None])], 1.0),
    "cdist": ([ones("x", 2048, 64), op("cdist", ["x", "x"])], 0.0),
    "norm of a view": ([*WIDE, op("norm", ["x"])], 2**13),
    "std of a view": ([*WIDE, op("std", ["x"])], 0.0),
    "logsumexp of a view": ([*WIDE, op("logsumexp", ["x"], dim=[0])], 1 + 26 * math.log(2)),
    "sum of a view in float64": ([*WIDE, op("sum", ["x"], dtype="float64")], 2.0**26),
    "mse_loss of a view": ([*WIDE, op("mse_loss", ["x", "one"])], 0.0),
    "mse_loss of a broadcast": ([ones("x", 2**14, 1), ones("t", 2**14), op("mse_loss", ["x", "t"])], 0.0),
    "unique of a view": ([ones("one", 1), op("expand", ["one"], "x", size=[3 * 2**21]), op("unique", ["x"])], 1.0),
}


@pytest.mark.parametrize("name", FEASIBLE)
def test_what_fits_in_blocks_is_granted(name: str) -> None:
    program, expected = FEASIBLE[name]
    session = Session(max_bytes=320 * MIB)
    tracemalloc.start()
    try:
        session.run(parse_program(program))
        assert tracemalloc.get_traced_memory()[1] < 200 * MIB
    finally:
        tracemalloc.stop()
    assert np.allclose(session.get("y").numpy().reshape(-1)[:1], expected, rtol=1e-4)


def test_a_kernel_stops_between_blocks() -> None:
    session = Session(max_program_s=0.5)
    session.run(parse_program([ones("x", 4, 16_384, 1)]))
    _assert_stops(session, op("scaled_dot_product_attention", ["x", "x", "x", None]))


def test_a_derivative_stops_between_blocks() -> None:
    session = Session()
    session.run(parse_program([ones("x", 4, 4096, 1), {"op": "requires_grad_", "in": ["x"]}]))
    session.run(parse_program([op("scaled_dot_product_attention", ["x", "x", "x", None]), op("sum", ["y"], "s")]))
    session.max_program_s = 0.2
    _assert_stops(session, {"op": "backward", "in": [["s"]]})


def _assert_stops(session: Session, instruction: dict[str, Any]) -> None:
    start = time.thread_time()  # what other processes take of the machine does not count
    with pytest.raises(TimeLimitExceeded):
        session.run(parse_program([instruction]))
    assert time.thread_time() - start < 4


@pytest.mark.parametrize("name", ["attention", "std over rows", "cdist of the 3.0-norm"])
def test_a_planned_program_gives_the_same_bits(name: str) -> None:
    texts = {
        "attention": op("scaled_dot_product_attention", ["_0", "_0", "_0", None], "_1"),
        "std over rows": op("std", ["_0"], "_1", dim=[0]),
        "cdist of the 3.0-norm": op("cdist", ["_0", "_0"], "_1", p=3.0),
    }
    memory, planner = ProgramCache(), Compiler(2, 16)
    session = Session(memory=memory, compiler=planner)
    shape = (1400, 8) if "attention" not in name else (2, 1500, 8)
    if "std" in name:
        shape = (2000, 3000)
    session.run(parse_program([op("randn", [], "x", size=[*shape])]))
    program = memory.find(memory.read(json.dumps({"instructions": [texts[name]]}), None, 64).digest)
    results = []
    for round in range(4):
        tracemalloc.start()
        session.run(program.bind(["x", f"y{round}"], {}))
        assert tracemalloc.get_traced_memory()[1] < BLOCKS
        tracemalloc.stop()
        results.append(session.get(f"y{round}").numpy().tobytes())
    assert len({*results}) == 1


# Products that are taken a few rows at a time, however their matrices lie in memory ----------------------------------


LAYER, INPUTS = 128, 784
SHAPES = [
    (64, INPUTS, LAYER),
    (67, INPUTS, LAYER),
    (16, 1024, 256),
    (300, 300, 300),
    (1031, 257, 9),
    (2000, 600, 2),
    (5000, 3, 70),
]
"""Of products that are long enough; with rows that are left over, and with results of few columns."""


def matrix(rows: int, columns: int, by_columns: bool, dtype: str, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)
    return np.asfortranarray(values) if by_columns else values


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("left", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize("right", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_product_is_the_product(shape: tuple[int, int, int], left: bool, right: bool, dtype: str) -> None:
    m, k, n = shape
    a, b = matrix(m, k, left, dtype, 1), matrix(k, n, right, dtype, 2)
    found, exact = pieces.dot_in_blocks(a, b), a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert found.dtype == a.dtype and found.flags.c_contiguous
    # Of a sum in any order: eps for each of its terms' magnitudes (Higham, Accuracy and Stability, 3.1).
    bound = k * np.finfo(dtype).eps * (abs(a).astype(float) @ abs(b).astype(float))
    assert (abs(found - exact) <= bound).all()


@pytest.mark.parametrize(
    ("m", "k", "n", "left", "right", "rows"),
    [
        (64, INPUTS, LAYER, False, True, 8),  # of a batch by a weight 8 * 128 elements, at most 1200
        (64, 256, LAYER, False, True, 8),
        (64, 128, LAYER, False, True, 0),  # its rows are short
        (16, 1024, 220, False, True, 4),
        (LAYER, 64, INPUTS, True, False, 16),  # of slopes by the batch 16 * 784 * 64 multiplications, at most a million
        (LAYER, 64, 1024, True, False, 0),
        (256, LAYER, INPUTS, False, False, 8),
        (256, LAYER, 1024, False, False, 0),
        (LAYER, INPUTS, 64, True, True, 0),
    ],
)
def test_so_many_rows_are_taken_at_a_time(m: int, k: int, n: int, left: bool, right: bool, rows: int) -> None:
    a, b = matrix(m, k, left, "float32", 1), matrix(k, n, right, "float32", 2)
    assert pieces.rows_at_a_time(a, b) == rows


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.ones((99, 100), "f"), np.ones((100, 101), "f")),
        (np.ones((640, 200), "f")[::10], np.ones((200, LAYER), "f")),
        (np.ones((64, INPUTS), "f"), np.ones((INPUTS, 4 * LAYER), "f")[:, ::4]),
        (np.ones((64, INPUTS), "f"), np.ones((INPUTS, LAYER))),
        (np.ones((64, INPUTS), "i"), np.ones((INPUTS, LAYER), "i")),
        (np.ones((64, INPUTS), complex), np.ones((INPUTS, LAYER), complex)),
        (np.ones((2, 700), "f"), np.ones((700, 900), "f")),
        (np.ones(2**21, "f"), np.ones((2**21, 2), "f")),
        (np.ones((2**11, 2**10), "f"), np.ones(2**10, "f")),
    ],
    ids=[
        "short",
        "rows apart",
        "columns apart",
        "mixed",
        "whole",
        "complex",
        "wide",
        "a vector",
        "by a vector",
    ],
)
def test_what_gains_nothing_is_what_numpy_makes_of_it(a: Any, b: Any) -> None:
    if a.ndim == b.ndim == 2:
        assert pieces.rows_at_a_time(a, b) == 0
    assert np.array_equal(pieces.dot_in_blocks(a, b), np.dot(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32"])
def test_a_large_product_is_bit_for_bit_what_dot_makes_of_it(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = [rng.standard_normal((300, 300)).astype(dtype) for _ in range(2)]
    for left, right in ((a, b), (a.T, b), (a, b.T), (a.T, b.T), (a, a.T), (a[::2], b[:, :299]), (a[0], b), (a, b[0])):
        assert np.array_equal(pieces.dot_whole(left, right), np.dot(left, right))


def test_a_matrix_by_itself_is_left_to_blas_which_computes_one_half() -> None:
    a = matrix(300, INPUTS, False, "float32", 1)
    assert pieces.rows_at_a_time(a, a.T) == 0 and pieces.rows_at_a_time(a, np.array(a).T)


def losses_and_weights(lib: Any, steps: int) -> list[np.ndarray]:
    """What a classifier of images comes to, whose batches' last is shorter."""
    rng = np.random.default_rng(0)
    first, second = (lib.tensor((rng.standard_normal(s) / 28).astype("f")) for s in ((LAYER, INPUTS), (10, LAYER)))
    parameters = [first.requires_grad_(), second.requires_grad_()]
    optimizer = lib.optim.SGD(parameters, lr=0.1)
    losses = []
    for step in range(steps):
        rows = 37 if step % 3 == 2 else 64
        x, y = lib.tensor(rng.standard_normal((rows, INPUTS)).astype("f")), lib.tensor(rng.integers(0, 10, rows))
        optimizer.zero_grad()
        hidden = lib.nn.functional.linear(x, first).relu()
        loss = lib.nn.functional.cross_entropy(lib.nn.functional.linear(hidden, second), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [np.array(losses), *[np.array(t.detach().tolist()) for p in parameters for t in (p, p.grad)]]


def test_a_planned_step_is_the_eager_one_to_the_last_bit_and_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 12
    whole = losses_and_weights(torch, steps)
    monkeypatch.setitem(vars(NUMPY), "dot", pieces.dot_in_blocks)
    ours: list[list[np.ndarray]] = []
    for compiler in (None, Compiler(after=2, choose=False)):
        session: Remembering = connect(compiler)
        ours.append(losses_and_weights(telegrad, steps))
        if compiler is not None:
            assert runs_planned(session, 4)
        telegrad.current().close()
    eager, planned = ours
    for a, b, theirs in zip(eager, planned, whole, strict=True):
        assert np.array_equal(a, b)
        np.testing.assert_allclose(a, theirs, rtol=1e-4, atol=1e-6)
