"""Trains a small network on a server until its standard input ends. Prints the id of its session."""

from __future__ import annotations

import sys
import threading
import time

import telegrad as tg

PAUSE_S = 0.02


class Net(tg.nn.Module):
    """An encoder around which its input is added, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = tg.nn.Sequential(tg.nn.Linear(16, 32), tg.nn.ReLU(), tg.nn.Linear(32, 16), tg.nn.Tanh())
        self.head = tg.nn.Linear(16, 4)

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        """Logits of shape (N, 4)."""
        hidden: tg.Tensor = self.encoder(x) + x
        logits: tg.Tensor = self.head(hidden)
        return logits


def main(url: str) -> None:
    session = tg.connect(url, seed=0, name="classifier")
    network = Net()
    optimizer = tg.optim.Adam(network.parameters(), lr=3e-3)
    x = tg.randn(128, 16)
    target = (x[:, :4] + 0.3 * tg.randn(128, 4)).argmax(1)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    print(session.id, flush=True)
    while not ended.is_set():
        loss = tg.nn.functional.cross_entropy(network(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        time.sleep(PAUSE_S)
    session.close()


if __name__ == "__main__":
    main(sys.argv[1])
