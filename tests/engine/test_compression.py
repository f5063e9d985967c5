"""zstd frames: what is in one comes out as it was, and nothing else does, whatever it promises.

Internals: the codec is tested alone, with frames that no client of ours makes.
"""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
from backports import zstd

from telegrad_engine.errors import MalformedRequest, TooLarge
from telegrad_engine.program.compression import LEAST, PIECE, available, compress, decompress, is_frame

from ..frames import BLOCK, bomb, unsized

MIB = 2**20
GIB = 2**30


def numbers(size: int) -> bytes:
    """Bytes that can be compressed, but not to nothing."""
    return np.random.default_rng(size).integers(0, 16, size, dtype=np.uint8).tobytes()


@pytest.mark.parametrize("size", [LEAST, PIECE - 1, PIECE, PIECE + 1, 3 * MIB + 5, 17 * MIB])
def test_a_body_comes_back(size: int) -> None:
    body = numbers(size)
    frame = compress(body)
    assert is_frame(frame) and len(frame) < 0.6 * size
    for given in (frame, memoryview(frame)):
        assert decompress(given, size) == body
    assert zstd.decompress(frame) == body
    assert compress(memoryview(body)) == frame
    assert memoryview(decompress(frame, size)).readonly is False


@pytest.mark.parametrize("size", [0, 1, 1000, PIECE, 3 * PIECE + 7])
def test_frames_of_other_writers(size: int) -> None:
    body = numbers(size)
    checked = zstd.compress(body, options={zstd.CompressionParameter.checksum_flag: 1})
    for frame in (zstd.compress(body, 19), unsized(body), checked):
        assert decompress(frame, size) == body
        if size:
            with pytest.raises(TooLarge, match=f"at most {size - 1} bytes"):
                decompress(frame, size - 1)


def test_what_is_not_worth_it_stays_as_it_is() -> None:
    noise = np.random.default_rng(0).bytes(9 * MIB)
    for body in (b"", b"0" * (LEAST - 1), noise[:LEAST], noise[:MIB], noise, memoryview(noise)):
        assert compress(body) is body


def test_long_bodies_are_judged_by_pieces_of_them() -> None:
    noise, zeros = np.random.default_rng(0).bytes(5 * MIB), bytes(5 * MIB)
    for body in (noise + zeros, zeros + noise, bytes(40 * MIB)):
        assert len(compress(body)) < 0.6 * len(body)


def test_a_container_is_no_frame() -> None:
    for length in (0, 16 * MIB, 2**32 - 1):
        head = length.to_bytes(8, "little")
        assert not is_frame(head) or length > GIB


def test_a_frame_cut_anywhere() -> None:
    for frame in (compress(numbers(LEAST)), unsized(numbers(2000)), zstd.compress(b""), bomb(2 * BLOCK)):
        step = max(1, len(frame) // 500)
        for end in {*range(min(len(frame), 64)), *range(0, len(frame), step), len(frame) - 1}:
            with pytest.raises(MalformedRequest, match="zstd: "):
                decompress(frame[:end], MIB)


@pytest.mark.parametrize("more", [b"\0", b"more", zstd.compress(b"second"), b"\x50\x2a\x4d\x18\x01\0\0\0x"])
def test_bytes_after_the_frame(more: bytes) -> None:
    for frame in (compress(numbers(LEAST)), zstd.compress(b""), unsized(b"x" * 1000)):
        with pytest.raises(MalformedRequest, match="after the frame"):
            decompress(frame + more, MIB)  # type: ignore[operator]


def test_what_is_no_frame() -> None:
    dictionary = zstd.ZstdDict(b"0123456789" * 10, is_raw=True)
    for body in (
        b"",
        b"\x28\xb5\x2f",
        b"{}",
        b"\x1f\x8b" + bytes(50),
        b"\x50\x2a\x4d\x18\0\0\0\0",
        b"\xfd\x2f\xb5\x28" * 9,
    ):
        with pytest.raises(MalformedRequest, match="does not begin"):
            decompress(body, MIB)
    for body in (b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd" + b"\xff" * 40):
        with pytest.raises(MalformedRequest, match="damaged"):
            decompress(body, MIB)
    with pytest.raises(MalformedRequest):
        decompress(zstd.compress(b"0123456789" * 50, zstd_dict=dictionary), MIB)


def test_damage_is_noticed_by_the_frame_s_checksum() -> None:
    frame = bytearray(zstd.compress(numbers(2000), options={zstd.CompressionParameter.checksum_flag: 1}))
    for position in range(5, len(frame), 7):
        frame[position] ^= 0x10
        with pytest.raises((MalformedRequest, TooLarge)):
            decompress(bytes(frame), MIB)
        frame[position] ^= 0x10
    assert decompress(bytes(frame), 2000) == numbers(2000)


@pytest.mark.parametrize("promised", [100 * GIB, None], ids=["known", "unknown"])
def test_a_bomb_finds_no_room(promised: int | None) -> None:
    frame = bomb(100 * GIB, promised)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=f"at most {64 * MIB} bytes"):
            decompress(frame, 64 * MIB)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 4 * MIB


@pytest.mark.parametrize("promised", [0, 999, 1001, 10 * MIB, 512 * MIB])
def test_a_frame_that_holds_other_than_it_promises(promised: int) -> None:
    assert decompress(bomb(1000, 1000), 1000) == bytes(1000)
    with pytest.raises(MalformedRequest):
        decompress(bomb(1000, promised), 512 * MIB)
    with pytest.raises(MalformedRequest):
        decompress(bomb(64 * MIB, promised), 512 * MIB)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available()
    for name in ("backports.zstd", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    assert not available()
    assert is_frame(b"\x28\xb5\x2f\xfd")
