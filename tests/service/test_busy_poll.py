"""Busy polling: only where messages come soon and no other session waits, and never for long.

Internals: clients cannot see whether the server sleeps.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from telegrad_service.streaming import websocket
from telegrad_service.streaming.websocket import BusyPoll

pytestmark = pytest.mark.skipif(not websocket.CAN_POLL, reason="there is no core for it")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_it_asks_whether_it_is_alone_only_where_messages_come_soon(ends: tuple[socket.socket, socket.socket]) -> None:
    asked: list[bool] = []

    def alone() -> bool:
        asked.append(True)
        return False

    polling = BusyPoll(ends[0].fileno(), alone)
    polling.arrived()  # the first one: nothing was answered before it
    polling.wait()
    assert not asked
    polling.arrived()
    polling.wait()
    assert asked


def test_it_leaves_what_it_finds_to_be_read(ends: tuple[socket.socket, socket.socket]) -> None:
    polling = BusyPoll(ends[0].fileno(), lambda: True)
    polling.wait()
    polling.arrived()
    ends[1].sendall(b"next")
    polling.wait()
    assert ends[0].recv(9) == b"next"


def test_where_nothing_comes_it_gives_up_and_does_not_look_again(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "POLL_S", 0.05)
    looks = []
    polling = BusyPoll(ends[0].fileno(), lambda: not looks.append(True))
    polling.wait()
    polling.arrived()
    polling.wait()
    polling.arrived()
    polling.wait()
    assert len(looks) == 1
