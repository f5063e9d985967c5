"""Strict JSON for programs, values and descriptions, with NaN and infinities as strings.

Numbers in programs and values are parsed like Python numbers, with integers of any length. The headers and ids of
containers are parsed with a faster library (docs/maintainers/tuning.md).

Python's parser holds the GIL until it is done, and so does NumPy while it converts a list: for seconds with the longest
body that a server accepts. So long texts are parsed in pieces, between which other threads run: Python's parser reads
values that lie in a window of 32 KiB, and only the brackets, commas and colons of longer lists and objects are read
here. Long lists of numbers under ``data`` are converted to arrays window by window, so the whole list never exists as a
Python list.
"""

from __future__ import annotations

import codecs
import json
import re
import time
from typing import Any

import numpy as np
import orjson

from ..errors import InvalidArgument, MalformedRequest, TelegradError
from ..schema.parameters import NumberKind
from ..tensor.conversion import NumberList

MAX_DEPTH = 64
PIECE = 2**14
LONG = 2**16
"""The size in bytes of the longest text that is parsed in one call."""
_LONG_NUMBERS = re.compile(rb"[0-9]{18}")
NUMBER_WORDS = {"NaN", "Infinity", "-Infinity"}


def loads(body: bytes, max_depth: int = MAX_DEPTH) -> Any:
    """Parse strict JSON. Raises MalformedRequest for anything else, and for nesting beyond ``max_depth``.

    A long text is parsed in pieces, with a :class:`NumberList` for each long list of numbers under ``data``.
    """
    if len(body) > LONG:
        return _loads_in_pieces(body, max_depth)
    check_depth(body, max_depth)
    try:
        return _DECODER.decode(body.decode())
    except RecursionError:
        raise MalformedRequest(f"JSON nested more than {max_depth} levels deep") from None
    except (ValueError, UnicodeDecodeError) as error:
        if isinstance(error, MalformedRequest):
            raise
        raise MalformedRequest(f"the body is not JSON: {error}") from None


def loads_program(body: bytes, max_depth: int = MAX_DEPTH) -> Any:
    """Parse instructions as ``loads`` does, with a faster library unless there are long numbers or deep attributes."""
    if _LONG_NUMBERS.search(body) is None:
        try:
            data = loads_plain(body)
        except ValueError:
            return loads(body, max_depth)
        instructions = data.get("instructions") if isinstance(data, dict) else data
        if isinstance(instructions, list) and not any(_is_deep(x, max_depth - 2) for x in instructions):
            return data
    return loads(body, max_depth)


def _is_deep(instruction: Any, most: int) -> bool:
    """Return whether an instruction nests more than ``most`` levels deep because of its attributes."""
    attrs = instruction.get("attrs") if isinstance(instruction, dict) else None
    return bool(attrs) and _nests(attrs, most - 1)


def _nests(value: Any, levels: int) -> bool:
    """Return whether a value nests more than ``levels`` levels deep."""
    if type(value) is not dict and type(value) is not list:
        return False
    return levels <= 0 or any(_nests(x, levels - 1) for x in (value.values() if type(value) is dict else value))


def _refuse_constant(word: str) -> Any:
    raise MalformedRequest(f'{word} is not JSON; write it as the string "{word}"')


def _lists_of(value: Any) -> Any:
    if isinstance(value, NumberList):
        return to_lists(value.array)
    raise TypeError(f"JSON has no {type(value).__name__}")


# Made once: json.loads and json.dumps make a new one for every call with options.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False, default=_lists_of)


def dumps(data: Any) -> bytes:
    """Encode data as compact strict JSON."""
    return _ENCODER.encode(data).encode()


def loads_plain(body: bytes | memoryview) -> Any:
    """Parse JSON that has no long integers with the faster library. Raises ValueError if it is not JSON."""
    return orjson.loads(body)


def dumps_plain(data: Any) -> bytes:
    """Encode data as compact JSON with the faster library. Raises ValueError for data that it cannot encode."""
    try:
        return orjson.dumps(data)
    except TypeError as error:  # for example a lone surrogate
        raise ValueError(str(error)) from None


def dumps_ascii(data: Any) -> bytes:
    """Encode data as ``dumps`` does, with the faster library if all its text is ASCII; data must have no NaN."""
    try:
        text = orjson.dumps(data)
    except TypeError:
        return dumps(data)
    return text if text.isascii() else dumps(data)


def to_lists(array: Any) -> Any:
    """Convert an array to nested lists, with NaN and infinities as strings."""
    array, special = _prepare(array)
    return _name_specials(array.tolist()) if special else array.tolist()


def dumps_array(array: Any) -> bytes:
    """Encode an array as JSON, in the form of ``to_lists``.

    The array is encoded in pieces, because the encoder holds the GIL until it returns.
    """
    return _dumps_pieces(*_prepare(array))


def _dumps_pieces(array: Any, special: bool) -> bytes:
    if array.size <= PIECE:
        return dumps(_name_specials(array.tolist()) if special else array.tolist())
    if array.ndim > 1:
        return b"[" + b",".join([_dumps_pieces(part, special) for part in array]) + b"]"
    parts = (array[i : i + PIECE] for i in range(0, array.size, PIECE))
    return b"[" + b",".join([_dumps_pieces(part, special)[1:-1] for part in parts]) + b"]"


def _prepare(array: Any) -> tuple[Any, bool]:
    """Return the array with a dtype that lists can hold, and whether it has NaN or infinities."""
    if array.dtype.kind == "V":  # bfloat16, which tolist() would leave as objects
        array = array.astype(np.float32)
    return array, array.dtype.kind == "f" and not np.isfinite(array).all()


def _name_specials(data: Any) -> Any:
    if isinstance(data, list):
        return [_name_specials(x) for x in data]
    return "NaN" if data != data else "Infinity" if data == np.inf else "-Infinity" if data == -np.inf else data


def from_lists(data: Any) -> Any:
    """Replace the strings "NaN", "Infinity" and "-Infinity" in nested lists with numbers.

    Raises InvalidArgument for any other string.
    """
    if isinstance(data, list):
        if any(isinstance(x, (str, list)) for x in data):
            return [from_lists(x) for x in data]
        return data
    if isinstance(data, str):
        if data not in NUMBER_WORDS:
            raise InvalidArgument(f"new(): invalid data type 'str' ({data!r:.40})")
        return NumberKind().parse(data)
    return data


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


def _loads_in_pieces(text: bytes, max_depth: int) -> Any:
    """Parse JSON, with :class:`NumberList` for long lists of numbers under ``data``.

    Raises MalformedRequest, also for nesting beyond ``max_depth``.
    """
    document = _Document(text, max_depth)
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

    def __init__(self, text: bytes, max_depth: int) -> None:
        self._text, self._max_depth = text, max_depth
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
                value, end = _DECODER.raw_decode(self._window, self._at)
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
        found = _List(numbers)
        ending = self._next()
        while ending != "]":
            found.extend(self._items() or [self._value(found.numbers)], self.begin)
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
            items, length = _DECODER.raw_decode(text)
        except ValueError:
            return []
        if not items or length < len(text):  # the comma is after the list's end
            return []
        self._at = end
        return items


class _List:
    """The items of a long list. With ``numbers``, they become arrays as long as all of them are numbers."""

    def __init__(self, numbers: bool) -> None:
        self.numbers = numbers
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
        if not self.numbers or not self._items:
            return
        try:
            block = np.array(from_lists(self._items))
        except (ValueError, TypeError, OverflowError):
            block = None
        items, self._items = self._items, []
        self._append(block if block is not None and block.dtype in _EXACT else None, items)

    def _append(self, block: Any, items: list[Any] | None = None) -> None:
        """Add an array of ``items``. If it is None, or shaped unlike the others, convert everything to a list."""
        fits = self.numbers and block is not None
        if fits and all(block.shape[1:] == other.shape[1:] for other in self._blocks[:1]):
            self._blocks.append(block)
            return
        self._items += self._as_list() + (block.tolist() if items is None else items)
        self._blocks, self.numbers = [], False

    def _as_list(self) -> list[Any]:
        return [item for block in self._blocks for item in block.tolist()]

    def value(self) -> Any:
        """Return the list, or an array of its items."""
        self._pack()
        if not self._blocks:
            return self._items
        array = np.concatenate(self._blocks)
        return array if array.size else self._as_list()  # an array without elements stays lists
