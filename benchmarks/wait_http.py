"""Reading a value over loopback, against a bare connection that transfers as many bytes both ways."""

from __future__ import annotations

import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import telegrad as tg
from telegrad_service.launch import running_server

from .compiling import settle
from .peers import peer
from .timing import Call, Side, Timed

COUNTED = 100
"""The number of waits over which bytes are counted."""


class Relay:
    """A port of this process that relays connections to a server and counts their bytes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent = self.received = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            here = self._listening.accept()[0]
            threading.Thread(target=self._pass_on, args=(here,), daemon=True).start()

    def _pass_on(self, here: socket.socket) -> None:
        there = socket.create_connection(("127.0.0.1", self._port))
        with suppress(ConnectionResetError), here, there, selectors.DefaultSelector() as ready:
            ready.register(here, selectors.EVENT_READ)
            ready.register(there, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    up = key.fileobj is here
                    data = (here if up else there).recv(2**16)
                    if not data:
                        return
                    (there if up else here).sendall(data)
                    if up:
                        self.sent += len(data)
                    else:
                        self.received += len(data)


def wait() -> Call:
    """Return a call that waits for a value."""
    x = tg.tensor([1.0, 2.0, 3.0, 4.0])
    return lambda: (x * 2).sum().item()


def sizes(url: str) -> tuple[int, int]:
    """The bytes that one wait sends and receives once the server has planned its program."""
    relay = Relay(urlsplit(url).port or 80)
    with tg.connect(relay.url) as opened:
        call = wait()
        settle(opened, call)
        before = relay.sent, relay.received
        for _ in range(COUNTED):
            call()
        sent, received = relay.sent - before[0], relay.received - before[1]
    return round(sent / COUNTED), round(received / COUNTED)


@contextmanager
def sides() -> Iterator[tuple[Side, Side]]:
    """A value from a server, and an echo."""
    with running_server() as url, ExitStack() as stack:
        sent, received = sizes(url)
        opened = stack.enter_context(tg.connect(url))
        call = wait()
        settle(opened, call)
        echo = stack.enter_context(peer("echo.py", f"{sent}:{received}", python=Path(sys.executable)))
        yield call, echo


SUITES = [
    Timed(
        "a wait over loopback: (x * 2).sum().item() of four numbers", "an echo of as many bytes", 2.0, sides, block=50
    )
]
