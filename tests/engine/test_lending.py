"""Answers that are sent from a session's own arrays.

Internals: lent answers are what a session and its host agree on; clients never see them.
"""

from __future__ import annotations

import numpy as np
import pytest

from telegrad_engine.program import Instruction, safetensors, wire
from telegrad_engine.program.result import LEAST, Answer, BorrowedAnswer, in_one_buffer
from telegrad_engine.session.session import Session


def fetched(session: Session, *names: str) -> Answer:
    return session.run([Instruction("fetch", [names])])


@pytest.fixture
def session() -> Session:
    session = Session()
    for name, size in (("large", LEAST), ("small", 10), ("other", LEAST // 2)):
        array = np.arange(size, dtype=np.float32)
        session.run([Instruction("tensor", (), [name], {"data": array})])
    return session


def lend(session: Session, *names: str) -> BorrowedAnswer:
    lent = wire.lend_answer(fetched(session, *names), {"sequence": "7"})
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
    answer = wire.lend_answer(fetched(session, "small"), {})
    assert not isinstance(answer, BorrowedAnswer) and answer is in_one_buffer(answer)
