"""No number in a call makes an op allocate more than its session may hold, before the call is refused.

Every number of the cases of every op, an attribute or an element of an index tensor, is replaced by huge ones.

Internals: ops are called in the environment that a session's program runs in.
"""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import telegrad_engine as tg
from telegrad_engine.cancellation import CancellationToken, cancelled_by
from telegrad_engine.context import state
from telegrad_engine.errors import TelegradError, TimeLimitExceeded
from telegrad_engine.program import parse_program
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.session.session import Session

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case
from .oracle import Call, arrays_of, build, our_function, with_dtypes

MIB = 2**20
ROOM = 32 * MIB
SLACK = 8 * MIB
"""What tables and code may take in addition."""
HUGE = (2**31 + 1, 2**40, 10**18, 2**62)
SECONDS = 20.0
FACTORIES: dict[str, list[dict[str, Any]]] = {
    "zeros": [{"size": [n]} for n in HUGE] + [{"size": [2**31, 2**31, 4]}],
    "ones": [{"size": [n]} for n in HUGE],
    "full": [{"size": [n], "fill_value": 1} for n in HUGE],
    "empty": [{"size": [n]} for n in HUGE],
    "rand": [{"size": [n]} for n in HUGE],
    "randn": [{"size": [n]} for n in HUGE],
    "randint": [{"low": 0, "high": 9, "size": [n]} for n in HUGE],
    "randperm": [{"n": n} for n in HUGE],
    "arange": [{"start": 0, "end": n} for n in HUGE] + [{"start": 0, "end": 1, "step": 1e-12}],
    "range": [{"start": 0, "end": n} for n in HUGE],
    "eye": [{"n": n} for n in HUGE] + [{"n": 2, "m": n} for n in HUGE],
    "linspace": [{"start": 0, "end": 1, "steps": n} for n in HUGE],
    "logspace": [{"start": 0, "end": 1, "steps": n} for n in HUGE],
    "tril_indices": [{"row": n, "col": n} for n in HUGE],
    "triu_indices": [{"row": n, "col": n} for n in HUGE],
    "hann_window": [{"window_length": n} for n in HUGE],
    "empty_strided": [{"size": [n], "stride": [1]} for n in HUGE],
}
"""Hostile attributes of the ops that make tensors from attributes alone."""


def replaced(value: Any) -> Iterator[Any]:
    """The value with each of its numbers, or all of them, replaced by a huge one."""
    for huge in HUGE:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield huge
        elif isinstance(value, (list, tuple)) and value and all(type(v) is int for v in value):
            yield type(value)([huge] * len(value))
            for index in range(len(value)):
                yield type(value)([*value[:index], huge, *value[index + 1 :]])


def hostile(case: Case) -> Iterator[Call]:
    """Calls of the case, each with hostile numbers in one place."""
    arrays = arrays_of(case, np.dtype(np.float32))

    def built(args: Any = case.args, kwargs: Any = case.kwargs) -> Call:
        return with_dtypes(build(Case(tuple(args), kwargs), arrays, tg.tensor), tg.dtypes)

    for index, value in enumerate(case.args):
        for changed in replaced(value):
            yield built([*case.args[:index], changed, *case.args[index + 1 :]])
    for name, value in case.kwargs.items():
        for changed in replaced(value):
            yield built(kwargs={**case.kwargs, name: changed})
    for key, array in arrays.items():
        if array.dtype == np.int64 and array.size:
            for huge in HUGE:
                arrays[key] = array.copy()
                arrays[key].flat[0] = huge
                yield built()
            arrays[key] = array


def peak(session: Session, op: Op, call: Call) -> int:
    """The bytes that a call takes at most; whether it is refused does not matter."""
    token = CancellationToken()
    token.limit(SECONDS)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        with session.environment.entered(session.accounts.max_bytes, session.accounts), cancelled_by(token):
            state.room = session.accounts.room
            our_function(op)(*call.args, **call.kwargs)
    except TimeLimitExceeded as error:
        raise AssertionError("it does not end") from error
    except (TelegradError, ValueError, TypeError, IndexError, AttributeError):
        pass
    return tracemalloc.get_traced_memory()[1] - before


def measure() -> None:
    """Make all hostile calls, and print what took too much memory."""
    tracemalloc.start()
    made: Counter[str] = Counter()
    for key, op in CATALOGUE.ops.items():
        for case in cases_of(op):
            for call in hostile(case):
                made[key] += 1
                session = Session(max_bytes=ROOM)
                if (taken := peak(session, op, call)) > ROOM + SLACK:
                    print(f"{key}: {taken / MIB:.0f} MiB in {case}", flush=True)
    print(sum(made.values()), "calls of", len(made), "ops")


@pytest.mark.full
def test_no_number_makes_an_op_allocate_more_than_its_session_may_hold() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", __name__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *excesses, last = done.stdout.splitlines()
    assert excesses == []
    assert int(last.split()[0]) > 3000


@pytest.mark.parametrize("op", FACTORIES)
def test_a_factory_refuses_huge_sizes_before_it_allocates(op: str) -> None:
    session = Session(max_bytes=ROOM)
    tracemalloc.start()
    try:
        for attrs in FACTORIES[op]:
            with pytest.raises(TelegradError) as refused:
                session.run(parse_program([{"op": op, "out": ["x"], "attrs": attrs}]))
            assert "required" not in str(refused.value), "the call is not even complete"
        assert tracemalloc.get_traced_memory()[1] < ROOM
    finally:
        tracemalloc.stop()
    assert not session.tensors


if __name__ == "__main__":
    measure()
