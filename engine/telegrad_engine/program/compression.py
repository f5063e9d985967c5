"""Bodies in zstd frames (RFC 8878), for whom bytes cost more than the time to make fewer of them: both sides use this.

A body says by its beginning whether it is a frame: as a safetensors container, these four bytes would promise a
header of 4 GB, and JSON has no such character. The library is that of Python 3.14, or its backport: an extra.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import MalformedRequest, TooLarge

Body = bytes | memoryview
"""What is in a message, or is to be."""

ENCODING = "zstd"
"""Its name as a content coding of HTTP's, and wherever else it is asked for."""
LEAST = 16 * 2**10
"""Bytes of the shortest body that is compressed."""
WORTH = 0.9
"""A frame that is a larger part of its body than this is not worth the time that its reader needs."""
LEVEL = 1
"""zstd's fastest level that still packs numbers closer: 64 MiB of random floats took 0.15 s, and 0.23 at level 3."""
PIECE = 2**18
"""Bytes that are read and written at a time: they stay in the cache."""
_MAGIC = b"\x28\xb5\x2f\xfd"
_LONGEST_HEADER = 18
_SAMPLES, _SAMPLED = 4, 2**23
"""How many pieces are tried of bodies that are at least so long, before all of one is."""


def _library() -> Any:
    """Raises ImportError without the extra."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def available() -> bool:
    """Whether this process can do any of it; all but :func:`is_frame` raises ImportError where it cannot."""
    try:
        _library()
    except ImportError:
        return False
    return True


def is_frame(body: Body) -> bool:
    """Whether a body, or what should be one, is a frame by its first four bytes."""
    return body[:4] == _MAGIC


def compress(body: Body) -> Body:
    """The body in a frame, or, where that is not worth it, the body itself."""
    zstd = _library()
    if len(body) < LEAST or not _promises(zstd, body):
        return body
    frame: bytes = zstd.compress(body, LEVEL)
    return frame if len(frame) < WORTH * len(body) else body


def _promises(zstd: Any, body: Body) -> bool:
    """Whether a few pieces of a long body say that the whole is worth a try."""
    if len(body) < _SAMPLED:
        return True
    view = memoryview(body)
    starts = range(0, len(body), len(body) // _SAMPLES)[:_SAMPLES]
    compressed = sum(len(zstd.compress(view[start : start + PIECE], LEVEL)) for start in starts)
    return compressed < WORTH * _SAMPLES * PIECE


def decompress(frame: Body, most: int = 2**40) -> memoryview:
    """What is in a frame, in memory of its own; never more than ``most`` bytes and a piece are held.

    Raises TooLarge if it is longer than that, and MalformedRequest for what is not one whole frame and nothing else.
    """
    zstd = _library()
    size = size_of(frame, most)
    try:
        return _filled(_pieces(zstd, frame), size)
    except zstd.ZstdError:
        raise _damaged() from None


def size_of(frame: Body, most: int = 2**40) -> int:
    """How many bytes are in a frame, by its header or by counting them. Raises as :func:`decompress`."""
    zstd = _library()
    if not is_frame(frame):
        raise MalformedRequest("zstd: the body does not begin as a frame does")
    try:
        size = zstd.get_frame_info(bytes(frame[:_LONGEST_HEADER])).decompressed_size
        if size is None:  # its writer did not know: read once to count, so that a bomb finds no room to unfold
            size = 0
            for piece in _pieces(zstd, frame):
                size = _checked(size + len(piece), most)
        return _checked(size, most)
    except zstd.ZstdError:
        raise _damaged() from None


def _damaged() -> MalformedRequest:
    return MalformedRequest("zstd: the frame is damaged, or needs a dictionary or too large a window")


def _checked(size: int, most: int) -> int:
    if size > most:
        raise TooLarge(f"a body has at most {most} bytes here; what is in this zstd frame is longer")
    return size


def _pieces(zstd: Any, frame: Body) -> Iterator[bytes]:
    """What is in a frame, piece by piece. Raises MalformedRequest unless it ends where the bytes end."""
    decompressor = zstd.ZstdDecompressor()
    rest = memoryview(frame)
    while not decompressor.eof:
        data = rest[:0]
        if decompressor.needs_input:
            if not len(rest):
                raise MalformedRequest("zstd: the frame has no end")
            data, rest = rest[:PIECE], rest[PIECE:]
        yield decompressor.decompress(data, PIECE)
    if decompressor.unused_data or len(rest):
        raise MalformedRequest("zstd: bytes after the frame")


def _filled(pieces: Iterator[bytes], size: int) -> memoryview:
    """The pieces in one place of this many bytes, which is not touched before they are there."""
    whole = np.empty(size, np.uint8).data
    position = 0
    for piece in pieces:
        end = position + len(piece)
        if end > size:
            break
        whole[position:end] = piece
        position = end
    else:
        if position == size:
            return whole
    raise MalformedRequest(f"zstd: the frame does not hold the {size} bytes that it promises")
