"""Large uploads stay where they arrived, and large answers are sent from a session's own arrays.

Internals: programs come in the encodings of the wire, a session knows them by this cache, and clients never see
borrowed answers.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from telegrad_engine.compile import Compiler
from telegrad_engine.program import Instruction, json_codec, parse_program, safetensors, wire
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.program.result import LEAST, Answer, BorrowedAnswer, in_one_buffer
from telegrad_engine.program.template import digest
from telegrad_engine.session.session import Session

LARGE = np.random.default_rng(0).standard_normal((600, 500))
SMALL = np.arange(4.0)


def arrived(program: list[dict[str, Any]], arrays: dict[str, Any], writable: bool = True) -> tuple[Any, Any]:
    """A program as it came off a connection, and the memory that it is in."""
    text = json_codec.dumps({"instructions": program}).decode()
    body = bytearray(safetensors.encode({"program": text}, arrays))
    return wire.decode_message(body if writable else bytes(body), wire.SAFETENSORS).programs[0], body


def fetched(session: Session, *names: str) -> list[Any]:
    answer = session.run([Instruction("fetch", [names])])
    return [np.array(answer.values[name].array) for name in names]


UPLOAD = {"op": "tensor", "out": ["x"]}


def test_it_is_the_message_s_own_memory() -> None:
    session = Session()
    program, body = arrived([UPLOAD], {"x": LARGE})
    session.run(program)
    assert np.shares_memory(session.tensors["x"].numpy(), np.frombuffer(body, np.uint8))
    session.run(parse_program({"instructions": [{"op": "mul_", "in": ["x", 2]}]}))
    np.testing.assert_array_equal(fetched(session, "x")[0], LARGE * 2)


@pytest.mark.parametrize(
    ("attrs", "arrays", "writable"),
    [
        ({}, {"x": LARGE}, False),
        ({}, {"x": SMALL}, True),
        ({"dtype": "float32"}, {"x": LARGE}, True),
        ({}, {"x": LARGE, "other": np.concatenate([LARGE, LARGE])}, True),
    ],
    ids=["cannot be written to", "small", "another dtype", "a lesser part of the message"],
)
def test_what_does_not_stay_is_copied(attrs: dict[str, Any], arrays: dict[str, Any], writable: bool) -> None:
    session = Session()
    program, body = arrived([UPLOAD | {"attrs": attrs}], arrays, writable)
    session.run(program)
    assert not np.shares_memory(session.tensors["x"].numpy(), np.frombuffer(body, np.uint8))
    np.testing.assert_array_equal(fetched(session, "x")[0], arrays["x"].astype(attrs.get("dtype", "float64")))


def test_its_memory_counts_as_long_as_anything_shows_it() -> None:
    session = Session()
    before = session.accounts.used_bytes
    program, _ = arrived(
        [UPLOAD, {"op": "select", "in": ["x"], "out": ["row"], "attrs": {"dim": 0, "index": 3}}], {"x": LARGE}
    )
    session.run(program)
    del program
    assert session.accounts.used_bytes - before == LARGE.nbytes
    session.run([Instruction("free", [("x",)])])
    assert session.accounts.used_bytes - before == LARGE.nbytes, "a view of it is left"
    session.run([Instruction("free", [("row",)])])
    assert session.accounts.used_bytes == before


def test_too_much_is_refused() -> None:
    session = Session(max_bytes=LARGE.nbytes - 1)
    program, _ = arrived([UPLOAD], {"x": LARGE})
    with pytest.raises(Exception, match="may hold"):
        session.run(program)
    assert not session.tensors


@pytest.mark.parametrize("remembered", [False, True])
def test_one_array_for_two_tensors_is_two_arrays(remembered: bool) -> None:
    session = Session()
    doubled = [UPLOAD, {"op": "mul_", "in": ["x", 2]}, {"op": "clone", "in": ["x"], "out": ["y"]}]
    if remembered:  # under one id, freed in between
        text = json_codec.dumps({"instructions": _named([*doubled, {"op": "free", "in": [["x"]]}, UPLOAD])}).decode()  # type: ignore[list-item]
        call = {"template": digest(text), "ids": ["x", "y"]}
        metadata = {f"template.{digest(text)}": text, "calls": json.dumps([call])}
        body = bytearray(safetensors.encode(metadata, {"0._0": LARGE}))
        program: Any = wire.decode_message(body, wire.SAFETENSORS).programs[0]
        second = "x"
    else:  # by the name that each gives
        named = [
            UPLOAD | {"attrs": {"array": "a"}},
            *doubled[1:],
            {"op": "tensor", "out": ["z"], "attrs": {"array": "a"}},
        ]
        program, _ = arrived(named, {"a": LARGE})
        second = "z"
    session.run(program)
    first, again = fetched(session, "y", second)
    np.testing.assert_array_equal(first, LARGE * 2)
    np.testing.assert_array_equal(again, LARGE)


def _named(program: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The program with stand-ins for its ids."""
    return json_codec.loads(json_codec.dumps(program).replace(b'"x"', b'"_0"').replace(b'"y"', b'"_1"'))  # type: ignore[no-any-return]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("askew", [0, 1])
def test_what_a_plan_keeps_is_no_part_of_its_message(kept: bool, askew: int) -> None:
    """It reads the message, be it aligned or not; a tensor of a few bytes must not keep all of it."""
    compiler = Compiler(2, choose=False)
    session = Session(memory=ProgramCache(), compiler=compiler)
    ends: list[dict[str, Any]] = [] if kept else [{"op": "free", "in": [["_0"]]}]
    program = [
        {"op": "tensor", "out": ["_0"]},
        {"op": "sum", "in": ["_0"], "out": ["_1"]},
        {"op": "view", "in": ["_0"], "out": ["_2"], "attrs": {"shape": [2, -1]}},
        *ends,
    ]
    known_by = session.memory.read(json_codec.dumps({"instructions": program}).decode(), None, 64).digest
    remembered = session.memory.find(known_by)
    for turn in range(8):
        array = np.random.default_rng(turn).standard_normal(20_000).astype(np.float32)
        message = np.frombuffer(bytearray(array.nbytes + askew), array.dtype, array.size, askew)
        message[:] = array
        session.run(remembered.bind([f"x{turn}", f"y{turn}", f"v{turn}"], {"_0": message}))
        message[:] = 0
        np.testing.assert_array_equal(fetched(session, f"v{turn}")[0], array.reshape(2, -1))
        assert fetched(session, f"y{turn}")[0] == array.sum()  # to the last digit, which depends on how it lies
        assert (f"x{turn}" in session.tensors) is kept
    assert compiler.reports(session)[0].planned_runs > 2


# Answers -------------------------------------------------------------------------------------------------------------


def answer_of(session: Session, *names: str) -> Answer:
    return session.run([Instruction("fetch", [names])])


@pytest.fixture
def session() -> Session:
    session = Session()
    for name, size in (("large", LEAST), ("small", 10), ("other", LEAST // 2)):
        array = np.arange(size, dtype=np.float32)
        session.run([Instruction("tensor", (), [name], {"data": array})])
    return session


def lend(session: Session, *names: str) -> BorrowedAnswer:
    lent = wire.lend_answer(answer_of(session, *names), {"sequence": "7"})
    assert isinstance(lent, BorrowedAnswer)
    session.lent.add(lent)
    return lent


def in_pieces(lent: BorrowedAnswer, most: int) -> bytes:
    content = bytearray()
    while piece := lent.read(len(content), most):
        assert len(piece) <= most
        content += piece
    return bytes(content)


@pytest.mark.parametrize("most", [999, 2**16, 2**30])
def test_pieces_make_up_the_container(session: Session, most: int) -> None:
    lent = lend(session, "large", "small", "other")
    content = in_pieces(lent, most)
    assert len(content) == len(lent) and content == bytes(in_one_buffer(lent))
    metadata, arrays = safetensors.decode(content)
    assert metadata["sequence"] == "7"
    np.testing.assert_array_equal(arrays["other"], np.arange(LEAST // 2))


def test_what_is_read_behind_a_change_is_as_before_it(session: Session) -> None:
    lent = lend(session, "large", "other")
    start = lent.read(0, LEAST)
    session.run([Instruction("add_", ["large", 1]), Instruction("add_", ["other", 1])])
    rest = b"".join(iter([lent.read(len(start), 2**30)]))
    _, arrays = safetensors.decode(start + rest)
    np.testing.assert_array_equal(arrays["large"], np.arange(LEAST))
    np.testing.assert_array_equal(arrays["other"], np.arange(LEAST // 2))


def test_what_is_lent_is_the_tensors_own_and_nobodys_once_it_is_gone(session: Session) -> None:
    lent = lend(session, "large")
    session.tensors["large"].numpy()[:] = 5  # behind the session's back
    assert np.frombuffer(lent.read(len(lent) - 4, 4), np.float32) == 5
    del lent
    assert not session.lent


def test_short_answers_are_copied_at_once(session: Session) -> None:
    answer = wire.lend_answer(answer_of(session, "small"), {})
    assert not isinstance(answer, BorrowedAnswer) and answer is in_one_buffer(answer)
