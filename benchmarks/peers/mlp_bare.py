"""A training step of a 784-128-10 network by hand, with a socket and with NumPy without a graph: the minimal server.

Each step sends a batch and receives the loss. The argument is the number of steps in flight; with a port before it, the
script is the server.
"""

from __future__ import annotations

import os
import socket
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # leaves a core for the client, as our server does
import numpy as np
from calls import LOOPBACK, answer, end_with_input, serving
from mlp_by_hand import Net
from raw_socket import receive

ROWS, WIDTH, HIDDEN, CLASSES = 64, 784, 128, 10
LOSS_BYTES = 4


def serve(port: int) -> None:
    rng = np.random.default_rng(0)
    first, second = (
        rng.uniform(-0.05, 0.05, shape).astype(np.float32) for shape in ((WIDTH, HIDDEN), (HIDDEN, CLASSES))
    )
    net = Net(first, np.zeros(HIDDEN, np.float32), second, np.zeros(CLASSES, np.float32))
    buffer = bytearray(ROWS * (4 * WIDTH + 8))
    images = np.frombuffer(buffer, np.float32, ROWS * WIDTH).reshape(ROWS, WIDTH)
    labels = np.frombuffer(buffer, np.int64, ROWS, images.nbytes)
    with socket.create_server((LOOPBACK, port)) as listening:
        while True:
            connection = listening.accept()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                while True:
                    receive(connection, memoryview(buffer))
                    connection.sendall(net.step(images, labels).tobytes())
            except ConnectionError:
                connection.close()


def main(under_way: str, port: str | None = None) -> None:
    if port is not None:
        end_with_input()
        serve(int(port))
        return
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((ROWS, WIDTH), np.float32), rng.integers(0, CLASSES, ROWS)) for _ in range(10)]
    with serving(__file__, under_way) as number, socket.create_connection((LOOPBACK, number)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loss = memoryview(bytearray(LOSS_BYTES))
        turn = waiting = 0

        def step() -> None:
            nonlocal turn, waiting
            for array in batches[turn % len(batches)]:
                connection.sendall(array)
            turn, waiting = turn + 1, waiting + 1
            # Every tenth step waits for all answers, as a loop does that reads every tenth loss.
            while waiting >= int(under_way) or (waiting and turn % len(batches) == 0):
                receive(connection, loss)
                waiting -= 1

        answer(step)


if __name__ == "__main__":
    # A server gets its port as the first argument, as in every script here.
    main(*reversed(sys.argv[1:]))
