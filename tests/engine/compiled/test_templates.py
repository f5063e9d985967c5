"""Calls of random templates: planned, one instruction at a time, and in torch.

Internals: messages are made as the SDK makes them, but of random instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from telegrad_engine import errors
from telegrad_engine.compile import Compiler
from telegrad_engine.program import Instruction
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.program.template import Ending
from telegrad_engine.program.wire import Message
from telegrad_engine.session.session import Session

from ..templates import call_of

GIVEN = 3
"""How many tensors a template is given: two that require grad, and one that does not."""
Op = tuple[str, int, bool, Callable[..., Any]]
OPS: list[Op] = [
    ("add", 2, False, lambda a, b: a + b),
    ("mul", 2, False, lambda a, b: a * b),
    ("sub", 2, False, lambda a, b: a - b),
    ("mul", 1, True, lambda a, n: a * n),
    ("add", 1, True, lambda a, n: a + n),
    ("tanh", 1, False, torch.tanh),
    ("sigmoid", 1, False, torch.sigmoid),
    ("matmul", 2, False, torch.matmul),
    ("t", 1, False, lambda a: a.t()),
    ("relu", 1, False, torch.relu),
]
instructions = st.tuples(st.integers(0, len(OPS) - 1), st.integers(0, 9), st.integers(0, 9))
templates = st.lists(instructions, min_size=1, max_size=8)
numbers = st.lists(st.floats(-2, 2, width=32), min_size=8, max_size=8)
aliases = st.tuples(*[st.integers(0, GIVEN - 1)] * GIVEN)
calls = st.lists(st.tuples(aliases, numbers, st.integers(0, 2**9 - 1)), min_size=4, max_size=7)


def program(template: Sequence[Any], ids: Sequence[str], own: Sequence[float]) -> list[Instruction]:
    """The instructions of one call; the last one's sum is differentiated."""
    made: list[str] = [*ids]
    found = []
    for number, (which, first, second) in enumerate(template):
        op, arity, takes_number, _ = OPS[which]
        inputs: list[Any] = [made[first % len(made)], made[second % len(made)]][:arity]
        made.append(f"v{number}")
        found.append(Instruction(op, inputs + [own[number]] * takes_number, [made[-1]], {}, None))
    found.append(Instruction("sum", [made[-1]], ["total"]))
    found.append(Instruction("backward", [("total",)], (), {}))
    return found


def expected(template: Sequence[Any], tensors: Sequence[Any], own: Sequence[float]) -> list[Any]:
    """All results of one call in torch."""
    made = [*tensors]
    for number, (which, first, second) in enumerate(template):
        _, arity, takes_number, function = OPS[which]
        inputs = [made[first % len(made)], made[second % len(made)]][:arity]
        made.append(function(*inputs, *[own[number]] * takes_number))
    total = made[-1].sum()
    if total.requires_grad:
        total.backward()
    return [*made[len(tensors) :], total]


class Side:
    """A session that runs calls of templates."""

    def __init__(self, compiler: Compiler | None) -> None:
        self.session = Session(memory=ProgramCache(), compiler=compiler)
        rng = np.random.default_rng(0)
        self.session.run(
            [
                Instruction("tensor", (), [f"x{i}"], {"data": rng.standard_normal((3, 3)).astype(np.float32)})
                for i in range(GIVEN)
            ]
        )
        for i in range(GIVEN - 1):
            self.session.run([Instruction("requires_grad_", [f"x{i}"])])

    def call(self, instructions: Sequence[Instruction], kept: int) -> dict[str, Any]:
        """Run one call of which all results are fetched, and those kept whose bit is set."""
        call = call_of(instructions)
        memory = self.session.memory
        memory.read(call.template.text, None, 64)
        slots = [slot for slot, name in enumerate(call.ids) if not name.startswith("x")]
        free = tuple([slot for bit, slot in enumerate(slots) if not kept >> bit & 1])
        ending = Ending(tuple(slots), True, free)
        bound = memory.find(call.template.digest).with_ending(ending).bind(call.ids, call.arrays, call.operands)
        left = [call.ids[slot] for slot in slots if slot not in free]
        answer = Message([bound], left).run(self.session)
        found = {name: value.array.tobytes() for name, value in answer.values.items()}
        for i in range(GIVEN):
            grad = self.session.tensors[f"x{i}"].grad
            found[f"grad of x{i}"] = None if grad is None else grad.numpy().tobytes()
        self.session.flush()
        assert set(self.session.tensors) == {f"x{i}" for i in range(GIVEN)}
        return found


@settings(max_examples=60, deadline=None)
@given(template=templates, calls=calls)
def test_calls_of_any_template(template: list[Any], calls: list[Any]) -> None:
    planner = Compiler(1, choose=False)
    planned, interpreted = Side(planner), Side(None)
    theirs = [torch.tensor(interpreted.session.tensors[f"x{i}"].detach().numpy()) for i in range(GIVEN)]
    for tensor in theirs[: GIVEN - 1]:
        tensor.requires_grad_()
    for alias, own, kept in calls:
        ids = [f"x{i}" for i in alias]
        if not any(i < GIVEN - 1 for i in alias):
            continue
        instructions = program(template, ids, own)
        try:
            reference = expected(template, [theirs[i] for i in alias], own)
        except RuntimeError:
            continue
        if not reference[-1].requires_grad:
            with pytest.raises(errors.TelegradError):
                interpreted.call(instructions, kept)
            return
        found = planned.call(instructions, kept)
        assert found == interpreted.call(instructions, kept)
        for name, value in zip([*[f"v{n}" for n in range(len(template))], "total"], reference, strict=True):
            array = np.frombuffer(found[name], np.float32).reshape(value.shape)
            np.testing.assert_allclose(array, value.detach().numpy(), rtol=1e-4, atol=1e-5)
        for i, tensor in enumerate(theirs):
            grad = found[f"grad of x{i}"]
            assert (grad is None) == (tensor.grad is None)
            if grad is not None:
                array = np.frombuffer(grad, np.float32).reshape(3, 3)
                np.testing.assert_allclose(array, tensor.grad.numpy(), rtol=1e-3, atol=1e-4)
