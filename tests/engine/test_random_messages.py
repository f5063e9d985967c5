"""Random programs as messages of the wire: against PyTorch, run several times as a loop sends them, and invalid ones.

Internals: messages are made as the SDK makes them, but of random instructions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from telegrad_engine.compile import Compiler
from telegrad_engine.errors import TelegradError
from telegrad_engine.program import Instruction
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.program.result import Answer, describe
from telegrad_engine.program.safetensors import decode, encode, joined
from telegrad_engine.program.template import Ending, digest
from telegrad_engine.program.wire import SAFETENSORS, TEXT, Outgoing, decode_message
from telegrad_engine.session.session import Session
from telegrad_engine.session.snapshot import undone_on_error

from .templates import call_of

LEAVES = ("w", "v")
"""The tensors of a session that require grad."""
GIVEN = (*LEAVES, "x")


def branch(condition: str, then: Sequence[Any], otherwise: Sequence[Any]) -> dict[str, Any]:
    block = [{"instructions": list(each), "outputs": ["r"]} for each in (then, otherwise)]
    return {"op": "cond", "inputs": [condition], "outputs": ["y"], "attrs": {"then": block[0], "else": block[1]}}


SIGNED: dict[str, Any] = {
    "name": "signed",
    "forward": {
        "inputs": ["a"],
        "instructions": [
            {"op": "sum", "inputs": ["a"], "outputs": ["s"]},
            {"op": "gt", "inputs": ["s", 0.0], "outputs": ["p"]},
            branch(
                "p",
                [{"op": "tanh", "inputs": ["a"], "outputs": ["r"]}],
                [{"op": "mul", "inputs": ["a", "s"], "outputs": ["r"]}],
            ),
        ],
        "outputs": ["y"],
    },
}
GROWN: dict[str, Any] = {
    "name": "grown",
    "forward": {
        "inputs": ["a"],
        "instructions": [
            {
                "op": "while_loop",
                "inputs": [["a"]],
                "outputs": ["y"],
                "attrs": {
                    "cond": {
                        "inputs": ["c"],
                        "instructions": [
                            {"op": "abs", "inputs": ["c"], "outputs": ["d"]},
                            {"op": "sum", "inputs": ["d"], "outputs": ["t"]},
                            {"op": "lt", "inputs": ["t", 20.0], "outputs": ["p"]},
                        ],
                        "outputs": ["p"],
                    },
                    "body": {
                        "inputs": ["c"],
                        "instructions": [{"op": "mul", "inputs": ["c", 1.5], "outputs": ["e"]}],
                        "outputs": ["e"],
                    },
                    "max_iterations": 4,
                },
            }
        ],
        "outputs": ["y"],
    },
}


def signed(a: Any) -> Any:
    s = a.sum()
    return a.tanh() if s > 0 else a * s


def grown(a: Any) -> Any:
    for _ in range(4):
        if not a.abs().sum() < 20:
            return a
        a = a * 1.5
    raise RuntimeError("a while_loop did not end")


class Op(NamedTuple):
    """An instruction on tensors of 3 x 3 numbers, and the same in PyTorch, which is given the operand last."""

    name: str
    tensors: int
    reference: Callable[..., Any]
    attrs: dict[str, Any] | None = None
    operand: bool = False
    row: bool = False
    """Whether it is on a view of two rows, and has no output."""


OPS = [
    Op("add", 2, lambda a, b: a + b),
    Op("mul", 2, lambda a, b: a * b),
    Op("matmul", 2, torch.matmul),
    Op("mul", 1, lambda a, n: a * n, operand=True),
    Op("add", 1, lambda a, n: a + n, operand=True),
    Op("tanh", 1, torch.tanh),
    Op("sigmoid", 1, torch.sigmoid),
    Op("t", 1, lambda a: a.t()),
    Op("softmax", 1, lambda a: a.softmax(-1), {"dim": -1}),
    Op("clone", 1, torch.clone),
    Op("detach", 1, torch.detach),
    Op("add_", 2, lambda a, b: a.add_(b)),
    Op("mul_", 1, lambda a, n: a.mul_(n), operand=True),
    Op("sin_", 1, lambda a: a.sin_()),
    Op("mul_", 1, lambda a, n: a[1:].mul_(n), operand=True, row=True),
    Op("add_", 1, lambda a, n: a[1:].add_(n), operand=True, row=True),
    Op("apply", 1, signed, {"function": "signed"}),
    Op("apply", 1, grown, {"function": "grown"}),
]
steps = st.tuples(
    st.integers(0, len(OPS) - 1), st.integers(0, 9), st.integers(0, 9), st.sampled_from([None] * 4 + ["no_grad"])
)
templates = st.lists(steps, min_size=1, max_size=8)
turns = st.lists(st.lists(st.floats(-1, 1), min_size=8, max_size=8), min_size=4, max_size=5)


def program(template: Sequence[Any], numbers: Sequence[float]) -> list[Instruction]:
    """The instructions of one turn; the last result's sum is differentiated, and everything is fetched."""
    made = [*GIVEN]
    found = []
    for place, (which, first, second, grad_mode) in enumerate(template):
        op = OPS[which]
        inputs: list[Any] = [made[first % len(made)], made[second % len(made)]][: op.tensors]
        if op.row:
            found.append(Instruction("narrow", inputs, [f"row{place}"], {"dim": 0, "start": 1, "length": 2}, grad_mode))
            inputs = [f"row{place}"]
        else:
            made.append(f"r{place}")
        arguments = [tuple(inputs)] if op.name == "apply" else inputs + [numbers[place]] * op.operand
        found.append(Instruction(op.name, arguments, [] if op.row else [made[-1]], op.attrs, grad_mode))
    found.append(Instruction("sum", [made[-1]], ["total"]))
    found.append(Instruction("backward", [("total",)]))
    return found


def reference(tensors: dict[str, Any], template: Sequence[Any], numbers: Sequence[float]) -> dict[str, Any]:
    """All results of one turn in PyTorch."""
    made = [*GIVEN]
    found = dict(tensors)
    for place, (which, first, second, grad_mode) in enumerate(template):
        op = OPS[which]
        inputs = [found[made[first % len(made)]], found[made[second % len(made)]]][: op.tensors]
        with torch.set_grad_enabled(grad_mode is None):
            result = op.reference(*inputs, *[numbers[place]] * op.operand)
        if not op.row:
            made.append(f"r{place}")
            found[made[-1]] = result
    found["total"] = found[made[-1]].sum()
    found["total"].backward()
    return found


def new_session(compiler: Compiler | None) -> Session:
    session = Session(memory=ProgramCache(), compiler=compiler)
    rng = np.random.default_rng(0)
    for name in GIVEN:
        attrs = {"data": rng.standard_normal((3, 3)), "requires_grad": name in LEAVES}
        session.run([Instruction("tensor", (), [name], attrs)])
    for definition in (SIGNED, GROWN):
        session.run([Instruction("register_function", attrs={"definition": definition})])
    return session


def message_of(instructions: Sequence[Instruction], with_text: bool) -> tuple[bytes, list[str]]:
    """The message that fetches and frees all that a program makes, and the names of that."""
    call = call_of(instructions)
    slots = tuple([slot for slot, name in enumerate(call.ids) if name not in GIVEN])
    call = call._replace(ending=Ending(slots, True, slots))
    texts = [call.template.digest] if with_text else []
    return bytes(joined(Outgoing([call], texts=texts).pieces())), [call.ids[slot] for slot in slots]


def run(session: Session, body: bytes) -> Answer:
    return decode_message(body, SAFETENSORS, memory=session.memory).run(session)


def state_of(session: Session) -> dict[str, Any]:
    """All that a client can see of a session's tensors."""
    session.flush()
    found: dict[str, Any] = {}
    for name, tensor in session.tensors.items():
        grad = None if tensor.grad is None else tensor.grad.numpy().tobytes()
        found[name] = describe(name, tensor), tensor.detach().numpy().tobytes(), grad
    return found


@settings(max_examples=60, deadline=None)
@given(template=templates, turns=turns)
def test_a_recurring_program_computes_what_torch_does(template: list[Any], turns: list[list[float]]) -> None:
    interpreted, planned = new_session(None), new_session(Compiler(1, choose=False))
    theirs = {name: torch.from_numpy(interpreted.tensors[name].detach().numpy().copy()) for name in GIVEN}
    for name in LEAVES:
        theirs[name].requires_grad_()
    for turn, numbers in enumerate(turns):
        instructions = program(template, numbers)
        body, names = message_of(instructions, with_text=turn == 0)
        try:
            expected = reference(theirs, template, numbers)
        except RuntimeError:
            for session in (interpreted, planned):
                with pytest.raises(TelegradError) as caught:
                    run(session, body)
                assert 400 <= caught.value.status < 500
            assert state_of(planned) == state_of(interpreted)
            return
        answers = [run(session, body).values for session in (interpreted, planned)]
        assert state_of(planned) == state_of(interpreted)
        assert set(interpreted.tensors) == set(GIVEN)
        for name in names:
            first, second = [answer[name] for answer in answers]
            assert first.description == second.description
            assert first.array.tobytes() == second.array.tobytes()
            if name in expected:
                np.testing.assert_allclose(first.array, expected[name].detach().numpy(), rtol=1e-6, atol=1e-9)
        for name in GIVEN:
            ours, grad = interpreted.tensors[name], theirs[name].grad if theirs[name].is_leaf else None
            np.testing.assert_allclose(ours.detach().numpy(), theirs[name].detach().numpy(), rtol=1e-6, atol=1e-9)
            assert (ours.grad is None) == (grad is None)
            if grad is not None:
                np.testing.assert_allclose(ours.grad.numpy(), grad.numpy(), rtol=1e-6, atol=1e-9)


# Invalid messages ----------------------------------------------------------------------------------------------------

JUNK: list[Any] = [
    None, True, -1, 0, 3, 2**70, 0.5, "", "nope", "_0", "_9", "_" + "9" * 5000, "NaN", [], ["_0"], [[["_1"]]], {},
    {"operand": 0}, {"operand": 99}, {"operand": -1}, {"operand": 0, "plus": 1}, {"op": "neg"}, "backward", "free",
]  # fmt: skip


def changed(data: Any, where: Sequence[int], junk: Any) -> Any:
    """The JSON data with junk at the place to which the numbers lead, or without what is there if junk is ``...``."""
    items = list(data.items()) if isinstance(data, dict) else list(enumerate(data)) if isinstance(data, list) else []
    if not items or not where:
        return junk
    key, value = items[where[0] % len(items)]
    if junk is ... and (len(where) == 1 or not isinstance(value, (dict, list)) or not value):
        rest = [(k, v) for k, v in items if k != key]
    else:
        rest = [(k, changed(v, where[1:], junk) if k == key else v) for k, v in items]
    return dict(rest) if isinstance(data, dict) else [v for _, v in rest]


@settings(max_examples=100, deadline=None)
@given(
    template=templates,
    numbers=turns,
    part=st.sampled_from(["text", "calls"]),
    where=st.lists(st.integers(0, 11), min_size=1, max_size=5),
    junk=st.sampled_from([..., *JUNK]),
)
def test_an_invalid_program_is_refused_and_changes_nothing(
    template: list[Any], numbers: list[list[float]], part: str, where: list[int], junk: Any
) -> None:
    session = new_session(Compiler(1, choose=False))
    body, _ = message_of(program(template, numbers[0]), with_text=True)
    metadata, arrays = decode(body)
    (key,) = [name for name in metadata if name.startswith(TEXT)]
    text, calls = metadata.pop(key), json.loads(metadata["calls"])
    if part == "text":
        text = json.dumps(changed(json.loads(text), where, junk))
        calls[0]["template"] = digest(text)
    else:
        calls = changed(calls, where, junk)
    metadata = {"calls": json.dumps(calls), TEXT + digest(text): text}
    for turn in range(3):  # read, found again, and planned
        before = state_of(session)
        try:
            message = decode_message(encode(metadata, arrays), SAFETENSORS, memory=session.memory)
            instructions = [i for each in message.programs for i in each]
            with undone_on_error(session, instructions):
                message.run(session)
        except TelegradError as error:
            assert 400 <= error.status < 500, error
            assert state_of(session) == before
        if turn == 0:
            metadata.pop(TEXT + digest(text))
    session.run([Instruction("neg", ["x"], ["intact"])])
