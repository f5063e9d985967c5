"""WebSocket frames as bytes (RFC 6455, 5.2), as a client writes them: masked."""

from __future__ import annotations

import numpy as np

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FINAL, MASKED = 0x80, 0x80


def head(kind: int, size: int) -> bytes:
    """A frame's header up to the mask."""
    if size < 126:
        return bytes([FINAL | kind, MASKED | size])
    if size < 2**16:
        return bytes([FINAL | kind, MASKED | 126]) + size.to_bytes(2, "big")
    return bytes([FINAL | kind, MASKED | 127]) + size.to_bytes(8, "big")


def mask(out: memoryview, data: bytes | memoryview, key: bytes, position: int) -> None:
    """Mask what begins at this position of a message by a key of 4 bytes; 8 at a time where these lie so in both."""
    turned = key[position % 4 :] + key[: position % 4]
    whole = len(data) // 8 if position % 8 == 0 else 0
    if whole:
        word = np.frombuffer(turned * 2, np.uint64)[0]
        np.bitwise_xor(np.frombuffer(data, np.uint64, whole), word, np.frombuffer(out, np.uint64, whole))
    rest = len(data) - 8 * whole
    if rest:
        last = np.frombuffer(turned * (rest // 4 + 1), np.uint8, rest)
        np.bitwise_xor(
            np.frombuffer(data, np.uint8, rest, 8 * whole), last, np.frombuffer(out, np.uint8, rest, 8 * whole)
        )


def header_size(second: int) -> int:
    """How long the header of a frame from the server is."""
    return {126: 4, 127: 10}.get(second & 0x7F, 2)
