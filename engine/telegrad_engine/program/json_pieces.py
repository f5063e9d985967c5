"""A parser of long JSON texts that works in pieces, so that other threads run between them.

Python's parser holds the GIL until it is done, and so does NumPy while it converts a list: for seconds with the longest
body that a server accepts. Here a text is cut at commas, about every 32 KiB. Python's parser reads the complete values
between two cuts; this module handles only the brackets that are open across a cut. Long lists of numbers under ``data``
are converted to arrays piece by piece, so the whole list never exists as a Python list.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import MalformedRequest, TelegradError
from ..tensor.conversion import NumberList

PIECE = 2**15
"""The number of bytes that are parsed at a time, unless a string is longer."""
LONG = 2**14
"""The number of commas from which a list of numbers becomes an array."""
PAUSE_S = 1e-5
"""Seconds to sleep between two pieces: a thread that only yields the GIL often gets it back before any other."""
DATA = "data"
"""The key under which lists of numbers become arrays."""
_SPACE = b" \t\n\r"
_EXACT = (np.bool_, np.int64, np.float64)
"""The dtypes that NumPy infers from Python's numbers without loss."""


def loads(text: bytes, max_depth: int, decode: Callable[[str], Any], convert: Callable[[list[Any]], list[Any]]) -> Any:
    """Parse JSON, with :class:`NumberList` for long lists of numbers under ``data``.

    ``decode`` parses a complete text; ``convert`` replaces the strings for special numbers in nested lists.
    Raises MalformedRequest, also for nesting beyond ``max_depth``.
    """
    document = _Document(decode, convert)
    start = depth = 0
    while start < len(text):
        piece = _next_piece(text, start, depth, max_depth)
        try:
            document.feed(text[start : piece.end], piece)
        except (ValueError, RecursionError) as error:
            if isinstance(error, TelegradError):
                raise
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise MalformedRequest(f"the body is not JSON: {reason}, in bytes {start} to {piece.end}") from None
        start, depth = piece.end + 1, piece.depth
        time.sleep(PAUSE_S)
    return document.finish()


class _Piece(NamedTuple):
    end: int
    """The position of the comma after the piece, or the end of the text."""
    depth: int
    """The number of brackets that are open there."""
    brackets: list[int]
    """The positions in the piece of the brackets that have no partner in it."""
    last: bool


def _next_piece(text: bytes, start: int, depth: int, max_depth: int) -> _Piece:
    """Return the piece that begins at ``start``, where ``depth`` brackets are open. Raises MalformedRequest."""
    size = PIECE
    while True:
        window = text[start : start + size]
        last = start + size >= len(text)
        if b"\\" in window:
            window = window.replace(rb"\\", b"__").replace(rb"\"", b"__")
        codes = np.frombuffer(window, np.uint8)
        quoted = np.logical_xor.accumulate(codes == ord('"'))
        commas = np.flatnonzero((codes == ord(",")) & ~quoted)
        if len(commas) or last:
            break
        size *= 2
    end = len(window) if last else int(commas[-1])
    folded = codes[:end] | 0x20  # maps [ to { and ] to }
    steps = ((folded == ord("{")).view(np.int8) - (folded == ord("}")).view(np.int8)) * ~quoted[:end]
    places = np.flatnonzero(steps)
    depths = depth + np.cumsum(steps[places], dtype=np.int64)
    if len(depths) and depths.max() > max_depth:
        raise MalformedRequest(f"JSON nested more than {max_depth} levels deep")
    after = int(depths[-1]) if len(depths) else depth
    return _Piece(start + end, after, places[_unmatched(steps[places], depths, depth)].tolist(), last)


def _unmatched(steps: Any, depths: Any, depth: int) -> Any:
    """Return which brackets have no partner among these.

    They are closing brackets that go below all depths before, and opening ones that no later bracket goes below.
    """
    if not len(steps):
        return np.empty(0, np.bool_)
    lowest_before = np.minimum.accumulate(np.concatenate([[depth], depths[:-1]]))
    lowest_after = np.minimum.accumulate(np.concatenate([depths[1:], depths[-1:]])[::-1])[::-1]
    return np.where(steps < 0, depths < lowest_before, lowest_after >= depths)


class _Document:
    """The document that has been parsed so far, with the containers that are open."""

    def __init__(self, decode: Callable[[str], Any], convert: Callable[[list[Any]], list[Any]]) -> None:
        self._decode, self._convert = decode, convert
        self._open: list[_Container] = []
        self._root: list[Any] = []
        """The document as the only item, once it is complete."""

    def feed(self, text: bytes, piece: _Piece) -> None:
        """Add a piece."""
        begin = 0
        for place in piece.brackets:
            before, bracket = text[begin:place], text[place : place + 1]
            begin = place + 1
            if bracket in b"[{":
                self._begin(before, bracket == b"{")
            else:
                self._end(before, bracket == b"}")
        rest = text[begin:]
        if self._open:
            if piece.last:
                raise ValueError("the end is missing")
            self._open[-1].add(self._decode, rest, comma=True)
        elif not piece.last:
            raise ValueError("a comma outside lists and objects")
        elif rest.strip(_SPACE):
            self._set_root(self._decode(rest.decode()))

    def finish(self) -> Any:
        """Return the document. Raises MalformedRequest if it is incomplete."""
        if not self._root:
            raise MalformedRequest("the body is not JSON: it ends too early")
        return self._root[0]

    def _set_root(self, value: Any) -> None:
        if self._root:
            raise ValueError("extra data")
        self._root.append(value)

    def _begin(self, before: bytes, is_object: bool) -> None:
        if not self._open:
            if self._root or before.strip(_SPACE):
                raise ValueError("extra data")
            self._open.append(_Object() if is_object else _List(None))
            return
        key = self._open[-1].add_before_container(self._decode, before)
        outer = self._open[-1]
        numbers = isinstance(outer, _List) and outer.takes_numbers
        convert = self._convert if key == DATA or numbers else None
        self._open.append(_Object() if is_object else _List(convert))

    def _end(self, before: bytes, is_object: bool) -> None:
        if not self._open or isinstance(self._open[-1], _Object) != is_object:
            raise ValueError("brackets do not match")
        container = self._open.pop()
        container.add(self._decode, before)
        outer = self._open[-1] if self._open else None
        nested = isinstance(outer, _List) and outer.takes_numbers
        value = container.value(nested)
        if outer is None:
            self._set_root(value)
        else:
            outer.put(value, container.commas)


class _Container:
    """A list or an object that is open across a cut."""

    def __init__(self) -> None:
        self._needs_comma = self._needs_item = False
        self.commas = 0
        """The commas in the text that is not an array yet, which is about the number of items in a list of numbers."""

    def add(self, decode: Callable[[str], Any], text: bytes, comma: bool = False) -> None:
        """Add items before the container's end, or before a ``comma``."""
        text = text.strip(_SPACE)
        if self._needs_comma and text:
            text = self._without_comma(text)
        if text:
            self.commas += text.count(b",") + comma
            self._extend(self._parse(decode, text))
        elif self._needs_item or (comma and not self._needs_comma):
            raise ValueError("an item is missing")
        self._needs_item, self._needs_comma = comma, False

    def add_before_container(self, decode: Callable[[str], Any], text: bytes) -> Any:
        """Add the items before a nested container. Return the container's key, or None in a list."""
        text = text.strip(_SPACE)
        if self._needs_comma:
            text = self._without_comma(text)
        self._needs_comma = self._needs_item = False
        self.commas += text.count(b",")
        return self._extend_before(self._parse(decode, text + b"null"))

    def _without_comma(self, text: bytes) -> bytes:
        if not text.startswith(b","):
            raise ValueError("a comma is missing")
        self._needs_comma, self._needs_item = False, True
        return text[1:].strip(_SPACE)

    def put(self, value: Any, commas: int) -> None:
        """Add a nested container that has ended, whose text has ``commas`` commas."""
        self._needs_comma = True
        self.commas += commas
        self._put(value)

    def _parse(self, decode: Callable[[str], Any], text: bytes) -> Any:
        raise NotImplementedError

    def _extend(self, items: Any) -> None:
        raise NotImplementedError

    def _extend_before(self, items: Any) -> Any:
        raise NotImplementedError

    def _put(self, value: Any) -> None:
        raise NotImplementedError

    def value(self, nested: bool) -> Any:
        """Return the container. If it is ``nested`` in a list of numbers, it may be an array."""
        raise NotImplementedError


class _Object(_Container):
    def __init__(self) -> None:
        super().__init__()
        self._items: dict[str, Any] = {}
        self._key = ""

    def _parse(self, decode: Callable[[str], Any], text: bytes) -> Any:
        return decode("{" + text.decode() + "}")

    def _extend(self, items: dict[str, Any]) -> None:
        self._items.update(items)

    def _extend_before(self, items: dict[str, Any]) -> str:
        self._items.update(items)
        self._key = next(reversed(items))
        return self._key

    def _put(self, value: Any) -> None:
        self._items[self._key] = value

    def value(self, nested: bool) -> dict[str, Any]:
        return self._items


class _List(_Container):
    """A list. With ``convert``, long parts of it become arrays as long as all its items are numbers."""

    def __init__(self, convert: Callable[[list[Any]], list[Any]] | None) -> None:
        super().__init__()
        self._convert = convert
        self._blocks: list[Any] = []
        """Arrays of the items before those in ``_items``."""
        self._items: list[Any] = []

    @property
    def takes_numbers(self) -> bool:
        """Whether the list may become an array."""
        return self._convert is not None

    def _parse(self, decode: Callable[[str], Any], text: bytes) -> Any:
        return decode("[" + text.decode() + "]")

    def _extend(self, items: list[Any]) -> None:
        self._items += items
        if self.commas >= LONG:
            self._pack()

    def _extend_before(self, items: list[Any]) -> None:
        self._extend(items[:-1])

    def _put(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self._pack()
            if self._convert is not None:
                self._blocks.append(value[None])
                return
            value = value.tolist()
        self._extend([value])

    def _pack(self) -> None:
        """Convert the items to an array or, if that is impossible, everything to a list."""
        if self._convert is None:
            return
        block = _exact_array(self._convert, self._items) if self._items else None
        if block is not None and (not self._blocks or block.shape[1:] == self._blocks[0].shape[1:]):
            self._blocks.append(block)
            self._items, self.commas = [], 0
        elif self._items:
            self._items = self._as_list()
            self._blocks, self._convert = [], None

    def _as_list(self) -> list[Any]:
        return [item for block in self._blocks for item in block.tolist()] + self._items

    def value(self, nested: bool) -> Any:
        if self._blocks:
            self._pack()
        if not self._blocks:
            return self._items
        if any(block.shape[1:] != self._blocks[0].shape[1:] for block in self._blocks):
            return self._as_list()
        array = np.concatenate(self._blocks)
        if nested:
            return array
        return NumberList(array) if array.size else self._as_list()  # an array without elements stays lists


def _exact_array(convert: Callable[[list[Any]], list[Any]], items: list[Any]) -> Any:
    """Return the items as a bool, int64 or float64 array; None if NumPy infers another dtype or fails."""
    try:
        array = np.array(convert(items))
    except (ValueError, TypeError, OverflowError):
        return None
    return array if array.dtype in _EXACT else None
