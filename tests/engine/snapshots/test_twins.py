"""A session that is restored from its snapshot, and a fork, continue exactly like the session itself.

Internals: the server and the SDK use snapshots and forks, not users; a fork copies small blocks of memory, and here it
shares all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from telegrad_engine.program import Instruction
from telegrad_engine.session import snapshot
from telegrad_engine.session.session import Session
from telegrad_engine.session.snapshot import sharing

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
