"""WebSocket frames as bytes (RFC 6455, 5.2): the client's, which are masked, and the server's, which are checked."""

from __future__ import annotations

import numpy as np

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FINAL, MASKED = 0x80, 0x80
RESERVED_BITS = 0x70
PROTOCOL_ERROR, NO_STATUS, NOT_UTF8, TOO_LONG = 1002, 1005, 1007, 1009
"""Close codes (RFC 6455, 7.4.1)."""
NORMAL_CLOSURE = (1000).to_bytes(2, "big")
"""The payload of a close frame."""
MAX_CONTROL_SIZE = 125
MAX_SIZE = 2**40
"""Bytes of the longest payload that is received: beyond any memory, a size is a mistake."""
_KNOWN_CODES = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""Those below 3000 that a close frame may have."""


class ProtocolError(ValueError):
    """What a server must not send; ``code`` is the close code to answer it with."""

    def __init__(self, text: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.code = code


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


def is_control(first: int) -> bool:
    """Whether the first byte of a frame is that of a close, a ping or a pong."""
    return first & 0x0F in (CLOSE, PING, PONG)


def payload_size(header: bytes | bytearray) -> int:
    """The length of the payload, from the whole header of a frame of the server's. Raises ProtocolError."""
    first, second = header[:2]
    opcode = first & 0x0F
    if first & RESERVED_BITS:
        raise ProtocolError("a frame has a reserved bit set, but no extension was negotiated")
    if second & MASKED:
        raise ProtocolError("a frame is masked")
    size = second if second < 126 else int.from_bytes(header[2:], "big")
    if is_control(first):
        if not first & FINAL or size > MAX_CONTROL_SIZE:
            raise ProtocolError("a control frame is fragmented or too long")
    elif opcode not in (CONTINUATION, TEXT, BINARY):
        raise ProtocolError(f"a frame has the unknown opcode {opcode}")
    if second >= 126 and size < (126 if second == 126 else 2**16):
        raise ProtocolError("a length takes more bytes than it needs")
    if size >= 2**63:
        raise ProtocolError("a length has its highest bit set")
    if size > MAX_SIZE:
        raise ProtocolError(f"a frame has {size} bytes", TOO_LONG)
    return size


def text_of(payload: bytes | memoryview) -> str:
    """A text message. Raises ProtocolError."""
    try:
        return bytes(payload).decode()
    except UnicodeDecodeError:
        raise ProtocolError("a text is not UTF-8", NOT_UTF8) from None


def parse_close(payload: bytes) -> tuple[int, str]:
    """The code and the reason in a close frame. Raises ProtocolError."""
    if not payload:
        return NO_STATUS, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not (code in _KNOWN_CODES or 3000 <= code < 5000):
        raise ProtocolError("a close frame has no valid code")
    return code, text_of(payload[2:])
