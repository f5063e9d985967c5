"""A training step on a server that is far away, against the same on loopback.

A relay between them takes its time in both directions, however much passes through it: steps that are recorded while
others are under way lose nothing by that, and the loss that is read waits for all of it once.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import telegrad as tg
from telegrad_service.launch import running_server

from .compiling import PLANNED, settle
from .mlp_http import WHAT, loop, network, resident_ours
from .timing import Call, Side, Timed

WAY_S, READ_EVERY = 0.01, 100
"""Seconds to the server, and as many back, and after how many steps the loss is read."""


@contextmanager
def relay(url: str) -> Iterator[str]:
    """The address under which a server is so far away."""
    command = [sys.executable, "-m", __spec__.name, str(urlsplit(url).port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def serve(port: int) -> None:
    """Pass on what comes to a port, which is printed, to this one, and what comes back."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction."""
    later = asyncio.get_running_loop().call_later
    while data := await reader.read(2**20):
        later(WAY_S, writer.write, data)
    later(WAY_S, writer.close)


@contextmanager
def near_and_far() -> Iterator[tuple[Side, Side]]:
    """The same loop twice, over the relay and without."""

    def turns(url: str) -> Call:
        opened = stack.enter_context(tg.connect(url))
        turn = loop(network(tg)[1], resident_ours(), READ_EVERY)
        settle(opened, turn, PLANNED)
        return turn

    with running_server() as url, relay(url) as far, ExitStack() as stack:
        yield turns(far), turns(url)


SUITES = [
    Timed(
        f"{WHAT} and {WAY_S * 1e3:.0f} ms each way, dataset uploaded once, loss read every {READ_EVERY} steps",
        "the same without the way",
        None,
        near_and_far,
        block=READ_EVERY,
        repeats=20,
    )
]

if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
