"""A bare TCP connection: 64 MiB ``up``, acknowledged by one byte, or ``down``, requested by one byte."""

from __future__ import annotations

import socket
import sys

from calls import LOOPBACK, answer, end_with_input, serving

SIZE = 64 * 2**20


def receive(connection: socket.socket, buffer: memoryview) -> None:
    """Fill the buffer. Raises ConnectionError if the other side closes the connection before that."""
    got = 0
    while got < len(buffer):
        count = connection.recv_into(buffer[got:])
        if not count:
            raise ConnectionError
        got += count


def serve(port: int, way: str) -> None:
    buffer = memoryview(bytearray(SIZE))
    with socket.create_server((LOOPBACK, port)) as listening:
        while True:
            connection = listening.accept()[0]
            try:
                while True:
                    exchange(connection, buffer, receives=way == "up")
            except ConnectionError:
                connection.close()


def exchange(connection: socket.socket, buffer: memoryview, receives: bool) -> None:
    """Serve one transfer: receive 64 MiB and send one byte, or the other way round."""
    if receives:
        receive(connection, buffer)
        connection.sendall(b"!")
    else:
        receive(connection, memoryview(bytearray(1)))
        connection.sendall(buffer)


def main(way: str, port: str | None = None) -> None:
    if port is not None:
        end_with_input()
        serve(int(port), way)
        return
    with serving(__file__, way) as number, socket.create_connection((LOOPBACK, number)) as connection:
        buffer = memoryview(bytearray(SIZE))

        def up() -> None:
            connection.sendall(buffer)
            receive(connection, memoryview(bytearray(1)))

        def down() -> None:
            connection.sendall(b"!")
            receive(connection, buffer)

        answer(up if way == "up" else down)


if __name__ == "__main__":
    # A server gets its port as the first argument, as in every script here.
    main(*reversed(sys.argv[1:]))
