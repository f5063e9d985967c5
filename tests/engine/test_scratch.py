"""Each op of the catalogue takes no more memory, beside its results, than it declares.

Internals: what an op declares is compared with what it takes.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import telegrad_engine as tg
from telegrad_engine.context import observed_by
from telegrad_engine.errors import TelegradError
from telegrad_engine.instrumentation import Observer, Run
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.tensor.execution import needs

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case, T
from .oracle import arrays_of, build, leaves, our_function, with_dtypes

MIB = 2**20
SIZES = (2_000, 8_000, 32_000)
"""Elements of the largest tensor of a case that is scaled up."""
WAYS = 2
"""How many cases, made longer in one way each, are measured of an op."""
MOST = 4 * MIB
"""Bytes of the largest result of such a case."""
TOLERANCE, CONSTANT = 1.3, 2**18
"""What a kernel may take more than its op declares: a part of it, and what tables, buffers and code take."""


f: Any = tg.functions


def _vector(size: int) -> Any:
    return f.full((size,), 0.5)


def _square(size: int) -> Any:
    """A positive definite matrix."""
    n = math.isqrt(size)
    return f.eye(n) * n + f.ones(n, n)


def _sequences(size: int) -> Any:
    return f.ones(size // 80, 8, 10)


def _ctc(size: int) -> Any:
    whole = {"dtype": tg.dtypes.int64}
    targets, lengths = f.ones(2, 5, **whole), f.full((2,), 5, **whole)
    return f.ctc_loss(f.ones(size // 20, 2, 10), targets, f.full((2,), size // 20, **whole), lengths)


WINDOWS = ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window")
LIKE = ("bernoulli", "empty_like", "poisson", "rand_like", "randn_like")
SIZED = ("empty", "ones", "rand", "randn", "zeros")
OWN: dict[str, Callable[[int], object]] = {
    **{key: lambda size, key=key: getattr(f, key)(size) for key in WINDOWS},
    **{key: lambda size, key=key: getattr(f, key)(_vector(size)) for key in LIKE},
    **{key: lambda size, key=key: getattr(f, key)((size,)) for key in SIZED},
    "adaptive_largest": lambda size: f.adaptive_max_pool1d(f.ones(1, 1, size), 7),
    "arange": lambda size: f.arange(size),
    "arange.end": lambda size: f.arange(end=size),
    "as_strided_scatter": lambda size: f.as_strided_scatter(_vector(size), _vector(size // 2), (size // 2,), (2,)),
    "attend": lambda size: f.scaled_dot_product_attention(*[_sequences(size)] * 3),
    "average": lambda size: f.avg_pool1d(f.ones(1, 1, size), 3),
    "bernoulli.fill": lambda size: _vector(size).bernoulli_(),
    "cauchy": lambda size: _vector(size).cauchy_(),
    "checked_variance": lambda size: f.gaussian_nll_loss(*[_vector(size)] * 3),
    "cholesky": lambda size: f.cholesky(_square(size)),
    "combination_indices": lambda size: f.combinations(_vector(math.isqrt(size))),
    "ctc_losses": lambda size: _ctc(size),
    "diagflat": lambda size: f.diagflat(_vector(math.isqrt(size))),
    "drop": lambda size: f.dropout(_vector(size), 0.5),
    "embedded": lambda size: f.embedding(f.ones((size // 10,), dtype=tg.dtypes.int64), f.ones(10, 10)),
    "exponential": lambda size: _vector(size).exponential_(),
    "eye": lambda size: f.eye(math.isqrt(size)),
    "full": lambda size: f.full((size,), 1.0),
    "geometric": lambda size: _vector(size).geometric_(0.5),
    "gumbel_softmax": lambda size: f.gumbel_softmax(_vector(size), dim=-1),
    "huber_losses": lambda size: f.huber_loss(_vector(size), _vector(size)),
    "largest": lambda size: f.max_pool1d(f.ones(1, 1, size), 3),
    "linalg_tensorinv": lambda size: f.linalg_tensorinv(_square(size), 1),
    "linalg_tensorsolve": lambda size: f.linalg_tensorsolve(_square(size), _vector(math.isqrt(size))),
    "linspace": lambda size: f.linspace(0, 1, size),
    "log_normal": lambda size: _vector(size).log_normal_(),
    "logspace": lambda size: f.logspace(0, 1, size),
    "multinomial": lambda size: f.multinomial(_vector(size), size // 2),
    "batch_norm_with_moments": lambda size: f.batch_norm(f.ones(size // 10, 10), None, None, training=True),
    "normal": lambda size: f.normal(_vector(size), _vector(size)),
    "normal.fill": lambda size: _vector(size).normal_(),
    "normal.size": lambda size: f.normal(0.0, 1.0, (size,)),
    "randint": lambda size: f.randint(0, 9, (size,)),
    "randint.high": lambda size: f.randint(9, (size,)),
    "randint_like": lambda size: f.randint_like(_vector(size), 9),
    "randint_like.low": lambda size: f.randint_like(_vector(size), 0, 9),
    "random": lambda size: _vector(size).random_(),
    "random.between": lambda size: _vector(size).random_(0, 9),
    "randperm": lambda size: f.randperm(size),
    "range": lambda size: f.range(0, size),
    "leaky_drawn": lambda size: f.rrelu(_vector(size), training=True),
    "tril_indices": lambda size: f.tril_indices(math.isqrt(size), math.isqrt(size)),
    "triu_indices": lambda size: f.triu_indices(math.isqrt(size), math.isqrt(size)),
    "unsafe_split_with_sizes": lambda size: f.unsafe_split_with_sizes(_vector(size), [size // 2, size - size // 2]),
    "window_places": lambda size: f.max_pool1d(f.ones(1, 1, size), 3, return_indices=True),
    "uniform": lambda size: _vector(size).uniform_(),
    "empty_strided": lambda size: f.empty_strided((size,), (1,)),
    "empty_permuted": lambda size: f.empty_permuted((size // 10, 10), (1, 0)),
}
"""Calls at a size, of ops whose cases have no tensors that can be made longer, or that are parts of others."""
ONE_SIZE = ("ctc_loss", "split", "unbind", "unsafe_split", "unsafe_chunk", "chunk", "tensor_split")
"""What runs Python for each element, and is measured at the first size alone."""
PARTS = ("_runs", "as_lengths", "bag_places", "gru_layer", "listed", "lstm_layer", "rnn_layer", "unpooled")
NOT_MEASURED: dict[str, str] = {
    **dict.fromkeys(("attend_in_blocks", "cdist_in_blocks", "squared_errors"), "for more than a block: test_blocks.py"),
    **dict.fromkeys(("getitem_scatter", "unstrided", "view_scatter", "ctc_losses_backward"), "in derivatives alone"),
    **dict.fromkeys(PARTS, "measured in the functions of which they are parts"),
    "scalar_tensor": "its result is one number",
}
"""Why an op is not called at three sizes."""


class _TooMuch(Exception):
    """A case that is scaled up makes more than is measured."""


def _scaled(case: Case, dimensions: Callable[[int], Sequence[int]], factor: int) -> Case:
    """The case with some dimensions of all its tensors longer; those with values of their own repeat them."""

    def scale(value: Any) -> Any:
        if isinstance(value, T):
            shape = list(_shape(value))
            factors = [factor if d in dimensions(len(shape)) and n > 1 else 1 for d, n in enumerate(shape)]
            if value.values is not None:
                return T(values=np.tile(value.values, factors), dtype=value.dtype, constant=value.constant)
            shape = [n * f for n, f in zip(shape, factors, strict=True)]
            return T(*shape, low=value.low, high=value.high, dtype=value.dtype, constant=value.constant)
        if isinstance(value, (list, tuple)):
            return type(value)(scale(v) for v in value)
        return value

    return Case(tuple(scale(a) for a in case.args), {k: scale(v) for k, v in case.kwargs.items()})


def _shape(value: T) -> tuple[int, ...]:
    return value.shape if value.values is None else np.shape(value.values)


Call = Callable[[], object]


def _ways(op: Op) -> Iterator[list[Call]]:
    """Calls of the op at three sizes: its own, and its cases with all dimensions, the first or the last one longer."""
    sizes = SIZES[:1] if op.key.startswith(ONE_SIZE) else SIZES
    if op.key in OWN:
        yield [partial(OWN[op.key], size) for size in sizes]
    for case in cases_of(op):
        tensors = [v for v in leaves([*case.args, *case.kwargs.values()]) if isinstance(v, T)]
        largest = max([math.prod(_shape(v)) for v in tensors], default=0)
        if largest < 2:
            continue
        long = max(sum(n > 1 for n in _shape(v)) for v in tensors)
        for dimensions, count in ((range, long), (lambda n: range(min(n, 1)), 1), (lambda n: range(n)[-1:], 1)):
            factors = [max(2, round((size / largest) ** (1 / max(count, 1)))) for size in sizes]
            yield [partial(_call, op, _scaled(case, dimensions, factor)) for factor in factors]


def _call(op: Op, case: Case) -> None:
    call = with_dtypes(build(case, arrays_of(case, np.dtype(np.float32)), tg.tensor, False), tg.dtypes)
    our_function(op)(*call.args, **call.kwargs)


Found = list[tuple[str, int, int]]
"""Of each op that was executed its name, the bytes that it took, and those that it declares."""


@pytest.fixture(scope="module")
def found() -> Iterator[Found]:
    """What is executed in this module, in short."""
    tracemalloc.start()
    try:
        with observed_by(_Measuring()) as measuring:
            yield measuring.found
    finally:
        tracemalloc.stop()


class _Measuring(Observer):
    sees_ops = True

    def __init__(self) -> None:
        self.found: Found = []

    def kernel(self, run: Run, op: Op, arrays: Any, attrs: Any, xp: Any) -> Any:
        specs = op.rule(*arrays, **attrs)
        nbytes = sum(spec.nbytes for spec in (specs if isinstance(specs, list) else [specs]))
        if nbytes > MOST:
            raise _TooMuch
        dtype = None if op.common is None else op.common(tuple(arrays))
        declared = needs(op, arrays, attrs, dtype, nbytes, len(specs) if isinstance(specs, list) else 1)
        if declared > 64 * MIB:
            raise _TooMuch
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = super().kernel(run, op, arrays, attrs, xp)
        self.found.append((op.key, tracemalloc.get_traced_memory()[1] - before, declared))
        return result


def _runs(op: Op, call: Call, found: Found) -> bool:
    """Whether a call runs the op, and not more of it than is measured: attributes may belong to a case's sizes."""
    found.clear()
    try:
        call()
    except (_TooMuch, TelegradError, ValueError, TypeError, IndexError, AttributeError):
        return False
    return op.composite or any(each[0] == op.key for each in found)


def _excess(found: Found) -> Found:
    """What took more than it declares."""
    return [each for each in found if each[1] > TOLERANCE * each[2] + CONSTANT]


@pytest.mark.parametrize("key", CATALOGUE.ops)
def test_what_an_op_takes_is_what_it_declares(key: str, found: Found) -> None:
    op, measured = CATALOGUE.ops[key], 0
    for calls in _ways(op):
        ran = True
        for call in calls:
            ran &= _runs(op, call, found)
            if _excess(found):
                _runs(op, call, found)  # a first call may import a library
                assert not _excess(found)
        measured += ran
        if measured == WAYS:
            break
    assert (measured > 0) is (key not in NOT_MEASURED)
