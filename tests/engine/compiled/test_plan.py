"""Plans of tapes: whatever calls they come from, what they leave is what the calls gave, and nothing else changes.

Internals: plans are made of random tapes, most of which no op would leave.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad_engine import Tensor
from telegrad_engine.arrays.numpy_tracer import Tape, TapingBackend
from telegrad_engine.arrays.symbolic import Untraceable
from telegrad_engine.compile.effects import ArraySource
from telegrad_engine.compile.plan import Planner

N = 3
NO_EFFECTS: Any = None
STEPS = [
    lambda xp, a, b, g: a + b,
    lambda xp, a, b, g: a * 2.0 - b,
    lambda xp, a, b, g: xp.maximum(a, b),
    lambda xp, a, b, g: -a,
    lambda xp, a, b, g: a.T,
    lambda xp, a, b, g: xp.reshape(a, (N, N)),
    lambda xp, a, b, g: a[::-1],
    lambda xp, a, b, g: xp.matmul(a, b) / N,
    lambda xp, a, b, g: a - a.sum(axis=0, keepdims=True) / N,
    lambda xp, a, b, g: xp.where(a > b, a, b * 0.5),
    lambda xp, a, b, g: xp.concatenate([a[:1], b[1:]]),
    lambda xp, a, b, g: xp.broadcast_to(a[0], (N, N)),
    lambda xp, a, b, g: xp.split(xp.concatenate([a, b]), 2)[1],
    lambda xp, a, b, g: a - xp.asarray(g.standard_normal((N, N))).astype(np.float32),
    lambda xp, a, b, g: a.astype(np.float64).astype(np.float32),
]
"""What one call may be, on two arrays of N x N and a generator."""


def calls(xp: Any, given: list[Any], generator: Any, seed: int) -> list[Any]:
    """What some calls give, each on any of what is there before it."""
    rng = np.random.default_rng(seed)
    there = list(given)
    for _ in range(rng.integers(1, 16)):
        a, b = rng.integers(len(there), size=2)
        there.append(STEPS[rng.integers(len(STEPS))](xp, there[a], there[b], generator))
    return there


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_a_plan_leaves_what_the_calls_gave(first: int) -> None:
    for seed in range(first, first + 50):
        run_as_plan(seed)


def run_as_plan(seed: int) -> None:
    """Compare what the calls of this seed give one by one and as a plan."""
    rng = np.random.default_rng([seed, 1])
    traced, values = rng.standard_normal((2, 3, N, N)).astype(np.float32)
    backend = TapingBackend()
    there = calls(backend, [backend.tape.input(x) for x in traced], backend.tape.generator(), seed)
    eager, own = np.random.default_rng(seed), np.random.default_rng(seed)
    expected = [np.array(x) for x in calls(np, [*values], eager, seed)]
    wanted = [int(i) for i in rng.choice(np.arange(3, len(there)), size=min(4, len(there) - 3), replace=False)]
    # Some outputs are kept, and each of the others is written to an input of its own.
    targets = dict(zip(range(len(wanted)), rng.permutation(3)[: rng.integers(0, 4)].tolist(), strict=False))
    planned = Planner(backend.tape, 4, [there[i] for i in wanted], [], targets).plan(NO_EFFECTS)
    given = [np.array(x) for x in values]
    run = planned.run(given, (), own)
    assert run is not None
    assert own.bit_generator.state == eager.bit_generator.state
    np.testing.assert_array_equal(given, values)
    kept = {i: run.array(ArraySource(True, p)) for p, i in enumerate(wanted) if p not in targets}
    writes = [run.write(ArraySource(True, p), Tensor(given[target])) for p, target in targets.items()]
    for write in writes:
        write()
    for i, array in kept.items():
        np.testing.assert_array_equal(array, expected[i], err_msg=f"seed {seed}")
        assert array.flags.writeable or 0 in array.strides  # what was spread out stays so
        assert not any(np.may_share_memory(array, x) for x in given)
    for p, target in targets.items():
        np.testing.assert_array_equal(given[target], expected[wanted[p]], err_msg=f"seed {seed}")
    arrays = list(kept.values())
    assert not any(np.may_share_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_a_result_that_is_the_same_each_time_may_be_changed() -> None:
    backend = TapingBackend()
    backend.tape.generator()
    plan = Planner(backend.tape, 1, [np.ones(3)], [], {}).plan(NO_EFFECTS)
    generator = np.random.default_rng()
    for _ in range(3):
        run = plan.run([], (), generator)
        assert run is not None
        kept = run.array(ArraySource(True, 0))
        assert kept.tolist() == [1, 1, 1]
        kept += 1


def test_what_nothing_needs_is_not_computed() -> None:
    backend = TapingBackend()
    x = backend.tape.input(np.ones(4, np.float32))
    _ = x.sum() + 1
    y = (x * 2 + 1) * 3  # type: ignore[operator]
    plan = Planner(backend.tape, 1, [y], [], {}).plan(NO_EFFECTS)
    assert len(plan) == 3
    places = plan.run_calls([np.arange(4, dtype=np.float32)])
    assert places is not None and len(places) == 6  # the input, three numbers, nothing, and one array for all results


def test_a_guard_that_does_not_hold_stops_it() -> None:
    backend = TapingBackend()
    x = backend.tape.input(np.ones(3))
    assert backend.holds((x > 0).all()) and not backend.holds((x > 5).any())  # type: ignore[attr-defined, operator]
    plan = Planner(backend.tape, 1, [x * 2], backend.guards, {}).plan(NO_EFFECTS)  # type: ignore[operator]
    assert plan.run_calls([np.full(3, 2.0)]) is not None
    assert plan.run_calls([np.array([1.0, -1.0, 1.0])]) is None and plan.run_calls([np.array([1.0, 9.0, 1.0])]) is None


@pytest.mark.parametrize(
    "use",
    [
        bool,
        float,
        int,
        np.asarray,
        lambda x: [1, 2, 3][x[0]],
        lambda x: x.tolist(),
        lambda x: x.item(),
        lambda x: np.nonzero(x),
        lambda x: np.unique(x),
        lambda x: np.where(x > 0),
        lambda x: x[x > 0],
        lambda x: np.add(x, 1, out=np.zeros(3)),
        lambda x: np.add.at(np.zeros(3), [0], x),
        lambda x: np.zeros(3)[x],
        lambda x: np.zeros(3).__setitem__(0, x[0]),
    ],
    ids=range(15),
)
def test_nobody_acts_on_values(use: Any) -> None:
    x = Tape().input(np.array([1, 2, 0]))
    with pytest.raises(Exception):  # noqa: B017 - whichever: the program then runs one instruction at a time
        use(x)


def test_what_is_large_is_made_each_time_and_not_kept() -> None:
    backend = TapingBackend()
    x = backend.tape.input(np.ones(500_000, np.float32))
    plan = Planner(backend.tape, 1, [x + backend.ones(500_000, np.float32)], [], {}).plan(NO_EFFECTS)
    assert len(plan) == 2
    backend = TapingBackend()
    x = backend.tape.input(np.ones(500_000, np.float32))
    with pytest.raises(Untraceable, match="large constants"):
        Planner(backend.tape, 1, [x + np.ones(500_000, np.float32)], [], {}).plan(NO_EFFECTS)
