"""Looking for the next message: only where messages come soon and nobody else waits, and never for long."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from telegrad_service import lookout
from telegrad_service.lookout import Lookout

pytestmark = pytest.mark.skipif(not lookout.POSSIBLE, reason="there is no core for it")


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

    looking = Lookout(ends[0].fileno(), alone)
    looking.found()  # the first one: nothing was answered before it
    looking.look()
    assert not asked
    looking.found()
    looking.look()
    assert asked


def test_it_leaves_what_it_finds_to_be_read(ends: tuple[socket.socket, socket.socket]) -> None:
    looking = Lookout(ends[0].fileno(), lambda: True)
    looking.look()
    looking.found()
    ends[1].sendall(b"next")
    looking.look()
    assert ends[0].recv(9) == b"next"


def test_where_nothing_comes_it_gives_up_and_does_not_look_again(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "LOOK_S", 0.05)
    looks = []
    looking = Lookout(ends[0].fileno(), lambda: not looks.append(True))
    looking.look()
    looking.found()
    looking.look()
    looking.found()
    looking.look()
    assert len(looks) == 1
