"""How many programs go by their digest."""

from __future__ import annotations

import pytest

from telegrad import packing
from telegrad.packing import Packer
from telegrad_engine.program import Instruction

PROGRAMS = 300


def program(number: int, length: int = 3) -> list[Instruction]:
    return [Instruction("sum", [f"x{i}"], [f"x{i + 1}"], {"dim": (number,)}) for i in range(length)]


def test_a_loop_over_hundreds_of_programs_sends_them_by_their_digests() -> None:
    packer = Packer()
    rounds = [[packer.pack(program(number)) for number in range(PROGRAMS)] for _ in range(3)]
    assert [packed.remembered for packed in rounds[0]] == [None] * PROGRAMS
    assert all(packed.whole is not None for packed in rounds[2])  # for a server that has forgotten it


def test_what_they_take_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_BYTES", 10 * 20 * packing.INSTRUCTION_BYTES)
    packer = Packer()
    for _ in range(3):
        for number in range(11):  # one more than there is room for, in turn: each is forgotten before it comes again
            assert packer.pack(program(number, 20)).remembered is None
    for _ in range(2):
        last = [packer.pack(program(number, 20)) for number in range(10)]
    assert all(packed.remembered is not None for packed in last)
