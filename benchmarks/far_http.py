"""A training step on a server with high latency, against the same step on loopback.

A relay delays the data in both directions by a constant time. Steps that are recorded while others are in flight are
not slowed down; only reading a loss waits for a round trip.
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

from .compiling import settle
from .mlp_http import WHAT, loop, network, resident_ours
from .timing import Call, Side, Timed

WAY_S, READ_EVERY = 0.01, 100
"""The latency in seconds in each direction, and the number of steps after which the loss is read."""


@contextmanager
def relay(url: str) -> Iterator[str]:
    """Run a relay to a server, and yield its URL."""
    command = [sys.executable, "-m", __spec__.name, str(urlsplit(url).port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def serve(port: int) -> None:
    """Listen on a free port, print it, and relay its connections to ``port``."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Relay the data of one direction, with the delay."""
    later = asyncio.get_running_loop().call_later
    while data := await reader.read(2**20):
        later(WAY_S, writer.write, data)
    later(WAY_S, writer.close)


@contextmanager
def near_and_far() -> Iterator[tuple[Side, Side]]:
    """The same loop over the relay and without it."""

    def turns(url: str) -> Call:
        opened = stack.enter_context(tg.connect(url))
        turn = loop(network(tg)[1], resident_ours(), READ_EVERY)
        settle(opened, turn)
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
