"""Programs that are known by a digest: what is the same program, what it runs on, and what is wrong with a message.

Internals: messages are made byte by byte, also such as no client of ours sends.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import telegrad_engine as tg
from telegrad_engine import errors
from telegrad_engine.program import Instruction
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.program.safetensors import encode, joined
from telegrad_engine.program.template import digest
from telegrad_engine.program.wire import SAFETENSORS, Outgoing, decode_message
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.session.session import Session

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case
from . import oracle
from .templates import call_of as templated
from .templates import structures_of

TEXT = json.dumps(
    [
        {"op": "tensor", "out": ["_0"]},
        {"op": "mul", "in": ["_0", "_1"], "out": ["_2"]},
        {"op": "sum", "in": ["_2"], "out": ["_3"], "attrs": {"dim": [0]}},
        {"op": "add_", "in": ["_1", 1.5]},
    ]
)
HOOK = TEXT.replace('"add_", "in": ["_1", 1.5]', '"client_hook", "in": ["_1"], "attrs": {"hook": 1.5}')


def call_of(text: str) -> dict[str, Any]:
    return {"template": digest(text), "ids": ["x", "w", "y", "s"], "fetch": [3, 1], "free": [0, 2, 3]}


def steps(memory: ProgramCache, session: Session, call: dict[str, Any], x: Any, text: str | None = None) -> list[Any]:
    """Run a message of one call with one upload, which has the template's text if there is one; what it fetched."""
    texts = {} if text is None else {f"template.{digest(text)}": text}
    body = encode({**texts, "calls": json.dumps([call])}, {"0._0": x})
    answer = decode_message(body, SAFETENSORS, memory=memory).run(session)
    return [np.array(answer.values[name].array) for name in ("s", "w")]


def session_with_weight() -> Session:
    session = Session()
    session.tensors["w"] = tg.tensor([1.0, 2.0])
    return session


def test_a_digest_runs_the_program_whose_text_was_sent_before() -> None:
    memory, session = ProgramCache(), session_with_weight()
    for round in range(5):
        x = np.full((3, 2), round, np.float32)
        total, weight = steps(memory, session, call_of(TEXT), x, None if round else TEXT)
        assert weight.tolist() == [1 + 1.5 * (round + 1), 2 + 1.5 * (round + 1)]
        assert total.tolist() == (x * (weight - 1.5)).sum(0).tolist()
    assert set(session.tensors) == {"w"}


def test_other_shapes_and_dtypes_are_no_other_program() -> None:
    memory, session = ProgramCache(), session_with_weight()
    steps(memory, session, call_of(TEXT), np.ones((3, 2), np.float32), TEXT)
    for shape, dtype in (((3, 2), "float32"), ((1, 2), "float32"), ((4, 2), "float64"), ((2, 1), "int64")) * 4:
        x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        before = session.tensors["w"].numpy().copy()
        total, _ = steps(memory, session, call_of(TEXT), x)
        expected = (x * before).sum(0)
        np.testing.assert_allclose(total, expected)
        assert total.dtype == np.result_type(dtype if dtype == "float64" else "float32")


def test_a_wrong_shape_fails_at_its_instruction_and_those_before_it_stand() -> None:
    memory, session = ProgramCache(), session_with_weight()
    for _ in range(4):
        steps(memory, session, call_of(TEXT), np.ones((3, 2), np.float32), TEXT)
    with pytest.raises(errors.ShapeMismatch) as caught:
        steps(memory, session, call_of(TEXT), np.ones((3, 5), np.float32))
    assert caught.value.context["instruction"] == 1
    assert set(session.tensors) == {"w", "x"}


def neg(x: str, y: str) -> str:
    return json.dumps([{"op": "neg", "in": [x], "out": [y]}])


@pytest.mark.parametrize(
    ("text", "changes", "error", "words"),
    [
        (None, {"template": "0" * 64}, errors.UnknownProgram, "send its text"),
        ("[]", {"template": "0" * 64}, errors.UnknownProgram, "send its text"),
        (None, {"template": 3}, errors.MalformedRequest, "a call has template"),
        (TEXT, {"ending": []}, errors.MalformedRequest, "a call has template"),
        ("[", {}, errors.MalformedRequest, "not JSON"),
        (neg("_7", "_0"), {}, errors.MalformedRequest, "_7"),
        (neg("w", "_0"), {}, errors.MalformedRequest, "'?w"),
        (neg("_3", "_2"), {}, errors.UnknownTensor, "no tensor 's'"),  # a slot that nothing has filled yet
        ('[{"op": "tensor", "out": ["_1"]}]', {}, errors.MalformedRequest, "_1"),
        ('[{"op": "no_such_op", "in": ["_1"], "out": ["_2"]}]', {}, errors.UnknownOp, "no_such_op"),
        (TEXT, {"operands": []}, errors.MalformedRequest, "takes 1 operands, but 0"),
        (TEXT, {"operands": [1.5, 2.5]}, errors.MalformedRequest, "takes 1 operands, but 2"),
        (TEXT, {"operands": ["NaN"]}, errors.MalformedRequest, "list of numbers"),
        (TEXT, {"operands": ["h"]}, errors.MalformedRequest, "list of numbers"),
        (HOOK, {"operands": [True]}, errors.MalformedRequest, "list of numbers"),
        (HOOK, {"operands": [2.5]}, errors.InvalidArgument, "'hook' must be str"),
        (HOOK, {"operands": ["a b"]}, errors.MalformedRequest, "a b"),
        (HOOK.replace("1.5", '{"operand": 0, "plus": 1}'), {"operands": ["h"]}, errors.MalformedRequest, "numbers"),
        (TEXT, {"fetch": [4]}, errors.MalformedRequest, "list of slots"),
        (TEXT, {"fetch": [-1]}, errors.MalformedRequest, "list of slots"),
        (TEXT, {"fetch": ["x"]}, errors.MalformedRequest, "list of slots"),
        (TEXT, {"free": 3}, errors.MalformedRequest, "list of slots"),
        (TEXT, {"free": [True]}, errors.MalformedRequest, "list of slots"),
    ],
)
def test_a_call_that_is_wrong_is_refused(text: str | None, changes: Any, error: type[Exception], words: str) -> None:
    session = session_with_weight()
    template = (text or TEXT).replace("1.5", '{"operand": 0}') if "operands" in changes else text or TEXT
    with pytest.raises(error, match=words):
        call = {**call_of(template), **changes}
        steps(ProgramCache(), session, call, np.ones((3, 2), np.float32), None if text is None else template)
    assert session.tensors["w"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("metadata", "arrays", "error", "words"),
    [
        ({}, {}, errors.MalformedRequest, 'neither "calls" nor "program"'),
        ({"calls": "nothing"}, {}, errors.MalformedRequest, "calls is not JSON"),
        ({"calls": "{}"}, {}, errors.MalformedRequest, "calls is a list"),
        ({"calls": "[1]"}, {}, errors.MalformedRequest, "calls is a list"),
        ({"calls": "[]", "free": '["a b"]'}, {}, errors.MalformedRequest, "not a tensor id"),
        ({"calls": "[]", "free": "3"}, {}, errors.MalformedRequest, "free is a list"),
        ({"calls": "[]"}, {"_0": np.ones(1)}, errors.MalformedRequest, "is of no call"),
        ({"calls": "[]"}, {"0._0": np.ones(1)}, errors.MalformedRequest, "is of no call"),
        ({"calls": json.dumps([call_of(TEXT)] * 65)}, {}, errors.LimitExceeded, "at most 64 calls"),
    ],
)
def test_a_message_that_is_wrong_is_refused(metadata: Any, arrays: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        decode_message(encode(metadata, arrays), SAFETENSORS, memory=ProgramCache())


def test_ids_are_ids() -> None:
    wrong: list[Any] = [{"a": 1}, [1], ["a b"], [[]], "nothing"]
    for ids in wrong:
        with pytest.raises(errors.MalformedRequest):
            steps(ProgramCache(), Session(), {**call_of(TEXT), "ids": ids}, np.ones((3, 2), np.float32), TEXT)


def test_a_placeholder_with_a_number_of_any_length_is_refused() -> None:
    memory, text = ProgramCache(), json.dumps([{"op": "neg", "inputs": ["_" + "9" * 5000], "outputs": ["_1"]}])
    for program in (memory.read(text, None, 64), memory.find(memory.read(text, None, 64).digest)):
        with pytest.raises(errors.MalformedRequest, match="for which there is no id"):
            program.bind(["a", "b"], {})


def test_calls_run_in_order_and_an_error_has_its_place_in_the_message() -> None:
    memory, session = ProgramCache(), session_with_weight()
    text = neg("_0", "_1")
    calls = [
        {"template": digest(text), "ids": ["w", "a"], "fetch": [1]},
        {"template": digest(text), "ids": ["a", "b"], "fetch": [1], "free": [0]},
        {"template": digest(text), "ids": ["gone", "c"]},
    ]

    def run(count: int, **more: str) -> Any:
        metadata = {"calls": json.dumps(calls[:count]), f"template.{digest(text)}": text, **more}
        return decode_message(encode(metadata, {}), SAFETENSORS, memory=memory).run(session)

    answer = run(2, free='["w", "never"]')
    assert {name: value.array.tolist() for name, value in answer.values.items()} == {"a": [-1, -2], "b": [1, 2]}
    assert set(session.tensors) == {"b"}
    session.tensors["w"] = session.tensors.pop("b")
    with pytest.raises(errors.UnknownTensor) as caught:
        run(3, free='["w"]')
    assert caught.value.context["instruction"] == 5  # neg, fetch; neg, fetch, free; this one
    assert set(session.tensors) == {"w", "b"}


def test_the_least_recently_used_is_forgotten() -> None:
    memory = ProgramCache(most=2)
    texts = [json.dumps([{"op": "neg", "in": ["_0"], "out": [f"_{i}"]}]) for i in (1, 2, 3)]
    for text in texts[:2]:
        memory.read(text, None, 64)
    memory.find(digest(texts[0]))
    memory.read(texts[2], None, 64)
    memory.find(digest(texts[0]))
    with pytest.raises(errors.UnknownProgram):
        memory.find(digest(texts[1]))
    small = ProgramCache(most_bytes=len(texts[0]) + 10)  # it has room for the text, and not for the program
    small.read(texts[0], None, 64)
    assert small.find(digest(texts[0])).steps
    little = ProgramCache(most_bytes=10)
    assert little.read(texts[0], None, 64).steps
    with pytest.raises(errors.UnknownProgram):
        little.find(digest(texts[0]))


def programs() -> list[list[Instruction]]:
    """Programs no two of which are the same."""

    def one(*inputs: Any, attrs: Any = None, op: str = "add", out: tuple[str, ...] = ("y",), mode: Any = None) -> Any:
        return [Instruction(op, inputs, out, attrs, mode, True)]

    return [
        one("a", "b"), one("a", "a"), one("a", 1), one("a", True),
        one("a", "b", mode="no_grad"), one("a", "b", op="mul"), one("a", "b", attrs={"alpha": 2}),
        one("a", math.nan), one("a", math.inf), one(("a", "b"), op="cat"), one(("a", "a"), op="cat"),
        one("a", "b", out=("y", "z")), one("a", "b") + one("y", "b", out=("z",)),
        one("a", "b") + one("a", "y", out=("z",)),
    ]  # fmt: skip


def test_what_differs_in_more_than_ids_and_values_is_another_program() -> None:
    keys = [
        tuple((op, *structure[:2], outputs, mode) for op, structure, outputs, mode in structures_of(program)[0])
        for program in programs()
    ]
    assert len(set(keys)) == len(keys)
    texts = [templated(program).template.text for program in programs()]
    assert len(set(texts)) == len(texts)


def test_other_ids_and_other_values_are_the_same_program() -> None:
    def program(x: str, y: str, value: float) -> list[Instruction]:
        upload = Instruction("tensor", (), (x,), {"data": np.float32([value]), "requires_grad": True}, None, True)
        return [upload, Instruction("exp", (x,), (y,), {}, None, True)]

    first, second = templated(program("a", "b", 1.0)), templated(program("t9", "t8", 2.0))
    assert first.template == second.template
    assert (first.ids, second.ids) == (["a", "b"], ["t9", "t8"])
    body = joined(Outgoing([second], (), {second.template.digest}).pieces())
    (read,) = decode_message(body, SAFETENSORS, memory=ProgramCache()).programs
    assert [(i.op, list(i.inputs), list(i.outputs)) for i in read] == [("tensor", [], ["t9"]), ("exp", ["t9"], ["t8"])]
    assert read[0].attrs["data"].tolist() == [2.0]
    assert read[0].attrs["requires_grad"] is True


def instruction_of(op: Op, case: Case, arrays: dict[int, np.ndarray]) -> tuple[Instruction, dict[str, np.ndarray]]:
    """A case's call as the SDK records it, and the arrays of the tensors that it names."""
    tensors: dict[str, np.ndarray] = {}

    def name(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(name, value))
        if not isinstance(value, tg.Tensor):
            return value
        tensors[f"t{len(tensors)}"] = value.detach().numpy()
        return f"t{len(tensors) - 1}"

    call = oracle.with_dtypes(oracle.build(case, arrays, tg.tensor), tg.dtypes)
    inputs, attrs = op.bind(call.args, call.kwargs)
    outputs = [f"out{i}" for i in range(len(op.outputs))]
    return Instruction(op.key, [name(x) for x in inputs], outputs, attrs, None, True), tensors


def outcome(session: Session, program: list[Instruction], tensors: dict[str, np.ndarray]) -> Any:
    """What a program leaves behind, or how it fails."""
    session.tensors = {name: tg.tensor(array, requires_grad=array.dtype.kind == "f") for name, array in tensors.items()}
    session.environment.seed(7)
    try:
        session.run(program)
    except errors.TelegradError as error:
        return type(error), error.detail, error.context["instruction"]
    left = session.tensors.items()
    return {name: (t.dtype, tuple(t.shape), t.detach().numpy().tobytes(), str(t.grad_fn)) for name, t in left}


@pytest.mark.parametrize("op", [op for op in CATALOGUE if cases_of(op) and not op.truth], ids=lambda op: op.key)
def test_every_op_remembered_is_the_op(op: Op) -> None:
    plain, remembering, memory = Session(), Session(), ProgramCache()
    for case in cases_of(op):
        try:
            instruction, tensors = instruction_of(op, case, oracle.arrays_of(case, np.dtype("float32")))
        except (ValueError, OverflowError, errors.TelegradError):
            continue  # no values of this dtype, or refused before it is recorded
        program = [instruction]
        call = templated(program)
        for turn in range(4):
            body = joined(Outgoing([call], (), () if turn else {call.template.digest}).pieces())
            (read,) = decode_message(body, SAFETENSORS, memory=memory).programs
            assert outcome(remembering, read, tensors) == outcome(plain, program, tensors), case
