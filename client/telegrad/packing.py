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
SHOWN_DIGITS = 12
"""How many digits of a digest stand for it where people read it."""
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
        self._newest: Key | None = None
        """The last program that was sent for the first time."""

    def pack(self, program: Sequence[Instruction]) -> Packed:
        """The program in as few bytes as will do."""

        def entire(labels: Mapping[str, str]) -> list[Container]:
            return program_pieces(program, labels)

        if len(program) > MOST_INSTRUCTIONS:
            return Packed(entire)
        key, ids, arrays, operands = canonical(program, self._texts)
        if key not in self._seen:
            self._newest = key
            self._seen[key] = None
            self._instructions += _length(key)
            while len(self._seen) > MOST_PROGRAMS or self._instructions * INSTRUCTION_BYTES > MOST_BYTES:
                self._instructions -= _length(self._seen.popitem(last=False)[0])
            return Packed(entire)
        self._seen.move_to_end(key)
        before = self._seen[key]
        of_old = self._seen[key] = before or known(program, ids)
        return named(Remembered(of_old, ids, arrays, operands), before is not None)

    def misses(self) -> list[dict[str, Any]]:
        """The report of the last program that was new, with what tells it from the one that is most like it."""
        key = self._newest
        if key is None:
            return []
        others = {other: known for other, known in self._seen.items() if other != key}
        reason = "it was sent for the first time"
        if others:
            nearest = max(others, key=lambda other: _likeness(key, other))
            known = others[nearest]
            name = "one that was sent once" if known is None else f"program {known.digest[:SHOWN_DIGITS]}"
            reason += f"; unlike {name}, {_difference(key, nearest)}"
        counts = dict.fromkeys(("planned_runs", "compiled_runs"), 0)
        return [{"digest": None, "instructions": _length(key), "runs": 1, **counts, "reason": reason}]


def _likeness(key: Key, other: Key) -> int:
    """How many instructions two programs have in common at their beginnings and at their ends."""
    lengths = _length(key), _length(other)
    first = _common(key, other)
    rest = min(lengths) - first
    last = next((i for i in range(rest) if _end(key, i) != _end(other, i)), rest)
    return first + last - (max(lengths) - min(lengths))


def _common(key: Key, other: Key) -> int:
    """How many instructions two programs begin with that are the same."""
    shared = min(_length(key), _length(other))
    return next((i for i in range(shared) if _part(key, i) != _part(other, i)), shared)


def _difference(key: Key, other: Key) -> str:
    """What comes first that two programs do not have in common."""
    index = _common(key, other)
    if index == _length(key):
        return f"it ends before instruction {index}, {_part(other, index)[0]}"
    op, inputs, _, attrs, mode = _part(key, index)
    if index == _length(other):
        return f"it has an instruction {index}, {op}"
    before = _part(other, index)
    if op != before[0]:
        return f"instruction {index} is {op}, and not {before[0]}"
    if attrs != before[3]:
        return f"instruction {index}, {op}, has {attrs or 'no settings'}, and not {before[3] or 'none'}"
    if mode != before[4]:
        return f"instruction {index}, {op}, is recorded in another grad mode"
    return f"instruction {index}, {op}, {'takes' if inputs != before[1] else 'makes'} other tensors"


def _part(key: Key, index: int) -> Key:
    """One instruction of a program's key: op, inputs, outputs, attributes and grad mode."""
    return key[KEY_ITEMS * index : KEY_ITEMS * (index + 1)]


def _end(key: Key, index: int) -> Key:
    """Likewise, counted from the end."""
    return _part(key, _length(key) - 1 - index)


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
