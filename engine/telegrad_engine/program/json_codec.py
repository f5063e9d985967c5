"""Strict JSON for programs, values and descriptions, with NaN and infinities as strings.

Numbers in programs and values are parsed like Python numbers, with integers of any length. The headers and ids of
containers are parsed with a faster library (docs/explanation/tuning.md).
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import orjson

from ..errors import InvalidArgument, MalformedRequest
from ..schema.parameters import NumberKind
from ..tensor.conversion import NumberList
from . import json_pieces

MAX_DEPTH = 64
PIECE = 2**14
LONG = 2**16
"""The size in bytes of the longest text that is parsed in one call."""
_LONG_NUMBERS = re.compile(rb"[0-9]{18}")
_WORDS = {"NaN", "Infinity", "-Infinity"}


def loads(body: bytes, max_depth: int = MAX_DEPTH) -> Any:
    """Parse strict JSON. Raises MalformedRequest for anything else, and for nesting beyond ``max_depth``.

    A long text is parsed in pieces, with a :class:`NumberList` for each long list of numbers under ``data``.
    """
    if len(body) > LONG:
        return json_pieces.loads(body, max_depth, _DECODER, from_lists)
    json_pieces.check_depth(body, max_depth)
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
        if data not in _WORDS:
            raise InvalidArgument(f"new(): invalid data type 'str' ({data!r:.40})")
        return NumberKind().parse(data)
    return data
