"""A server, or a proxy in front of it, that violates the WebSocket protocol (RFC 6455)."""

from __future__ import annotations

import re
import struct
import time

import numpy as np
import pytest

import telegrad as tg

from .cutting import Cutter

WAIT_S = 240
VIOLATIONS = {
    "a continuation of no message": (b"\x80\x01x", 1002),
    "a message within another": (b"\x02\x01x\x82\x01y", 1002),
    "an unknown opcode": (b"\x83\x00", 1002),
    "an unknown control opcode": (b"\x8b\x00", 1002),
    "a reserved bit": (b"\xc2\x01x", 1002),
    "a mask": (b"\x82\x81\0\0\0\0x", 1002),
    "a ping in pieces": (b"\x09\x01x", 1002),
    "a long ping": (b"\x89\x7e\x00\x7e" + bytes(126), 1002),
    "a length in two bytes that fits one": (b"\x82\x7e\x00\x7d" + bytes(125), 1002),
    "a length in eight bytes that fits two": (b"\x82\x7f" + (65535).to_bytes(8, "big") + bytes(65535), 1002),
    "a negative length": (b"\x82\x7f" + b"\xff" * 8, 1002),
    "a length beyond any memory": (b"\x82\x7f" + (2**50).to_bytes(8, "big"), 1009),
    "a close with half a code": (b"\x88\x01\x03", 1002),
    "a close with a code that is never sent": (b"\x88\x02" + (1006).to_bytes(2, "big"), 1002),
    "a close whose reason is not UTF-8": (b"\x88\x03" + (1000).to_bytes(2, "big") + b"\xff", 1007),
    "a text that is not UTF-8": (b"\x81\x01\xff", 1007),
}


def close_codes(sent: bytes) -> set[int]:
    """The codes of possible close frames in a client's data: each has a six-byte header, a code and a reason."""
    codes = set()
    for match in re.finditer(rb"(?=\x88[\x82-\xfd](.{4})(..))", sent, re.DOTALL):
        key, payload = match.groups()
        codes.add(struct.unpack("!H", bytes(a ^ b for a, b in zip(payload, key, strict=False)))[0])
    return codes


def insert(proxy: Cutter, frame: bytes) -> None:
    """Insert a frame before the server's next one."""

    def rewrite(data: bytes) -> bytes:
        proxy.rewrite = None
        return frame + data

    proxy.rewrite = rewrite


def split(data: bytes) -> bytes:
    """Split a short binary frame into three fragments, with pings between them."""
    assert data[0] == 0x82 and data[1] <= 126
    payload = data[4:] if data[1] == 126 else data[2:]
    third = len(payload) // 3
    parts = payload[:third], payload[third : 2 * third], payload[2 * third :]
    frames = [bytes([first, len(part)]) + part for first, part in zip((0x02, 0x00, 0x80), parts, strict=True)]
    return b"\x89\x02hi".join(frames)


def wait_for_close(proxy: Cutter, code: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while code not in close_codes(bytes(proxy.sent)):
        assert time.monotonic() < deadline, close_codes(bytes(proxy.sent))
        time.sleep(0.01)


@pytest.mark.parametrize(("frame", "code"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_ends_the_connection_and_loses_nothing(server: str, frame: bytes, code: int) -> None:
    with Cutter(server) as proxy, tg.connect(proxy.url, stream=True):
        x = tg.ones(3)
        assert x.sum().item() == 3
        insert(proxy, frame)
        x += 1
        assert x.tolist() == [2, 2, 2]
        wait_for_close(proxy, code)
        assert (x + 1).tolist() == [3, 3, 3]


def test_a_server_that_does_nothing_else_is_out_of_reach(server: str) -> None:
    with Cutter(server) as proxy, tg.connect(proxy.url, stream=True):
        assert tg.ones(3).tolist() == [1, 1, 1]
        proxy.rewrite = lambda data: b"\x83\x00" + data
        with pytest.raises(ConnectionError, match="broke the WebSocket protocol: invalid opcode"):
            tg.ones(3).tolist()
        proxy.rewrite = None


def test_a_close_is_answered_with_its_code(server: str) -> None:
    with Cutter(server) as proxy, tg.connect(proxy.url, stream=True):
        x = tg.ones(3)
        assert x.sum().item() == 3
        insert(proxy, b"\x88\x02" + (1012).to_bytes(2, "big"))
        assert (x + 1).tolist() == [2, 2, 2]
        wait_for_close(proxy, 1012)


def test_control_frames_may_come_between_the_pieces_of_a_message(server: str) -> None:
    with Cutter(server) as proxy, tg.connect(proxy.url, stream=True):
        x = tg.tensor(np.arange(3.0))
        assert x.sum().item() == 3
        proxy.rewrite = split
        assert (x + 1).tolist() == [1, 2, 3]
        assert x.sum().item() == 3
