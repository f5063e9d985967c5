"""Headers of WebSocket frames (RFC 6455, 5.2), and what else the two ends of a stream must agree on."""

from __future__ import annotations

from ipaddress import ip_address

TEXT, BINARY = 0x81, 0x82
"""The first byte of a message that is one frame."""
CONTROL = 0x08
"""The bit of a first byte that is set in closes, pings and pongs."""
MASKED = 0x80
"""The bit of a second byte that is set in masked frames, which a client sends."""
KEY_SIZE = 4
"""Bytes of the masking key, which ends the header of a masked frame."""
CLIENT_HEADER = "telegrad-client"
"""The header with the client's address and port. A server that sees the same ones allows unmasked frames."""
TAKEN_OVER = 4409
"""The close code of a stream whose sender has connected once more, based on an HTTP status."""
QUOTA_USED_UP = 4429
"""The close code for a client whose tenant has no memory left for a message, based on an HTTP status."""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, which is reached without a proxy."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def frame_header(first: int, length: int, key: bytes = b"") -> bytes:
    """The header of a frame of ``length`` bytes, masked if there is a ``key``."""
    masked = MASKED if key else 0
    if length < 126:
        return bytes((first, masked | length)) + key
    if length < 2**16:
        return bytes((first, masked | 126)) + length.to_bytes(2, "big") + key
    return bytes((first, masked | 127)) + length.to_bytes(8, "big") + key


def frame_size(data: bytes | bytearray | memoryview) -> tuple[int, int] | None:
    """The lengths of the header and of the payload of the frame that begins with ``data``.

    None if too little of the header has arrived.
    """
    if len(data) < 2:
        return None
    length = data[1] & ~MASKED
    end = 2 if length < 126 else 4 if length == 126 else 10
    header = end + KEY_SIZE if data[1] & MASKED else end
    if len(data) < header:
        return None
    return header, length if end == 2 else int.from_bytes(data[2:end], "big")
