"""Errors that depend on values are raised where the user's code catches them; the SDK waits for them nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import threading
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import telegrad as tg
from telegrad_engine.schema.op import CATALOGUE

from ..refused_calls import REFUSED
from .parity import bodies, same

Call = Callable[[], Any]
ERRORS = (RuntimeError, IndexError, ValueError)
TIMES = 3
"""The second time, a call is recorded in a shorter way."""


def in_a_try(call: Call) -> type[Exception] | None:
    try:
        call()
    except RuntimeError:
        return RuntimeError
    except (IndexError, ValueError) as error:
        return IndexError if isinstance(error, IndexError) else ValueError
    return None


class Ways:
    """Ways to catch the error of a call."""

    def in_a_bare_try(call: Any) -> type[Exception] | None:
        try:
            call()
        except:  # noqa: E722
            return Exception
        return None

    def in_a_group(call: Any) -> type[Exception] | None:
        found = None
        try:
            call()
        except* ERRORS:
            found = Exception
        return found

    def suppressed(call: Any) -> type[Exception] | None:
        with contextlib.suppress(*ERRORS):
            call()
            return None
        return Exception

    def suppressed_further_out(call: Any) -> type[Exception] | None:
        with contextlib.suppress(*ERRORS), tg.no_grad():
            try:
                with open(os.devnull):
                    call()
                    return None
            finally:
                pass
        return Exception

    def raised(call: Any) -> type[Exception] | None:
        with pytest.raises(ERRORS):
            call()
        return Exception

    def two_frames_up(call: Any) -> type[Exception] | None:
        def between() -> None:
            [call() for _ in range(1)]

        try:
            between()
        except ERRORS:
            return Exception
        return None

    def around_a_generator(call: Any) -> type[Exception] | None:
        def steps() -> Iterator[Any]:
            yield call()

        try:
            next(steps())
        except ERRORS:
            return Exception
        return None

    def swallowed_by_a_context_of_the_users(call: Any) -> type[Exception] | None:
        with swallowing():
            call()
            return None
        return Exception

    def called_by_raises(call: Any) -> type[Exception] | None:
        pytest.raises(ERRORS, call)  # noqa: RUF061
        return Exception

    def called_by_unittest(call: Any) -> type[Exception] | None:
        unittest.TestCase().assertRaises(ERRORS, call)
        return Exception

    def in_a_context_of_unittest(call: Any) -> type[Exception] | None:
        case = unittest.TestCase()
        with case.assertRaises(ERRORS):
            call()
            return None
        return Exception

    def in_a_try_for_errors_of_an_object(call: Any) -> type[Exception] | None:
        known = Tolerant()
        try:
            call()
        except known.errors:
            return Exception
        return None

    def in_a_coroutine(call: Any) -> type[Exception] | None:
        async def inner() -> None:
            call()

        async def outer() -> type[Exception] | None:
            try:
                await inner()
            except ERRORS:
                return Exception
            return None

        return asyncio.run(outer())

    def in_a_try_with_a_long_expression(call: Any) -> type[Exception] | None:
        try:
            call()
        except (chosen(more=True) if TIMES else ERRORS) or KeyError:  # noqa: B030
            return Exception
        return None

    def translated(call: Any) -> type[Exception] | None:
        try:
            with Translating():
                call()
        except LookupError:
            return Exception
        return None

    def swallowed_by_a_decorator(call: Any) -> type[Exception] | None:
        @swallowing()
        def decorated() -> type[Exception] | None:
            call()
            return KeyError

        return None if decorated() else Exception


@contextlib.contextmanager
def swallowing() -> Iterator[None]:
    try:  # noqa: SIM105
        yield
    except ERRORS:
        pass


class Tolerant:
    errors = ERRORS


def chosen(more: bool = False) -> tuple[type[Exception], ...]:
    return ERRORS if more else ERRORS[:1]


class Translating:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            raise LookupError(str(error)) from error


WAYS = [in_a_try, *bodies(Ways)]


def test_all_ops_that_values_may_refuse_are_tested() -> None:
    assert set(REFUSED) == {op.key for op in CATALOGUE if op.may_raise}


@pytest.mark.every
@pytest.mark.parametrize("key", REFUSED)
def test_an_error_is_raised_where_it_is_caught(session: tg.Session, key: str) -> None:
    expected = in_a_try(lambda: REFUSED[key](torch))
    assert expected is not None
    for _ in range(TIMES):
        assert in_a_try(lambda: REFUSED[key](tg)) is expected
    for way in WAYS:
        assert way(lambda: REFUSED[key](tg)) is not None, way
    assert tg.ones(2).sum().item() == 2.0  # nothing is left of the errors


@pytest.mark.every
@pytest.mark.parametrize("key", REFUSED)
def test_an_error_that_nobody_catches_comes_with_the_next_value(session: tg.Session, key: str) -> None:
    before = session.recorder.waits
    for _ in range(TIMES):
        result = REFUSED[key](tg)
    assert session.recorder.waits == before
    with pytest.raises(ERRORS):
        (result[0] if isinstance(result, tuple) else result).tolist()


# Other ways to record an op ---------------------------------------------------------------------------


def far() -> Any:
    """An index whose value is not known here, beyond the end of the tensors below."""
    return tg.tensor([5]) + 0


def written() -> None:
    x = tg.zeros(3)
    x[far()] = 1.0


def written_by_a_method() -> None:
    tg.zeros(3).index_fill_(0, far(), 1.0)


def divided_in_place() -> None:
    x = tg.ones(1, dtype=tg.int64)
    x //= tg.zeros(1, dtype=tg.int64)


def checkpointed() -> None:
    x = tg.zeros(3, requires_grad=True)
    tg.utils.checkpoint.checkpoint(lambda x: x[far()], x, use_reentrant=False)


def in_a_hook() -> None:
    x = tg.zeros(3, requires_grad=True)
    x.register_hook(lambda grad: grad[far()])
    (x * 2).sum().backward()


def under_vmap() -> None:
    tg.func.vmap(lambda x: tg.linalg.cholesky(x))(tg.zeros(2, 3, 3))


def drawn_with_a_generator() -> None:
    tg.bernoulli(tg.ones(2) * 2, generator=tg.Generator().manual_seed(1))


def in_anomaly_mode() -> None:
    with tg.autograd.set_detect_anomaly(True):
        (tg.zeros(1, requires_grad=True) * 0.0).sqrt().sum().backward()


@pytest.mark.every
@pytest.mark.parametrize(
    "call",
    [
        written,
        written_by_a_method,
        divided_in_place,
        checkpointed,
        in_a_hook,
        under_vmap,
        drawn_with_a_generator,
        pytest.param(in_anomaly_mode, marks=pytest.mark.filterwarnings("ignore:Error detected")),
    ],
)
def test_other_calls(session: tg.Session, call: Call) -> None:
    for _ in range(TIMES):
        assert in_a_try(call) is not None
    assert tg.ones(2).sum().item() == 2.0


def test_a_failed_write_leaves_no_trace(session: tg.Session) -> None:
    x = tg.arange(3.0)
    for _ in range(TIMES):
        with contextlib.suppress(IndexError):
            x[far()] = 1.0
    assert x._version == 0 and x.tolist() == [0.0, 1.0, 2.0]


def test_a_compiled_function(session: tg.Session) -> None:
    @tg.compile
    def picked(x: Any, i: Any) -> Any:
        return x[i] * 2

    x, good = tg.arange(3.0), tg.tensor([1]) + 0
    for _ in range(TIMES):
        assert in_a_try(lambda: picked(x, far())) is IndexError
        assert picked(x, good).tolist() == [2.0]
    before = session.recorder.waits
    results = [picked(x, good) for _ in range(TIMES)]
    assert session.recorder.waits == before and results[-1].tolist() == [2.0]


def test_a_registered_function(session: tg.Session) -> None:
    tg.register_function("factored", lambda x: tg.linalg.cholesky(x))
    for _ in range(TIMES):
        assert in_a_try(lambda: tg.ops.factored(tg.zeros(2, 2))) is RuntimeError
    before = session.recorder.waits
    for _ in range(TIMES):
        result = tg.ops.factored(tg.ones(1, 1))
    assert session.recorder.waits == before and result.tolist() == [[1.0]]


def test_more_jitter_until_a_matrix_can_be_factored(session: tg.Session) -> None:
    def factored(lib: Any) -> Any:
        matrix, jitter, tries = lib.ones(3, 3) - 0.1 * lib.eye(3), 0.001, 0
        while True:
            try:
                factor = lib.linalg.cholesky(matrix + jitter * lib.eye(3))
                break
            except RuntimeError:
                jitter, tries = jitter * 10, tries + 1
        return factor, tries

    assert same(factored)[1] > 0


# Where there is no wait -------------------------------------------------------------------------------


class Around:
    """What may be around a call, without anybody who catches its errors."""

    def without_anything(step: Any) -> None:
        step()

    def with_contexts_that_swallow_nothing(step: Any) -> None:
        with (
            tg.no_grad(),
            open(os.devnull),
            threading.Lock(),
            tg.autocast("cpu", **OFF),
            warnings.catch_warnings(),
            timed(),
            Progress(**OFF),
        ):
            step()

    def with_contexts_of_an_object(step: Any) -> None:
        library = Library()
        with library.autocast(), library.profiler.record("step"):
            step()

    def with_a_finally(step: Any) -> None:
        try:
            step()
        finally:
            timed()

    def with_handlers_for_other_errors(step: Any) -> None:
        try:
            step()
        except KeyboardInterrupt:
            raise
        except (ImportError, StopIteration):
            pass

    def in_a_handler(step: Any) -> None:
        try:
            raise ValueError
        except ValueError:
            step()

    def behind_a_try(step: Any) -> None:
        try:
            pass
        except RuntimeError:
            pass
        else:
            step()

    def in_a_coroutine_without_a_try(step: Any) -> None:
        async def run() -> None:
            step()

        asyncio.run(run())

    def in_a_thread(step: Any) -> None:
        try:
            thread = threading.Thread(target=step)
            thread.start()
            thread.join()
        except RuntimeError:
            pass


class Library:
    def __init__(self) -> None:
        self.profiler = self

    def autocast(self) -> Any:
        return timed()

    def record(self, name: str) -> Any:
        return timed()


OFF: dict[str, Any] = {"enabled": False}


@contextlib.contextmanager
def timed() -> Iterator[None]:
    try:
        yield
    finally:
        pass


class Progress:
    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        if self.enabled:
            print("done")


@pytest.mark.every
@pytest.mark.parametrize("around", bodies(Around), ids=lambda around: around.__name__)
def test_no_wait_where_nobody_catches(session: tg.Session, around: Callable[[Call], None]) -> None:
    x, i = tg.arange(4.0), tg.tensor([1, 2]) + 0
    found = []

    def step() -> None:
        found.append(x[i].sum() + x.gather(0, i).sum())

    before = session.recorder.waits
    for _ in range(10):
        around(step)
    assert session.recorder.waits == before
    assert found[-1].item() == 6.0


def test_a_wait_for_each_op_in_a_try(session: tg.Session) -> None:
    x, i = tg.arange(4.0), tg.tensor([1, 2]) + 0
    before = session.recorder.waits
    for _ in range(10):
        try:
            total = (x[i] * 2).sum()
        except IndexError:
            raise AssertionError from None
    assert session.recorder.waits == before + 10
    assert total.item() == 6.0


def test_values_that_are_known_here_need_no_wait(session: tg.Session) -> None:
    def trained(lib: Any) -> Any:
        weight = lib.ones(4, 2, requires_grad=True)
        for step in range(4):
            try:
                rows = lib.nn.functional.embedding(lib.tensor([step, 1]), weight)
                loss = lib.nn.functional.cross_entropy(rows, lib.tensor([0, 1]))
                loss.backward()
            except IndexError:
                raise AssertionError from None
        return weight.grad

    before = session.recorder.waits
    grad = trained(tg)
    assert session.recorder.waits == before
    torch.testing.assert_close(torch.tensor(grad.tolist()), trained(torch))


# Code of libraries ------------------------------------------------------------------------------------


@pytest.fixture
def library(tmp_path: Path) -> ModuleType:
    """An installed package that is written for torch's API."""
    path = tmp_path / "site-packages" / "gaussian.py"
    path.parent.mkdir()
    path.write_text(
        "def safely(factor, matrix):\n"
        "    try:\n"
        "        return factor(matrix)\n"
        "    except RuntimeError:\n"
        "        return None\n"
    )
    spec = importlib.util.spec_from_file_location("gaussian", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_library_catches_the_errors_of_its_own_calls(session: tg.Session, library: ModuleType) -> None:
    for _ in range(TIMES):
        assert library.safely(tg.linalg.cholesky, tg.zeros(2, 2)) is None


def test_a_library_that_runs_the_users_code_is_no_reason_to_wait(session: tg.Session, library: ModuleType) -> None:
    before = session.recorder.waits
    for _ in range(TIMES):
        assert library.safely(lambda matrix: tg.linalg.cholesky(matrix), tg.ones(1, 1)) is not None
    assert session.recorder.waits == before
