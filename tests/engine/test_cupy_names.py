"""Every op's kernels and derivatives on CuPy's face: what they call is there in CuPy, and takes what it is given.

The numbers are NumPy's, so no GPU is needed, only CuPy, which is not installed for most runs (``make test-gpu``
installs it). Whether the GPU computes the same is for ``test_ops.py --device cuda`` to say.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import telegrad_engine as tg
from telegrad_engine import autograd
from telegrad_engine.arrays import NUMPY, make_backend
from telegrad_engine.context import state
from telegrad_engine.devices import Device
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.schema.op import CATALOGUE, Op

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case
from . import oracle
from .cupy_face import Array, Facade, signature_of

cupy = pytest.importorskip("cupy", reason="CuPy is not installed; make test-gpu installs it", exc_type=ImportError)
OPS = [op for op in CATALOGUE if cases_of(op) and not op.truth]
DTYPES = ("float64", "float32", "int64")


@pytest.fixture(scope="module")
def facade() -> Device:
    return Device(Facade())


@pytest.fixture
def there(facade: Device) -> Iterator[Device]:
    previous, state.device = state.device, facade
    yield facade
    state.device = previous


def outcome(op: Op, case: Case, arrays: Any) -> list[Any]:
    """The outputs and the gradients of all inputs, or the Failure, as host arrays."""
    call = oracle.with_dtypes(oracle.build(case, arrays, tg.tensor), tg.dtypes)
    outputs = oracle.attempt(lambda: oracle.our_function(op)(*call.args, **call.kwargs))
    if isinstance(outputs, oracle.Failure):
        return [outputs]
    results = [t._host() for t in outputs]
    starts = [t for t in outputs if t.requires_grad]
    if starts and call.inputs:
        seeds = [tg.tensor(w) for w in oracle.random_like(starts, seed=1)]
        found = oracle.attempt(lambda: list(autograd.grad(starts, call.inputs, seeds, allow_unused=True)))
        results += [found] if isinstance(found, oracle.Failure) else [None if g is None else g._host() for g in found]
    return results


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_cupy_has_what_an_op_uses(op: Op, facade: Device) -> None:
    for case in cases_of(op):
        for dtype in DTYPES:
            try:
                arrays = oracle.arrays_of(case, np.dtype(dtype))
            except (ValueError, OverflowError):
                continue  # the case has no values of this dtype
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = outcome(op, case, arrays)
                with facade.active():
                    found = outcome(op, case, arrays)
            for mine, other in zip(found, expected, strict=True):
                if isinstance(mine, np.ndarray):
                    assert mine.dtype == other.dtype
                    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6, err_msg=repr(case))
                else:
                    assert mine is other or (type(other) is oracle.Failure and mine == other), (mine, case)


# The face itself: what CuPy refuses ------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda xp, x: x + np.ones(3),
        lambda xp, x: np.ones(3) * x,
        lambda xp, x: np.sqrt(x),
        lambda xp, x: np.asarray(x),
        lambda xp, x: xp.exp(np.ones(3)),
        lambda xp, x: xp.add([1.0], x),
        lambda xp, x: xp.sum(x, where=x > 0),
        lambda xp, x: xp.max(x, initial=0.0),
        lambda xp, x: xp.where(True, x, 0.0),
        lambda xp, x: xp.argsort(x, stable=True),
        lambda xp, x: x.sum(initial=0.0),
        lambda xp, x: xp.namespace.add.at(x.astype("int64"), xp.asarray([0]), 1),
        lambda xp, x: xp.sin(x, where=x > 0),
        lambda xp, x: xp.invert(x),
    ],
)
def test_what_cupy_refuses_is_refused(wrong: Any, there: Device) -> None:
    with pytest.raises(TypeError):
        wrong(there.backend, there.backend.asarray([1.0, 2.0, 3.0]))


def test_a_sum_is_an_array(there: Device) -> None:
    total = there.backend.sum(there.backend.asarray([1.0, 2.0]))
    assert isinstance(total, Array)
    assert (total.shape, float(total)) == ((), 3.0)


# The backend ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "bool"]
)
@pytest.mark.parametrize("how", ["add", "maximum", "minimum", "multiply"])
def test_combining_at_repeated_places(dtype: str, how: str, there: Device) -> None:
    kind = tg.dtypes.parse(dtype).numpy
    start, values = np.array([1, 0, 1]).astype(kind), np.array([1, 1, 0, 1]).astype(kind)
    places = np.array([2, 2, 0, 2])
    xp = there.backend
    found = xp.index_combine(xp.upload(start), xp.upload(places), xp.upload(values), how)
    expected = NUMPY.index_combine(start, places, values, how)
    assert found.dtype == kind
    np.testing.assert_array_equal(xp.download(found), expected)


def test_whole_numbers_wrap_around(there: Device) -> None:
    xp = there.backend
    found = xp.index_add(xp.asarray([100, -100], "int8"), xp.asarray([0, 0, 1]), xp.asarray([20, 20, -40], "int8"))
    np.testing.assert_array_equal(xp.download(found), np.array([-116, 116], "int8"))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cuda.Device", ["device"]),
        ("cuda.Event", ["disable_timing"]),
        ("cuda.Stream", []),
        ("cuda.Stream.record", ["event"]),
        ("cuda.Stream.__enter__", []),
        ("cuda.get_current_stream", []),
        ("cuda.alloc_pinned_memory", ["size"]),
        ("cuda.runtime.getDeviceCount", []),
        ("cuda.runtime.getDeviceProperties", ["device"]),
        ("cuda.MemoryPool.used_bytes", []),
        ("get_default_memory_pool", []),
        ("ndarray.set", ["arr"]),
        ("asnumpy", ["a"]),
        ("from_dlpack", ["array"]),
    ],
)
def test_cupy_has_what_streams_use(name: str, parameters: list[str]) -> None:
    function = attrgetter(name)(cupy)
    assert callable(function)
    assert {*parameters} <= {*signature_of(function).parameters}


def test_cupy_has_what_events_and_errors_are() -> None:
    assert hasattr(cupy.cuda.Event, "done")
    assert isinstance(cupy.cuda.Stream.null, cupy.cuda.Stream)
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)


def test_without_a_gpu_the_error_says_so() -> None:
    if cupy.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InvalidOperation, match="device 'cuda' cannot be used here"):
        make_backend("cuda")


def test_an_old_cupy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__="13.6.0", __spec__=cupy.__spec__))
    with pytest.raises(InvalidOperation, match=r"CuPy 14 or later is needed, but 13\.6\.0 is installed"):
        make_backend("cuda")
