"""A fork shares memory with its session, and neither sees what the other does.

Internals: as in test_twins.py, and programs are planned by a compiler that tests make.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from telegrad_engine.compile import Compiler
from telegrad_engine.errors import TelegradError, TooLarge
from telegrad_engine.optim.algorithms import OPTIMIZERS, state_shape
from telegrad_engine.program import Instruction
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.session import snapshot
from telegrad_engine.session.memory_accounting import Quota
from telegrad_engine.session.session import Session
from telegrad_engine.session.snapshot import sharing

from ...op_cases import cases_of
from ...op_cases.stand_ins import T
from ..templates import bound
from .random_programs import Programs, outcome, run, value

MIB = 2**20
IN_PLACE = [op for op in CATALOGUE if op.inplace and cases_of(op)]


@pytest.fixture
def all_memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "SHARED_BYTES", 1)


def assert_separate(session: Session, fork: Session, program: Sequence[Instruction]) -> None:
    """A program changes the session that it runs in and not the other, and both come to the same."""
    before = snapshot.digest(session)
    failures = []
    for first, second in ((fork, session), (session, fork)):
        other = snapshot.digest(second)
        failures.append([type(x) for i in program if isinstance(x := outcome(first, i), tuple)])
        assert snapshot.digest(second) == other, program
    assert failures[0] == failures[1]
    assert snapshot.digest(session) == snapshot.digest(fork)
    if not failures[0]:
        assert snapshot.digest(session) != before


def call_in_place(session: Session, op: Op, args: Sequence[Any], kwargs: dict[str, Any]) -> Instruction | None:
    """The in-place form of a case of an op on tensors of the session; None if the case has none."""
    rng = np.random.default_rng(0)

    def made(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)(made(v) for v in x)
        if not isinstance(x, T):
            return x
        name = session.new_id()
        run(session, ("tensor", [], [name], {"data": x.make(rng, np.dtype(np.float32))}))
        return session.get(name)

    inputs, attrs = op.bind(made(args), made(kwargs), False)
    names = {id(tensor): name for name, tensor in session.tensors.items()}
    named = [names.get(id(x), x) if hasattr(x, "shape") else x for x in inputs]
    return None if any(isinstance(x, tuple) for x in named) else Instruction(f"{op.key}_", named, [], attrs, None, True)


@pytest.mark.usefixtures("all_memory_is_shared")
def test_every_op_in_place_changes_one_of_the_two() -> None:
    assert len(IN_PLACE) > 50
    changed = set()
    for op in IN_PLACE:
        for case in cases_of(op)[:2]:
            session = Session(seed=0)
            try:
                instruction = call_in_place(session, op, case.args, case.kwargs)
            except TelegradError:
                continue
            if instruction is None:
                continue
            fork = snapshot.fork(session)
            before = snapshot.digest(session)
            assert_separate(session, fork, [Instruction("fetch", [()]), instruction])
            if snapshot.digest(session) != before:
                changed.add(op.key)
    assert len(changed) > 50


@pytest.mark.full
@pytest.mark.usefixtures("all_memory_is_shared")
def test_every_optimizer_moves_the_parameters_of_one_of_the_two() -> None:
    for name, algorithm in OPTIMIZERS.items():
        session, shape = Session(seed=0), (4, 4)
        run(session, ("randn", [], ["p"], {"size": shape}), ("requires_grad_", ["p"]), ("square", ["p"], ["q"]))
        run(session, ("sum", ["q"], ["s"]), ("backward", [("s",)]))
        labels = algorithm.states_for(algorithm.defaults)
        for label in labels:
            run(session, ("full", [], [label], {"size": state_shape(label, shape), "fill_value": 0.5}))
        states = tuple((label,) for label in labels)
        step = Instruction("optim_step", [("p",), states], [], {"algorithm": name})
        assert_separate(
            session, snapshot.fork(session), [step, Instruction("zero_grad", [("p",)], [], {"set_to_none": False})]
        )


@pytest.mark.full
@pytest.mark.usefixtures("all_memory_is_shared")
def test_gradients_that_accumulate_data_that_is_set_and_views_stay_apart() -> None:
    session = Session(seed=0)
    run(session, ("randn", [], ["p"], {"size": (4, 4)}), ("requires_grad_", ["p"]), ("square", ["p"], ["q"]))
    run(session, ("sum", ["q"], ["s"]), ("backward", [("s",)], [], {"retain_graph": True}))
    run(session, ("zeros", [], ["x"], {"size": (4, 4)}), ("transpose", ["x"], ["t"], {"dim0": 0, "dim1": 1}))
    run(session, ("as_strided", ["x"], ["o"], {"size": (2, 2), "stride": (1, 1)}))
    for program in (
        [Instruction("backward", [("s",)], [], {"retain_graph": True})],
        [Instruction("set_data", ["x"], [], {"data": np.ones((4, 4), np.float32)})],
        [Instruction("select", ["t"], ["u"], {"dim": 0, "index": 1}), Instruction("add_", ["u", 1.0])],
        [Instruction("narrow", ["x"], ["n"], {"dim": 0, "start": 0, "length": 2}), Instruction("mul_", ["n", "n"])],
        [Instruction("detach", ["x"], ["d"]), Instruction("fill_", ["d", 7.0]), Instruction("free", [("d",)])],
    ):
        assert_separate(session, snapshot.fork(session), program)


@pytest.mark.usefixtures("all_memory_is_shared")
def test_a_checkpoint_sees_what_is_written_to_its_inputs_after_a_fork() -> None:
    def gradient(forked: bool) -> Any:
        session = Session()
        run(session, ("ones", [], ["a"], {"size": (3,)}), ("ones", [], ["b"], {"size": (3,)}))
        run(session, ("ones", [], ["w"], {"size": (3,)}), ("requires_grad_", ["w"]))
        run(session, ("detach", ["a"], ["a2"], {"shares_version": False}))
        run(session, ("detach", ["b"], ["b2"], {"shares_version": False}))
        run(session, ("checkpoint", [("a",)], [], {"checkpoint": "c"}))
        run(session, ("mul", ["w", "a"], ["x"]), ("mul", ["x", "b"], ["y"]), ("square", ["y"], ["z"]))
        run(session, ("end_checkpoint", [], [], {"checkpoint": "c"}), ("sum", ["z"], ["s"]))
        run(session, ("free", [("a", "b", "x", "y", "z")]))
        fork = snapshot.fork(session) if forked else None
        run(session, ("fill_", ["a2", 2.0]), ("fill_", ["b2", 3.0]), ("backward", [("s",)]))
        if fork is not None:
            run(fork, ("backward", [("s",)]))
            np.testing.assert_array_equal(run(fork, ("grad_of", ["w"], ["g"]), ("fetch", [("g",)]))["g"].array, 2.0)
        return run(session, ("grad_of", ["w"], ["g"]), ("fetch", [("g",)]))["g"].array

    np.testing.assert_array_equal(gradient(forked=True), gradient(forked=False))
    np.testing.assert_array_equal(gradient(forked=True), 2 * (2.0 * 3.0) ** 2)


@pytest.mark.usefixtures("all_memory_is_shared")
@pytest.mark.parametrize("seed", range(2))
def test_random_programs_in_three_forks_stay_apart(seed: int) -> None:
    for number in range(5):
        programs, session = Programs(100 * seed + number), Session(seed=0)
        for _ in range(30):
            outcome(session, programs.next())
        everyone = [session, fork := snapshot.fork(session), snapshot.fork(fork)]
        for _ in range(15):
            chosen = programs.random.randrange(3)
            others = [each for i, each in enumerate(everyone) if i != chosen]
            before = [snapshot.digest(each) for each in others]
            outcome(everyone[chosen], programs.next())
            assert [snapshot.digest(each) for each in others] == before


def test_planned_programs_in_two_threads_stay_apart() -> None:
    memory, compiler = ProgramCache(), Compiler(after=2, choose=False)
    session = Session(seed=0, memory=memory, compiler=compiler)
    twin = Session(seed=0, memory=memory, compiler=compiler)
    for each in (session, twin):
        run(each, ("randn", [], ["w"], {"size": (200, 200)}), ("requires_grad_", ["w"]))
        run(each, ("randn", [], ["x"], {"size": (4, 200)}), ("zeros", [], ["m"], {"size": (200, 200)}))
        run(each, ("zeros", [], ["t"], {"size": ()}))

    def train(each: Session, steps: int) -> None:
        for _ in range(steps):
            program = [
                Instruction("matmul", ["x", "w"], ["y"]),
                Instruction("tanh", ["y"], ["z"]),
                Instruction("sum", ["z"], ["s"]),
                Instruction("backward", [("s",)]),
                Instruction("optim_step", [("w",), (("m",), ("t",))], [], {"algorithm": "sgd_momentum"}),
                Instruction("free", [("y", "z", "s")]),
            ]
            each.run(bound(memory, program))
            each.flush()

    for each in (session, twin):
        train(each, 6)
    fork = snapshot.fork(session, memory=memory, compiler=compiler)
    before = snapshot.digest(fork)
    train(session, 3)
    assert snapshot.digest(fork) == before
    train(fork, 3)
    second = snapshot.fork(session, memory=memory, compiler=compiler)
    threads = [threading.Thread(target=train, args=(each, 20)) for each in (session, fork, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    train(twin, 23)
    assert len({snapshot.digest(each) for each in (session, twin, fork, second)}) == 1
    assert compiler.reports(fork)[0].planned_runs > 10


def test_a_fork_of_large_tensors_takes_no_memory_until_one_is_written_to() -> None:
    session = Session()
    for i in range(4):
        run(session, ("zeros", [], [f"x{i}"], {"size": (16 * MIB // 4,)}))
    tracemalloc.start()
    try:
        fork = snapshot.fork(session)
        assert tracemalloc.get_traced_memory()[0] < MIB
        run(fork, ("exp", ["x0"], ["y"]), ("free", [("y",)]))
        assert tracemalloc.get_traced_memory()[0] < MIB
        run(fork, ("add_", ["x1", 1.0]))
        assert 16 * MIB <= tracemalloc.get_traced_memory()[0] < 17 * MIB
        run(fork, ("add_", ["x1", 1.0]))
        assert tracemalloc.get_traced_memory()[0] < 17 * MIB
    finally:
        tracemalloc.stop()
    assert not value(session, "x1").any()
    assert value(fork, "x1").min() == 2


@pytest.mark.full
def test_each_counts_what_it_shares_until_it_frees_it() -> None:
    session = Session()
    run(session, ("zeros", [], ["x"], {"size": (16 * MIB // 4,)}))
    fork = snapshot.fork(session)
    assert session.accounts.used_bytes == fork.accounts.used_bytes == 16 * MIB
    run(session, ("add_", ["x", 1.0]))
    assert session.accounts.used_bytes == fork.accounts.used_bytes == 16 * MIB
    run(fork, ("free", [("x",)]))
    assert (session.accounts.used_bytes, fork.accounts.used_bytes) == (16 * MIB, 0)


@pytest.mark.full
def test_a_fork_needs_room_for_all_that_it_may_copy() -> None:
    quota = Quota(24 * MIB, lambda limit, amount: TooLarge(f"more than {limit}"))
    session = Session(quota=quota)
    run(session, ("zeros", [], ["x"], {"size": (8 * MIB // 4,)}))
    fork = snapshot.fork(session, quota=quota)
    with pytest.raises(TooLarge):
        snapshot.fork(session, max_bytes=4 * MIB)
    run(fork, ("zeros", [], ["y"], {"size": (4 * MIB // 4,)}))
    with pytest.raises(TooLarge):
        snapshot.fork(session, quota=quota)
    run(fork, ("free", [("x", "y")]))
    snapshot.fork(session, quota=quota)
