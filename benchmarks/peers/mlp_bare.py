"""A training step of a 784-128-10 network by hand: a socket, and NumPy without a graph. What any server of it costs.

The batch travels there with each step, and its loss comes back. As many steps are under way as the argument says; with
a port before that it is the server.
"""

from __future__ import annotations

import os
import socket
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # the other core is the client's, as beside a server of ours
import numpy as np
from calls import LOOPBACK, answer, end_with_input, serving
from raw_socket import receive

ROWS, WIDTH, HIDDEN, CLASSES, RATE = 64, 784, 128, 10, np.float32(0.01)
LOSS_BYTES = 4


class Net:
    """The network, and its step."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.w1 = rng.uniform(-0.03, 0.03, (WIDTH, HIDDEN)).astype(np.float32)
        self.w2 = rng.uniform(-0.09, 0.09, (HIDDEN, CLASSES)).astype(np.float32)
        self.b1, self.b2 = np.zeros(HIDDEN, np.float32), np.zeros(CLASSES, np.float32)

    def step(self, images: np.ndarray, labels: np.ndarray) -> np.floating:
        """Move the parameters against the gradient of the mean cross entropy, which is returned."""
        rows = np.arange(ROWS)
        hidden = np.maximum(images @ self.w1 + self.b1, 0)
        scores = hidden @ self.w2 + self.b2
        scores -= scores.max(1, keepdims=True)
        grad = np.exp(scores)
        totals = grad.sum(1, keepdims=True)
        loss = (np.log(totals[:, 0]) - scores[rows, labels]).mean()
        grad /= totals
        grad[rows, labels] -= 1
        grad /= ROWS
        grad_hidden = grad @ self.w2.T * (hidden > 0)
        changes = images.T @ grad_hidden, grad_hidden.sum(0), hidden.T @ grad, grad.sum(0)
        for parameter, change in zip((self.w1, self.b1, self.w2, self.b2), changes, strict=True):
            change *= RATE
            parameter -= change
        return np.float32(loss)


def serve(port: int) -> None:
    net, buffer = Net(), bytearray(ROWS * (4 * WIDTH + 8))
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
            # Each tenth step all is answered, as where the loss of each tenth is read.
            while waiting >= int(under_way) or (waiting and turn % len(batches) == 0):
                receive(connection, loss)
                waiting -= 1

        answer(step)


if __name__ == "__main__":
    # A server has its port first, as every script here.
    main(*reversed(sys.argv[1:]))
