"""Long JSON texts are read in pieces: as Python's parser reads them, and with the tensors that lists would give.

Internals: the parser is tested alone, since a text is read in pieces only if it is long.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrad_engine.errors import MalformedRequest
from telegrad_engine.program import json_codec
from telegrad_engine.tensor.conversion import NumberList, as_array

pytestmark = pytest.mark.full

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20), st.sampled_from(['a,"]\\[{', "\\", '\\"', "\\\\", "é" * 9, "NaN"]),
)  # fmt: skip
KEYS = st.one_of(st.just("data"), st.text(max_size=5))
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=30
)


def long_text(document: Any, begin: int, **options: Any) -> bytes:
    """Many copies of a document, so that cuts fall at many places of it."""
    text = json.dumps(document, **options).encode()
    copies = b",".join([text] * (1 + json_codec.LONG // (len(text) + 1)))
    return b'{"pad":"' + b"x" * begin + b'","list":[' + copies + b"]}"


def plain(data: Any) -> Any:
    if isinstance(data, NumberList):
        return data.array.tolist()
    if isinstance(data, list):
        return [plain(x) for x in data]
    return {key: plain(x) for key, x in data.items()} if isinstance(data, dict) else data


@given(DOCUMENTS, st.integers(0, 100), st.sampled_from([None, 1]), st.booleans())
def test_a_long_text_is_read_as_a_short_one(document: Any, begin: int, indent: int | None, ascii_only: bool) -> None:
    text = long_text(document, begin, indent=indent, ensure_ascii=ascii_only)
    assert plain(json_codec.loads(text)) == json.loads(text)


def is_json(text: bytes) -> bool:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(text.decode(), parse_constant=refuse)
    except ValueError:
        return False
    return True


@given(DOCUMENTS, st.floats(0, 1), st.sampled_from([*b'[]{},:"\\ 1n\xff', None]), st.booleans())
def test_a_mistake_anywhere_is_found(document: Any, where: float, byte: int | None, replaces: bool) -> None:
    text = bytearray(long_text(document, 0))
    place = int(where * (len(text) - 1))
    text[place : place + (replaces or byte is None)] = b"" if byte is None else bytes([byte])
    if is_json(bytes(text)):
        assert plain(json_codec.loads(bytes(text))) == json.loads(text)
    else:
        with pytest.raises(MalformedRequest, match=r"is not JSON|nested more"):
            json_codec.loads(bytes(text), 500)


@pytest.mark.parametrize("text", [b"[%b]", b"[%b", b"%b", b"[%b,]", b"[%b]]", b"{%b}", b"[%b] 1", b"[,%b]"])
def test_ends_of_long_texts(text: bytes) -> None:
    text = text % b",".join([b"[1,2]"] * 2**15)
    if is_json(text):
        assert json_codec.loads(text) == json.loads(text)
    else:
        with pytest.raises(MalformedRequest):
            json_codec.loads(text)


def test_long_texts_nest_no_deeper_than_short_ones() -> None:
    text = b"[" + b"1," * 2**16 + b"[" * 9 + b"]" * 9 + b"]"
    assert json_codec.loads(text, 10)[-1] == [[[[[[[[[]]]]]]]]]
    with pytest.raises(MalformedRequest, match="nested more than 9 levels deep"):
        json_codec.loads(text, 9)


N = 2**15
INTS, FLOATS = list(range(N)), (np.arange(N) / 3).tolist()
NUMBERS = {
    "ints": INTS,
    "floats": FLOATS,
    "bools": [True, False] * N,
    "ints, then floats": INTS + FLOATS,
    "bools, then ints": [True] * N + INTS,
    "large ints, then floats": [2**53 + 1] * N + [0.5],
    "words": ["NaN", "Infinity", 1.5, "-Infinity"] * N,
    "rows": np.reshape(FLOATS, (-1, 8)).tolist(),
    "rows of one": np.reshape(INTS, (-1, 1)).tolist(),
    "long rows": np.reshape(FLOATS, (8, -1)).tolist(),
    "rows of 10,000": np.arange(100_000.0).reshape(10, -1).tolist(),
    "three dimensions": np.reshape(FLOATS, (2, 4, -1)).tolist(),
    "empty rows": [[]] * N,
    "a word that is none": [*FLOATS, "nan"],
    "a null": [*FLOATS, None],
    "an object": [*FLOATS, {}],
    "an int beyond int64": [*INTS, 2**63],
    "an int beyond any dtype": [*INTS, 2**70],
    "a shorter row": [*np.reshape(FLOATS, (-1, 8)).tolist(), [1.0]],
    "a longer row at the end": [*np.reshape(FLOATS, (8, -1)).tolist(), FLOATS],
    "a number among rows": [*np.reshape(FLOATS, (-1, 8)).tolist(), 1.0],
}


def outcome(data: Any, dtype: str | None) -> Any:
    try:
        array = as_array(json_codec.from_lists(data), dtype)
    except Exception as error:
        return type(error), str(error)
    return array.shape, array.dtype, array.tobytes()


@pytest.mark.parametrize("name", NUMBERS)
def test_long_lists_become_the_tensors_that_short_ones_do(name: str) -> None:
    data = json_codec.loads(json_codec.dumps({"id": "x", "data": NUMBERS[name]}))["data"]
    for dtype in (None, "float64", "int64", "int8"):
        assert outcome(data, dtype) == outcome(NUMBERS[name], dtype), dtype


def test_what_was_read_can_be_written() -> None:
    text = json_codec.dumps({"data": NUMBERS["rows"]})
    assert json_codec.dumps(json_codec.loads(text)) == text
