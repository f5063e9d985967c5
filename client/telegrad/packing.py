"""Programs as the SDK sends them: whole the first time, to be remembered the second, from then on by their digest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from telegrad_engine.program import Instruction
from telegrad_engine.program.canonical import Key, Known, Texts, canonical, known
from telegrad_engine.program.wire import encode_known, encode_program

MOST_PROGRAMS, MOST_INSTRUCTIONS = 128, 2_000
"""How many programs a session looks out for, and how long they may be."""


class Packed(NamedTuple):
    """A program as bytes."""

    body: bytes
    whole: Callable[[], bytes] | None = None
    """Gives the bytes for a server that does not remember the program, if ``body`` only names it."""


class Packer:
    """Packs one session's programs, and knows which it sent before."""

    def __init__(self) -> None:
        self._texts = Texts()
        self._seen: OrderedDict[Key, Known | None] = OrderedDict()

    def pack(self, program: Sequence[Instruction]) -> Packed:
        """The program in as few bytes as will do. What is recorded later changes nothing in it."""
        if len(program) > MOST_INSTRUCTIONS:
            return Packed(encode_program(program))
        key, ids, arrays = canonical(program, self._texts)
        if key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > MOST_PROGRAMS:
                self._seen.popitem(last=False)
            return Packed(encode_program(program))
        self._seen.move_to_end(key)
        before = self._seen[key]
        if before is None:
            remembered = self._seen[key] = known(program, ids)
            return Packed(encode_known(remembered, ids, arrays, with_text=True))
        return Packed(
            encode_known(before, ids, arrays, with_text=False),
            lambda: encode_known(before, ids, arrays, with_text=True),
        )
