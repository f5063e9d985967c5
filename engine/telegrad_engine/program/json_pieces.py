"""A parser of long JSON texts that works in pieces, so that other threads run between them.

Python's parser holds the GIL until it is done, and so does NumPy while it converts a list: for seconds with the longest
body that a server accepts. Here Python's parser reads values that lie in a window of 32 KiB; this module reads only the
brackets, commas and colons of lists and objects that are longer. Long lists of numbers under ``data`` are converted to
arrays window by window, so the whole list never exists as a Python list.
"""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import MalformedRequest, TelegradError
from ..tensor.conversion import NumberList

WINDOW = 2**15
"""The number of bytes that are parsed at a time, unless a string is longer."""
PAUSE_S = 1e-5
"""Seconds to sleep between two windows: a thread that only yields the GIL often gets it back before any other."""
DATA = "data"
"""The key under which lists of numbers become arrays."""
_CUT = 2
"""The most characters by which a window may end after a number that is read as a shorter one, as in ``1e+``."""
_ENDS = {"[": "],", "{": "},", '"': '",'}
"""The end of an item and the comma after it, by the item's first character."""
_EXACT = (np.bool_, np.int64, np.float64)
"""The dtypes that NumPy infers from Python's numbers without loss."""
_skip_space = re.compile(r"[ \t\n\r]*").match
# Without backtracking and with an optional closing quote, matching takes linear time for any body.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(c for c in range(256) if c not in b"[]{}")
Convert = Callable[[list[Any]], list[Any]]


def loads(text: bytes, max_depth: int, decoder: json.JSONDecoder, convert: Convert) -> Any:
    """Parse JSON, with :class:`NumberList` for long lists of numbers under ``data``.

    ``convert`` replaces the strings for special numbers in nested lists.
    Raises MalformedRequest, also for nesting beyond ``max_depth``.
    """
    document = _Document(text, max_depth, decoder, convert)
    try:
        return document.read()
    except (ValueError, RecursionError) as error:
        if isinstance(error, TelegradError):
            raise
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        place = f"bytes {document.begin} to {document.end}"
        raise MalformedRequest(f"the body is not JSON: {reason}, in {place}") from None


def check_depth(text: bytes, limit: int, depth: int = 0) -> None:
    """Raise MalformedRequest if the brackets outside strings nest too deep, before any parser recurses.

    ``depth`` is how many are open before the text.
    """
    if depth + text.count(b"[") + text.count(b"{") <= limit:
        return
    # Without escapes, every second part between quotes is outside strings.
    outside = _STRINGS.sub(b"", text) if b"\\" in text else b"".join(text.split(b'"')[::2])
    brackets = np.frombuffer(outside.translate(None, _NOT_BRACKETS), np.uint8)
    opening = (brackets == ord("[")) | (brackets == ord("{"))
    if depth + np.cumsum(np.where(opening, 1, -1)).max(initial=0) > limit:
        raise MalformedRequest(f"JSON nested more than {limit} levels deep")


class _Document:
    """A text that is read from its beginning to its end."""

    def __init__(self, text: bytes, max_depth: int, decoder: json.JSONDecoder, convert: Convert) -> None:
        self._text, self._max_depth = text, max_depth
        self._parse, self._convert = decoder.raw_decode, convert
        self._depth = 0
        """How many lists and objects are open that are longer than a window."""
        self.begin = self.end = 0
        """The position of the window in the text, in bytes."""
        self._window = ""
        self._at = 0
        """How much of the window has been read, in characters."""
        self._tried = -1
        """The beginning of the last window of which many items were to be parsed in one call."""

    @property
    def _is_last(self) -> bool:
        return self.end == len(self._text)

    def read(self) -> Any:
        """Return the document. Raises ValueError."""
        value = self._value()
        if self._next():
            raise ValueError("Extra data")
        return value

    def _advance(self, size: int = WINDOW) -> None:
        """Move the window to what has not been read."""
        time.sleep(PAUSE_S)
        read = self._window[: self._at]
        self.begin += self._at if read.isascii() else len(read.encode())
        self.end = min(self.begin + size, len(self._text))
        content = self._text[self.begin : self.end]
        check_depth(content, self._max_depth, self._depth)
        self._window, length = codecs.utf_8_decode(content, "strict", self._is_last)
        self.end, self._at = self.begin + length, 0

    def _next(self) -> str:
        """Return the next character that is not white space; an empty string at the end."""
        while True:
            self._at = _skip_space(self._window, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._window) or self._is_last:
                return self._window[self._at : self._at + 1]
            self._advance()

    def _take(self, expected: str) -> str:
        """Return the next character and go on after it. Raises ValueError if it is not ``expected``."""
        found = self._next()
        if not found or found not in expected:
            raise ValueError(f"Expecting {' or '.join(map(repr, expected))}")
        self._at += 1
        return found

    def _value(self, numbers: bool = False) -> Any:
        """Read a value. If it is a long list and ``numbers`` is true, it may be an array."""
        first, size = self._next(), WINDOW
        while True:
            try:
                value, end = self._parse(self._window, self._at)
                if end < len(self._window) - _CUT or self._is_last:
                    self._at = end
                    return value
            except ValueError as error:
                if self._is_last or isinstance(error, TelegradError):
                    raise
            if self._at == 0:
                if first == "[":
                    return self._list(numbers)
                if first == "{":
                    return self._object()
                size *= 2
            self._advance(size)

    def _object(self) -> dict[str, Any]:
        """Read an object that is longer than the window."""
        self._at, self._depth = self._at + 1, self._depth + 1
        found: dict[str, Any] = {}
        ending = self._next()
        while ending != "}":
            if self._next() != '"':
                raise ValueError("Expecting property name enclosed in double quotes")
            key = self._value()
            self._take(":")
            value = self._value(numbers=key == DATA)
            found[key] = NumberList(value) if isinstance(value, np.ndarray) else value
            ending = self._take(",}")
        self._depth -= 1
        return found

    def _list(self, numbers: bool) -> Any:
        """Read a list that is longer than the window."""
        self._at, self._depth = self._at + 1, self._depth + 1
        found = _List(self._convert if numbers else None)
        ending = self._next()
        while ending != "]":
            found.extend(self._items() or [self._value(found.convert is not None)], self.begin)
            ending = self._take(",]")
        self._depth -= 1
        return found.value()

    def _items(self) -> list[Any]:
        """Read most of the window's items in one call; return an empty list if that fails."""
        first = self._next()
        if self._tried == self.begin or not first:
            return []
        self._tried = self.begin
        ending = _ENDS.get(first, ",")
        end = self._window.rfind(ending, self._at) + len(ending) - 1
        text = f"[{self._window[self._at : max(self._at, end)]}]"
        items: list[Any]
        try:
            items, length = self._parse(text)
        except ValueError:
            return []
        if not items or length < len(text):  # the comma is after the list's end
            return []
        self._at = end
        return items


class _List:
    """The items of a long list. With ``convert``, they become arrays as long as all of them are numbers."""

    def __init__(self, convert: Convert | None) -> None:
        self.convert = convert
        self._blocks: list[Any] = []
        """Arrays of the items before those in ``_items``."""
        self._items: list[Any] = []
        self._place = 0
        """Where in the text those begin, within a window."""

    def extend(self, items: list[Any], place: int) -> None:
        """Add items of the window at this place."""
        if isinstance(items[0], np.ndarray):
            self._pack()
            self._append(items[0][None])
            return
        self._items += items
        if place > self._place:
            self._place = place
            self._pack()

    def _pack(self) -> None:
        """Convert the items to an array if that is possible without loss."""
        if self.convert is None or not self._items:
            return
        try:
            block = np.array(self.convert(self._items))
        except (ValueError, TypeError, OverflowError):
            block = None
        items, self._items = self._items, []
        self._append(block if block is not None and block.dtype in _EXACT else None, items)

    def _append(self, block: Any, items: list[Any] | None = None) -> None:
        """Add an array of ``items``. If it is None, or shaped unlike the others, convert everything to a list."""
        fits = self.convert is not None and block is not None
        if fits and all(block.shape[1:] == other.shape[1:] for other in self._blocks[:1]):
            self._blocks.append(block)
            return
        self._items += self._as_list() + (block.tolist() if items is None else items)
        self._blocks, self.convert = [], None

    def _as_list(self) -> list[Any]:
        return [item for block in self._blocks for item in block.tolist()]

    def value(self) -> Any:
        """Return the list, or an array of its items."""
        self._pack()
        if not self._blocks:
            return self._items
        array = np.concatenate(self._blocks)
        return array if array.size else self._as_list()  # an array without elements stays lists
