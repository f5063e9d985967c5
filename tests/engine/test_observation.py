"""How often the programs of a session are observed.

Internals: in the engine, programs that recur and what is observed of a session have no other names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from telegrad_engine.inspection.observation import Observation
from telegrad_engine.program import parse_program
from telegrad_engine.program.program import BoundProgram
from telegrad_engine.session.session import Session

STEP = {
    "instructions": [
        {"op": "mul", "inputs": ["_0", "_0"], "outputs": ["_1"]},
        {"op": "sum", "inputs": ["_1"], "outputs": ["_2"]},
        {"op": "backward", "inputs": [["_2"]]},
        {"op": "free", "inputs": [["_1", "_2"]]},
    ]
}


class Observed:
    """A session that is observed, with a training step that takes as long as it is told, instead of no time."""

    def __init__(self) -> None:
        self.session, self.observation = Session(), Observation()
        self.session.observation, self.session.on_instruction = self.observation, self._run
        self._seconds = 0.0
        self.session.run(
            parse_program([{"op": "tensor", "outputs": ["x"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}}])
        )
        self._digest = self.session.memory.read(json.dumps(STEP), None, 64).digest
        self.observation.observes = True
        self.train()  # until then it is not known how long a step takes

    def _run(self, run: Callable[[Any], None], instruction: Any) -> None:
        time.sleep(self._seconds)
        run(instruction)

    def train(self, seconds: float = 0.0) -> bool:
        """Run a step, each instruction of which takes so long. Return whether it was observed."""
        self._seconds, before = seconds, self.observation.step
        program: BoundProgram = self.session.memory.find(self._digest).bind(["x", "y", "loss"], {})
        self.session.run(program)
        return self.observation.step is not before

    def trained(self, limit_s: float) -> bool:
        """Train until a step is observed, at most so long. Return whether one was."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if self.train():
                return True
            time.sleep(0.01)
        return False


@pytest.fixture
def observed() -> Observed:
    return Observed()


def test_one_step_that_has_to_wait_keeps_no_other_away(observed: Observed) -> None:
    assert observed.train(seconds=0.3)
    assert observed.trained(limit_s=30)


def test_steps_that_take_long_are_seldom(observed: Observed) -> None:
    assert observed.train(seconds=0.1)
    time.sleep(1.1)
    assert observed.train(seconds=0.1)
    assert not observed.trained(limit_s=2.5)
