"""A bare TCP connection on which each message gets a reply: the lower bound of a wait for a server.

The argument is the size of both in bytes, as in ``300:40``. Each side polls for the other's bytes without sleeping.
"""

from __future__ import annotations

import os
import socket
import sys

from calls import LOOPBACK, answer, end_with_input, serving


def receive(connection: socket.socket, buffer: memoryview) -> None:
    """Fill the buffer, and yield to other threads while no data is available. Raises ConnectionError at the end."""
    got = 0
    while got < len(buffer):
        try:
            count = connection.recv_into(buffer[got:])
        except BlockingIOError:
            os.sched_yield()
            continue
        if not count:
            raise ConnectionError
        got += count


def prepare(connection: socket.socket) -> None:
    """Disable Nagle's algorithm, and make the socket non-blocking."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)


def serve(port: int, request: memoryview, reply: memoryview) -> None:
    with socket.create_server((LOOPBACK, port)) as listening:
        while True:
            connection = listening.accept()[0]
            prepare(connection)
            try:
                while True:
                    receive(connection, request)
                    connection.sendall(reply)
            except ConnectionError:
                connection.close()


def main(sizes: str, port: str | None = None) -> None:
    request, reply = (memoryview(bytearray(int(size))) for size in sizes.split(":"))
    if port is not None:
        end_with_input()
        serve(int(port), request, reply)
        return
    with serving(__file__, sizes) as number, socket.create_connection((LOOPBACK, number)) as connection:
        prepare(connection)

        def call() -> None:
            connection.sendall(request)
            receive(connection, reply)

        answer(call)


if __name__ == "__main__":
    # A server gets its port as the first argument, as in every script here.
    main(*reversed(sys.argv[1:]))
