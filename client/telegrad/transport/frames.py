"""Headers of WebSocket frames (RFC 6455, 5.2): of the client's binary messages, and of any frame from the server."""

from __future__ import annotations

BINARY = 0x82
"""The first byte of a binary message that is one frame."""
CONTROL = 0x08
"""The bit of a first byte that is set in closes, pings and pongs."""
MASKED = 0x80
"""The bit of a second byte that is set in masked frames."""


def binary_header(size: int) -> bytes:
    """The header of a binary message from a client, up to the masking key."""
    if size < 126:
        return bytes([BINARY, MASKED | size])
    if size < 2**16:
        return bytes([BINARY, MASKED | 126]) + size.to_bytes(2, "big")
    return bytes([BINARY, MASKED | 127]) + size.to_bytes(8, "big")


def header_size(second: int) -> int:
    """The length of the header of a frame from the server, from its second byte."""
    return {126: 4, 127: 10}.get(second & ~MASKED, 2)


def payload_size(header: bytes | bytearray) -> int:
    """The length of the payload. Raises ValueError if the header is not written as RFC 6455 requires."""
    size = header[1] & ~MASKED
    if size < 126:
        return size
    least = 126 if size == 126 else 2**16
    size = int.from_bytes(header[2:], "big")
    if size < least:
        raise ValueError("a length takes more bytes than it needs")
    if size >= 2**63:
        raise ValueError("a length has its highest bit set")
    return size
