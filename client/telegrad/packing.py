"""Programs as the SDK sends them: whole the first time, to be remembered the second, from then on by their digest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.program import Instruction
from telegrad_engine.program.canonical import KEY_ITEMS, Key, Known, Texts, canonical, known
from telegrad_engine.program.safetensors import Container
from telegrad_engine.program.wire import known_pieces, program_pieces

MOST_PROGRAMS, MOST_BYTES, MOST_INSTRUCTIONS = 512, 64 * 2**20, 2_000
"""How many programs a session looks out for, as many as a server remembers by default; how many bytes they take
together; and how long they may be. The least recently used are forgotten."""
INSTRUCTION_BYTES = 1024
"""What a program takes for each instruction: its part of the key, and of the text."""


Encode = Callable[[Mapping[str, str]], list[Container]]


class Remembered(NamedTuple):
    """A program that the server remembers, or is told to: what it is known by, and what is its own each time."""

    known: Known
    ids: Sequence[str]
    arrays: Mapping[str, Any]
    operands: Sequence[float]


class Packed:
    """A program, ready to be encoded."""

    def __init__(self, encode: Encode, whole: Encode | None = None, remembered: Remembered | None = None) -> None:
        self.encode = encode
        """Gives a container in pieces, with labels in the metadata."""
        self.whole = whole
        """Likewise for a server that does not remember the program, if ``encode`` only names it."""
        self.remembered = remembered


class Packer:
    """Packs one session's programs, and knows which it sent before."""

    def __init__(self) -> None:
        self._texts = Texts()
        self._seen: OrderedDict[Key, Known | None] = OrderedDict()
        self._instructions = 0
        """Of all programs in ``_seen`` together."""

    def pack(self, program: Sequence[Instruction]) -> Packed:
        """The program in as few bytes as will do."""

        def entire(labels: Mapping[str, str]) -> list[Container]:
            return program_pieces(program, labels)

        if len(program) > MOST_INSTRUCTIONS:
            return Packed(entire)
        key, ids, arrays, operands = canonical(program, self._texts)
        if key not in self._seen:
            self._seen[key] = None
            self._instructions += _length(key)
            while len(self._seen) > MOST_PROGRAMS or self._instructions * INSTRUCTION_BYTES > MOST_BYTES:
                self._instructions -= _length(self._seen.popitem(last=False)[0])
            return Packed(entire)
        self._seen.move_to_end(key)
        before = self._seen[key]
        of_old = self._seen[key] = before or known(program, ids)
        return named(Remembered(of_old, ids, arrays, operands), before is not None)


def _length(key: Key) -> int:
    """How many instructions the program of a key has."""
    return len(key) // KEY_ITEMS


def named(remembered: Remembered, is_known: bool = True) -> Packed:
    """A program by its digest, and with its text, if the server has yet to read it."""

    def with_text(labels: Mapping[str, str]) -> list[Container]:
        return known_pieces(*remembered, True, labels)

    if not is_known:
        return Packed(with_text, None, remembered)
    return Packed(lambda labels: known_pieces(*remembered, False, labels), with_text, remembered)
