"""Compression of bodies in zstd frames (RFC 8878) for slow networks, used by the client and the server.

The first four bytes of a body tell whether it is a frame: in a safetensors container they would announce a header of
4 GB, and JSON cannot start with them. The library is ``compression.zstd`` of Python 3.14, or its backport: an extra.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import MalformedRequest, TooLarge

Body = bytes | memoryview
"""The body of a message."""

ENCODING = "zstd"
"""The name of the encoding, in HTTP's content coding and elsewhere."""
LEAST = 16 * 2**10
"""The minimum size in bytes of a body that is compressed."""
WORTH = 0.9
"""The maximum ratio of a frame's size to its body's: a larger frame is not worth the time to decompress it."""
LEVEL = 1
"""zstd's fastest level that still compresses floats: 64 MiB of random floats take 0.15 s, and 0.23 s at level 3."""
PIECE = 2**18
"""The number of bytes that are processed at a time: they fit in the CPU cache."""
_MAGIC = b"\x28\xb5\x2f\xfd"
_LONGEST_HEADER = 18
_SAMPLES, _SAMPLED = 4, 2**23
"""The number of pieces that are tried before a long body is compressed, and the minimum size of such a body."""


def _library() -> Any:
    """Return the zstd module. Raises ImportError without the extra."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def available() -> bool:
    """Return whether zstd is installed. Without it, the other functions except :func:`is_frame` raise ImportError."""
    try:
        _library()
    except ImportError:
        return False
    return True


def is_frame(body: Body) -> bool:
    """Return whether a body starts with the four bytes of a zstd frame."""
    return body[:4] == _MAGIC


def compress(body: Body) -> Body:
    """Return the body in a frame, or the body itself if compression saves too little."""
    zstd = _library()
    if len(body) < LEAST or not _promises(zstd, body):
        return body
    frame: bytes = zstd.compress(body, LEVEL)
    return frame if len(frame) < WORTH * len(body) else body


def _promises(zstd: Any, body: Body) -> bool:
    """Return whether a body is short, or a few pieces of it compress well enough."""
    if len(body) < _SAMPLED:
        return True
    view = memoryview(body)
    starts = range(0, len(body), len(body) // _SAMPLES)[:_SAMPLES]
    compressed = sum(len(zstd.compress(view[start : start + PIECE], LEVEL)) for start in starts)
    return compressed < WORTH * _SAMPLES * PIECE


def decompress(frame: Body, most: int = 2**40) -> memoryview:
    """Return the content of a frame in new memory, using at most ``most`` bytes and one piece.

    Raises TooLarge if the content is longer, and MalformedRequest unless the bytes are exactly one complete frame.
    """
    zstd = _library()
    size = size_of(frame, most)
    try:
        return _filled(_pieces(zstd, frame), size)
    except zstd.ZstdError:
        raise _damaged() from None


def size_of(frame: Body, most: int = 2**40) -> int:
    """Return the size of a frame's content, from its header or by counting. Raises as :func:`decompress`."""
    zstd = _library()
    if not is_frame(frame):
        raise MalformedRequest("zstd: the body does not begin as a frame does")
    try:
        size = zstd.get_frame_info(bytes(frame[:_LONGEST_HEADER])).decompressed_size
        if size is None:  # the header has no size: count first without keeping the content, as it may be a bomb
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
    """Decompress a frame piece by piece. Raises MalformedRequest unless the frame ends where the bytes end."""
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
    """Join the pieces in one buffer of ``size`` bytes, whose memory is not touched before it is filled."""
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
