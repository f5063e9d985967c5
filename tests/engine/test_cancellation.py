"""Programs that are stopped: by a deadline, or by another thread.

Internals: programs are stopped by a token, which only a session's host has.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from telegrad_engine.cancellation import CancellationToken, cancelled_by
from telegrad_engine.errors import Cancelled, TimeLimitExceeded
from telegrad_engine.program import parse_program
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.session.session import Session

BIG = {"op": "ones", "out": ["x"], "attrs": {"size": [400, 400]}}


def endless(instructions: int = 20_000) -> list[dict[str, Any]]:
    return [{"op": "matmul", "in": ["x", "x"]}] * instructions


FOREVER_CONDITION = {
    "inputs": ["a"],
    "instructions": [
        {"op": "sum", "in": ["a"], "out": ["s"]},
        {"op": "gt", "in": ["s", -1.0], "out": ["goes_on"]},
    ],
    "outputs": ["goes_on"],
}
FOREVER_BODY = {
    "inputs": ["a"],
    "instructions": [
        {"op": "matmul", "in": ["a", "a"], "out": ["c"]},
        {"op": "sigmoid", "in": ["c"], "out": ["b"]},
    ],
    "outputs": ["b"],
}
FOREVER_STEP = {
    "op": "while_loop",
    "in": [["x"]],
    "out": ["y"],
    "attrs": {"cond": FOREVER_CONDITION, "body": FOREVER_BODY},
}
FOREVER = {"name": "forever", "forward": {"inputs": ["x"], "instructions": [FOREVER_STEP], "outputs": ["y"]}}


def test_a_program_that_takes_too_long_is_stopped_and_the_session_goes_on() -> None:
    session = Session(max_program_s=0.3)
    session.run(parse_program([BIG]))
    with pytest.raises(TimeLimitExceeded, match=r"0\.3 seconds") as caught:
        session.run(parse_program(endless()))
    assert 0 < caught.value.context["instruction"] < 20_000
    assert session.run(parse_program([{"op": "fetch", "in": [["x"]]}])).values["x"].array.shape == (400, 400)


def test_a_loop_that_never_ends_is_stopped() -> None:
    session = Session(max_program_s=0.3)
    session.run(parse_program([{"op": "register_function", "attrs": {"definition": FOREVER}}]))
    session.run(parse_program([BIG]))
    with pytest.raises(TimeLimitExceeded):
        session.run(parse_program([{"op": "apply", "in": [["x"]], "out": ["y"], "attrs": {"function": "forever"}}]))


def test_a_long_backward_pass_is_stopped() -> None:
    token = CancellationToken()
    session = Session(memory=ProgramCache())
    setup = [BIG, {"op": "requires_grad_", "in": ["x"]}]
    steps = [{"op": "mul", "in": [f"y{i}" if i else "x", 1.0], "out": [f"y{i + 1}"]} for i in range(3000)]
    end = [{"op": "sum", "in": ["y3000"], "out": ["s"]}]
    session.run(parse_program([*setup, *steps, *end]))
    started = threading.Event()

    def cancel() -> None:
        started.wait(30)
        token.cancel("enough")

    session.get("y2999").register_hook(lambda grad: started.set())
    thread = threading.Thread(target=cancel)
    thread.start()
    with cancelled_by(token), pytest.raises(Cancelled, match="enough"):
        for _ in range(1000):
            session.run(parse_program([{"op": "backward", "in": [["s"]], "attrs": {"retain_graph": True}}]))
    thread.join()


def test_nothing_runs_under_a_cancelled_token() -> None:
    token = CancellationToken()
    token.cancel("over")
    session = Session()
    with cancelled_by(token), pytest.raises(Cancelled, match="over"):
        session.run(parse_program([BIG]))
    assert not session.tensors
    session.run(parse_program([BIG]))
