"""Ends a server by SIGKILL again and again while clients use durable sessions: ``python -m tests.chaos --rounds 200``.

Each client sends numbered programs, and sends a program again until it is answered. It runs the same programs in a
session of its own process, the twin, which nothing disturbs. After each round, every tensor of the session must equal
the twin's, bit for bit: no acknowledged program is missing, and none ran twice.

Internals: the twin reads programs as a server does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import telegrad as tg
from telegrad_engine.errors import TelegradError
from telegrad_engine.program.instructions import parse_program
from telegrad_engine.session.session import Session

START_S = 120.0
"""Seconds that a server gets to start, and a client to reach it, on a busy machine."""
NAMES = ("n", "w", "x")


class Server:
    """A server on a data folder, always at the same port, that can be killed and started again."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._command = [sys.executable, "-m", "telegrad_service.cli", "serve", "--data-dir", str(folder), *flags]
        self._port = "0"
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        theirs, self._ours = os.pipe()
        command = [*self._command, "--port", self._port, "--end-with-stdin=true"]
        self._process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, text=True)
        os.close(theirs)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split()[-1]
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self.wait()

    def stop(self) -> None:
        """End it in order."""
        self._process.terminate()
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        self._process.wait(START_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        os.close(self._ours)


def programs(seed: int) -> Iterator[list[dict[str, Any]]]:
    """Programs that depend on all that a session holds: values, versions, gradients, a graph, random numbers."""
    chosen = random.Random(seed)
    yield [
        {"op": "zeros", "out": ["n"], "attrs": {"size": [1]}},
        {"op": "randn", "out": ["w"], "attrs": {"size": [32, 8]}},
        {"op": "requires_grad_", "in": ["w"]},
        {"op": "randn", "out": ["x"], "attrs": {"size": [16, 32]}},
    ]
    while True:
        kind = chosen.randrange(5)
        if kind == 0:
            yield [{"op": "add_", "in": ["n", 1]}]
        elif kind == 1:
            yield [{"op": "free", "in": [["x"]]}, {"op": "randn", "out": ["x"], "attrs": {"size": [16, 32]}}]
        elif kind == 2:
            yield [{"op": "add_", "in": ["n", 1]}, {"op": "matmul", "in": ["w", "n"]}]  # fails halfway
        elif kind == 3:  # a graph that is there while the server is killed, perhaps
            yield [
                {"op": "matmul", "in": ["x", "w"], "out": ["h"]},
                {"op": "dropout", "in": ["h"], "out": ["d"], "attrs": {"p": 0.5, "training": True}},
                {"op": "tanh", "in": ["d"], "out": ["t"]},
                {"op": "sum", "in": ["t"], "out": ["loss"]},
            ]
            yield [
                {"op": "backward", "in": [["loss"]]},
                {"op": "free", "in": [["h", "d", "t", "loss"]]},
            ]
        else:
            yield [
                {"op": "grad_of", "in": ["w"], "out": ["g"]},
                {"op": "add_", "in": ["w", "g"], "attrs": {"alpha": -chosen.random()}, "grad_mode": "no_grad"},
                {"op": "set_grad", "in": ["w"]},
                {"op": "free", "in": [["g"]]},
            ]


class Client(threading.Thread):
    """A client of one durable session, and its twin. It stops after ``programs_each``, or at :attr:`stopped`."""

    def __init__(self, server: Server, seed: int) -> None:
        super().__init__(daemon=True)
        self.server, self.seed = server, seed
        self.twin = Session(seed=seed)
        self.done = 0
        """The number of programs that were answered."""
        self.failure: BaseException | None = None
        self.pause, self.paused = threading.Event(), threading.Event()
        self.stopped = False
        self._programs = programs(seed)
        self._http = httpx.Client(base_url=server.url, timeout=START_S)
        made = self._http.post("/v1/sessions", json={"durable": True, "seed": seed})
        assert made.status_code == 201, made.text
        self.path = f"/v1/sessions/{made.json()['id']}"

    def run(self) -> None:
        """Send programs until told to stop."""
        try:
            while not self.stopped:
                if self.pause.is_set():
                    self.paused.set()
                    time.sleep(0.001)
                    continue
                self.paused.clear()
                self._step(next(self._programs))
        except BaseException as error:
            self.failure = error
            self.paused.set()

    def _step(self, program: Sequence[dict[str, Any]]) -> None:
        answer = self._sent(list(program))
        try:
            self.twin.run(parse_program(list(program)))
            expected = 200
        except TelegradError as error:
            expected = error.status
        assert answer.status_code == expected, (program, answer.text)
        self.done += 1

    def _sent(self, program: list[dict[str, Any]]) -> httpx.Response:
        """The answer to the next program, sent again until it is there."""
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = self._http.post(
                    f"{self.path}/programs",
                    json={"instructions": program},
                    headers={"Telegrad-Sequence": str(self.done + 1)},
                )
                if answer.status_code != 503:
                    return answer
            assert time.monotonic() < deadline, "the server did not come back"
            time.sleep(0.01)

    def close(self) -> None:
        """End the thread and the connection."""
        self.stopped = True
        if self.is_alive():
            self.join(START_S)
        self._http.close()

    def verify(self) -> None:
        """Hold the session against its twin."""
        if self.failure is not None:
            raise self.failure
        for name in NAMES:
            if name in self.twin.tensors:
                self._same(f"tensors/{name}", np.asarray(self.twin.tensors[name].detach().numpy()))
        weights = self.twin.tensors.get("w")
        if weights is not None and weights.grad is not None:
            self._same("tensors/w/grad", np.asarray(weights.grad.detach().numpy()))

    def _same(self, path: str, expected: Any) -> None:
        answer = self._http.get(f"{self.path}/{path}", headers={"accept": "application/vnd.safetensors"})
        assert answer.status_code == 200, answer.text
        assert answer.content.endswith(expected.tobytes()), f"{path} of {self.path} is not its twin's"


class Trainer(threading.Thread):
    """A training loop of the SDK, over the stream, and the losses that it read."""

    def __init__(self, url: str, seed: int, steps: int, **options: Any) -> None:
        super().__init__(daemon=True)
        self.url, self.seed, self.steps, self.options = url, seed, steps, options
        self.losses: list[float] = []
        self.connected = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Train."""
        try:
            self.train()
        except BaseException as error:
            self.failure = error

    def train(self) -> None:
        """Train in a new session of this thread."""
        data = np.random.default_rng(self.seed).standard_normal((64, 12)).astype(np.float32)
        with tg.connect(self.url, seed=self.seed, **self.options):
            self.connected.set()
            model = tg.nn.Sequential(tg.nn.Linear(12, 16), tg.nn.Tanh(), tg.nn.Dropout(0.2), tg.nn.Linear(16, 1))
            optimizer = tg.optim.Adam(model.parameters(), lr=1e-2)
            for step in range(self.steps):
                batch = tg.tensor(data[step % 4 :: 4])
                optimizer.zero_grad()
                loss = (model(batch) ** 2).mean()
                loss.backward()
                optimizer.step()
                if step % 5 == 0:
                    self.losses.append(loss.item())


def run(rounds: int, seed: int, *flags: str, clients: int = 4, report: Any = None) -> int:
    """Kill a server ``rounds`` times under load. Return how many programs were answered. Raises AssertionError."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), *flags)
        users = [Client(server, seed * 1000 + number) for number in range(clients)]
        try:
            trainer = Trainer(server.url, seed, 100 * rounds, durable=True)
            for thread in (*users, trainer):
                thread.start()
            assert trainer.connected.wait(START_S), trainer.failure
            for number in range(rounds):
                time.sleep(chance.uniform(0.05, 0.6))
                server.kill()
                server.start()
                for user in users:
                    user.pause.set()
                for user in users:
                    assert user.paused.wait(START_S), "a client hangs"
                    user.verify()
                    user.pause.clear()
                if trainer.failure is not None:
                    raise trainer.failure
                if report is not None:
                    report(number + 1, sum(user.done for user in users))
            for user in users:
                user.stopped = True
                user.join(START_S)
                user.verify()
            trainer.join(START_S * 5)
            assert not trainer.is_alive(), "the training loop hangs"
            if trainer.failure is not None:
                raise trainer.failure
            twin = Trainer("local://", seed, trainer.steps)
            twin.train()
            assert trainer.losses == twin.losses, "the training loop has other losses than its twin"
            return sum(user.done for user in users)
        finally:
            for user in users:
                user.close()
            server.stop()


def main() -> None:
    """Run the rounds that the command line asks for, with a line on each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the programs and of the moments of the kills")
    options = parser.parse_args()

    def report(number: int, done: int) -> None:
        print(f"\rround {number} of {options.rounds}: {done} programs answered, none lost, none run twice", end="")
        sys.stdout.flush()

    begun = time.monotonic()
    # A server is killed again within a second or two, so running a journal again must take less than that.
    done = run(options.rounds, options.seed, "--snapshot-after-s", "0.5", report=report)
    print(
        f"\n{options.rounds} kills, {done} programs, {time.monotonic() - begun:.0f} s: all sessions equal their twins"
    )


if __name__ == "__main__":
    main()
