"""A session that is restored from its snapshot, and a fork, continue like the session itself, and apart from it.

Internals: the server and the SDK use snapshots and forks, not users; a fork copies small blocks of memory, and here it
shares all; programs are planned by a compiler that tests make.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
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
from .random_programs import SWISH, Programs, outcome, run, value

STEPS = 60
MAX_TWINS = 4


@pytest.fixture(autouse=True)
def all_memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "SHARED_BYTES", 1)


def twins_of(session: Session) -> list[Session]:
    return [snapshot.restore(snapshot.save(session)), snapshot.fork(session)]


def follow(seed: int) -> None:
    """Run a random program in a session and in twins that are made on the way; all must stay the same."""
    programs, sessions = Programs(seed), [Session(seed=seed)]
    for _ in range(STEPS):
        instruction = programs.next()
        found = [outcome(session, instruction) for session in sessions]
        assert all(each == found[0] for each in found), instruction
        if programs.random.random() < 0.1:
            origin = programs.random.choice(sessions)
            content = bytes(snapshot.save(origin))
            made = snapshot.restore(content) if programs.random.random() < 0.5 else snapshot.fork(origin)
            assert bytes(snapshot.save(made)) == content == bytes(snapshot.save(origin))
            sessions = [sessions[0], *sessions[1:][-MAX_TWINS:], made]
    assert len({snapshot.digest(session) for session in sessions}) == 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.every
def test_twins_of_random_programs_stay_the_same(seed: int) -> None:
    for number in range(10):
        follow(10 * seed + number)


@pytest.mark.full
def test_twins_of_many_random_programs_stay_the_same() -> None:
    for number in range(200):
        follow(1000 + number)


def test_a_network_goes_on_between_forward_and_backward() -> None:
    sizes = (20, 16, 4)
    forward: list[tuple[Any, ...]] = [
        ("matmul", ["x", "w0"], ["a"]),
        ("relu", ["a"], ["b"]),
        ("dropout", ["b"], ["c"], {"p": 0.5}),
        ("matmul", ["c", "w1"], ["o"]),
        ("cross_entropy", ["o", "y"], ["loss"]),
    ]
    states = (("m0", "m1"), ("v0", "v1"), ("t0", "t1"))
    backward: list[tuple[Any, ...]] = [
        ("backward", [("loss",)]),
        ("optim_step", [("w0", "w1"), states], [], {"algorithm": "adam"}),
        ("zero_grad", [("w0", "w1")]),
        ("free", [("a", "b", "c", "o", "loss")]),
    ]
    session = Session(seed=0)
    run(session, ("randn", [], ["x"], {"size": (8, 20)}), ("randint", [], ["y"], {"low": 0, "high": 4, "size": (8,)}))
    for i, size in enumerate(pairwise(sizes)):
        run(session, ("randn", [], [f"w{i}"], {"size": size}), ("requires_grad_", [f"w{i}"]))
        run(session, ("zeros", [], [f"m{i}"], {"size": size}), ("zeros", [], [f"v{i}"], {"size": size}))
        run(session, ("zeros", [], [f"t{i}"], {"size": ()}))
    run(session, *forward, *backward, *forward)
    everyone = [session, *twins_of(session)]
    for each in everyone:
        for _ in range(3):
            run(each, *backward, *forward)
    assert len({snapshot.digest(each) for each in everyone}) == 1
    assert len({value(each, "loss").tobytes() for each in everyone}) == 1


@pytest.mark.full
def test_second_derivatives_go_on() -> None:
    session = Session()
    run(session, ("tensor", [], ["x"], {"data": [0.5, 2.0], "requires_grad": True}), ("exp", ["x"], ["y"]))
    run(session, ("sum", ["y"], ["s"]), ("grad", [("s",), ("x",)], ["g"], {"create_graph": True}))
    for twin in twins_of(session):
        run(twin, ("sum", ["g"], ["z"]), ("backward", [("z",)]), ("grad_of", ["x"], ["h"]))
        np.testing.assert_array_equal(value(twin, "h"), np.exp(np.array([0.5, 2.0], np.float32)))


@pytest.mark.full
def test_a_view_still_shares_its_base() -> None:
    session = Session()
    run(session, ("zeros", [], ["x"], {"size": (2, 3)}), ("select", ["x"], ["row"], {"dim": 0, "index": 1}))
    for twin in twins_of(session):
        run(twin, ("add_", ["row", 1.0]), ("transpose", ["x"], ["t"], {"dim0": 0, "dim1": 1}), ("mul_", ["t", 3.0]))
        assert value(twin, "x").tolist() == [[0, 0, 0], [3, 3, 3]]
        assert value(twin, "row").tolist() == [3, 3, 3]
    assert not value(session, "x").any()


@pytest.mark.full
def test_a_saved_tensor_that_was_modified_raises_the_same_error() -> None:
    session = Session()
    run(session, ("tensor", [], ["x"], {"data": [1.0], "requires_grad": True}), ("exp", ["x"], ["y"]))
    run(session, ("sum", ["y"], ["s"]), ("add_", ["y", 1.0]))
    expected = outcome(session, Instruction("backward", [("s",)]))
    assert "is at version 1; expected version 0" in expected[1]
    for twin in twins_of(session):
        assert outcome(twin, Instruction("backward", [("s",)])) == expected


def test_a_function_of_the_server_comes_along_with_the_graph_that_it_made() -> None:
    session = Session()
    run(session, ("tensor", [], ["x"], {"data": [1.0, -2.0], "requires_grad": True}))
    run(session, ("register_function", [], [], {"definition": SWISH, "scope": "session"}))
    run(session, ("apply", [("x",)], ["y"], {"function": "swish"}), ("remove_function", [], [], {"name": "swish"}))
    twins = twins_of(session)
    for each in (session, *twins):
        run(each, ("sum", ["y"], ["s"]), ("backward", [("s",)]), ("grad_of", ["x"], ["g"]))
    assert len({value(each, "g").tobytes() for each in (session, *twins)}) == 1


@pytest.mark.full
def test_what_the_client_evaluates_is_awaited_again() -> None:
    session = Session()
    run(session, ("tensor", [], ["x"], {"data": [1.0, 2.0], "requires_grad": True}), ("exp", ["x"], ["y"]))
    run(session, ("client_hook", ["y"], [], {"hook": "mine"}), ("sum", ["y"], ["s"]))
    for twin in twins_of(session):
        pending = twin.run([Instruction("backward", [("s",)])]).pending
        assert pending is not None
        assert (pending["kind"], pending["ctx"]) == ("hook", "mine")
        run(twin, ("tensor", [], ["r"], {"data": [1.0, 0.0]}), ("resume", [("r",)], [], {"call": pending["call"]}))
        run(twin, ("grad_of", ["x"], ["g"]))
        assert value(twin, "g").tolist()[1] == 0


@pytest.mark.full
def test_a_session_that_waits_for_its_client_is_refused_until_it_goes_on() -> None:
    session = Session()
    run(session, ("tensor", [], ["x"], {"data": [1.0], "requires_grad": True}), ("exp", ["x"], ["y"]))
    run(session, ("client_hook", ["y"], [], {"hook": "mine"}), ("sum", ["y"], ["s"]))
    assert snapshot.refusal(session) is None
    pending = session.run([Instruction("backward", [("s",)])]).pending
    assert pending is not None
    reason = snapshot.refusal(session)
    assert reason is not None
    assert "resume or cancel" in reason
    for function in (snapshot.save, snapshot.fork):
        with pytest.raises(NotImplementedError, match="resume or cancel"):
            function(session)
    run(session, ("cancel", [], [], {"call": pending["call"]}))
    assert snapshot.refusal(session) is None


@pytest.mark.full
def test_a_session_whose_profile_runs_is_refused() -> None:
    session = Session()
    run(session, ("start_profile", []))
    assert "stop the profile" in str(snapshot.refusal(session))
    run(session, ("stop_profile", []))
    assert snapshot.refusal(session) is None


# Forks, which share memory with their sessions -----------------------------------------------------------------------


MIB = 2**20
IN_PLACE = [op for op in CATALOGUE if op.inplace and cases_of(op)]


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
