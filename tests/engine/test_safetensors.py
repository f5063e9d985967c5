"""Our safetensors codec against the safetensors library, both ways, and against broken containers.

Internals: the codec is tested alone, with containers that no client of ours makes.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from telegrad_engine.dtypes import ALL
from telegrad_engine.errors import DTypeMismatch, MalformedRequest, TelegradError
from telegrad_engine.program import safetensors as codec

DTYPES = [d.numpy for d in ALL if d.name != "bfloat16"]
ARRAYS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda name: name != "__metadata__"),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: st_numpy.arrays(dtype, st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    ),
    max_size=4,
)


def same(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


@given(ARRAYS, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_round_trip(arrays: dict[str, Any], metadata: dict[str, str]) -> None:
    got_metadata, got = codec.decode(codec.encode(metadata, arrays))
    assert got_metadata == metadata
    assert got.keys() == arrays.keys()
    assert all(same(got[name], arrays[name]) for name in arrays)


@given(ARRAYS)
def test_the_library_reads_ours(arrays: dict[str, Any]) -> None:
    got = safetensors.numpy.load(codec.encode({"k": "v"}, arrays))
    assert got.keys() == arrays.keys()
    assert all(same(got[name], arrays[name]) for name in arrays)


@given(ARRAYS)
def test_we_read_the_library_s(arrays: dict[str, Any]) -> None:
    metadata, got = codec.decode(safetensors.numpy.save(arrays, {"k": "v"}))
    assert metadata == {"k": "v"}
    assert all(same(got[name], arrays[name]) for name in arrays)


def test_bfloat16_as_torch_writes_it() -> None:
    tensor = torch.tensor([1.5, -2.0, 3.25], dtype=torch.bfloat16)
    _, got = codec.decode(safetensors.torch.save({"x": tensor}))
    assert got["x"].dtype == ml_dtypes.bfloat16
    assert got["x"].astype(np.float32).tolist() == tensor.float().tolist()


def test_large_containers_are_as_small_ones() -> None:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal((300, 1000)), "few": rng.standard_normal(3), "none": np.zeros((0, 2))}
    arrays["turned"] = rng.standard_normal((200, 700)).T
    whole = codec.encode({"k": "v"}, arrays)
    assert len(whole) > codec.LARGE
    got = safetensors.numpy.load(bytes(whole))
    assert got.keys() == arrays.keys()
    assert all(same(got[name], arrays[name]) for name in arrays)


def test_decoding_copies_nothing() -> None:
    body = bytearray(codec.encode({}, {"x": np.zeros(3, np.float32)}))
    _, arrays = codec.decode(body)
    body[-4:] = np.float32(7).tobytes()
    assert arrays["x"][-1] == 7


def container(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(shape: list[Any], offsets: list[Any], dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


BROKEN = {
    "empty": b"",
    "truncated length": b"\x01\x00",
    "header beyond the end": (100).to_bytes(8, "little") + b"{}",
    "a header of 1 GB": (2**30).to_bytes(8, "little") + b"{}",
    "a header of 2^63 bytes": b"\xff" * 8 + b"{}",
    "not JSON": container(b"{]"),
    "not UTF-8": container(b'{"\xff": 1}'),
    "nested 10,000 deep": container(b"[" * 10_000),
    "not an object": container([]),
    "metadata not strings": container({"__metadata__": {"a": 1}}),
    "no offsets": container({"x": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    "beyond the end": container({"x": entry([2], [0, 8])}, bytes(4)),
    "wrong size": container({"x": entry([3], [0, 8])}, bytes(8)),
    "negative": container({"x": entry([1], [-4, 0])}, bytes(4)),
    "backwards": container({"x": entry([1], [4, 0])}, bytes(4)),
    "a bool for a size": container({"x": entry([True], [0, 4])}, bytes(4)),
    "a fraction for a size": container({"x": entry([1.0], [0, 4])}, bytes(4)),
    "huge": container({"x": entry([2**40, 2**40], [0, 2**61])}),
    "zero times huge": container({"x": entry([0, 2**70], [0, 0])}),
    "overlapping": container({"x": entry([1], [0, 4]), "y": entry([1], [0, 4])}, bytes(4)),
    "a hole": container({"x": entry([1], [0, 4]), "y": entry([1], [8, 12])}, bytes(12)),
    "bytes left over": container({"x": entry([1], [0, 4])}, bytes(5)),
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_broken_containers_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest, match="safetensors"):
        codec.decode(body)


@pytest.mark.parametrize("dtype", ["C64", "F8_E4M3", "", 3, None, ["F32"]])
def test_unknown_dtypes_are_named(dtype: Any) -> None:
    with pytest.raises(DTypeMismatch, match="unsupported dtype"):
        codec.decode(container({"x": entry([1], [0, 4], dtype)}, bytes(4)))


@given(st.binary(max_size=200))
def test_noise_is_refused_or_read(body: bytes) -> None:
    with contextlib.suppress(TelegradError):
        codec.decode(body)


@given(st.integers(0, 200), st.integers(0, 255))
def test_one_wrong_byte_never_crashes(position: int, value: int) -> None:
    body = bytearray(codec.encode({"program": "{}"}, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}))
    body[position % len(body)] = value
    with contextlib.suppress(TelegradError):
        codec.decode(body)
