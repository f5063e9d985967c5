"""Ends a server by SIGKILL again and again while clients use durable sessions: ``python -m tests.chaos --rounds 200``.

Each client sends numbered programs, and sends a program again until it is answered. It runs the same programs in a
session of its own process, the twin, which nothing disturbs. After each round, every tensor of the session must equal
the twin's, bit for bit: no acknowledged program is missing, and none ran twice.

Internals: the twin reads programs as a server does.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class Step(NamedTuple):
    """When a step began, and when its answer was there."""

    begun: float
    answered: float


class User(threading.Thread):
    """A user of one session, who works until :attr:`stopped`, with pauses of ``pause_s`` seconds on average."""

    def __init__(self, seed: int, pause_s: float) -> None:
        super().__init__(daemon=True)
        self.seed = seed
        self.session = ""
        """The id of the session."""
        self.steps: list[Step] = []
        """All steps that were answered."""
        self.stopped = threading.Event()
        self.failure: BaseException | None = None
        self._pauses, self._pause_s = random.Random(seed), pause_s

    @property
    def done(self) -> int:
        """The number of steps that were answered."""
        return len(self.steps)

    def run(self) -> None:
        """Work until told to stop."""
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        """Take steps until told to stop."""
        raise NotImplementedError

    def pause(self) -> bool:
        """Pause, and return whether to stop."""
        return self.stopped.wait(self._pauses.uniform(0, 2 * self._pause_s))

    def wait_for(self, steps: int) -> None:
        """Wait until so many steps were answered."""
        deadline = time.monotonic() + START_S
        while self.done < steps:
            self.check()
            assert time.monotonic() < deadline, "a user hangs"
            time.sleep(0.01)

    def check(self) -> None:
        """Raise what has ended the work early, if anything has."""
        if self.failure is not None:
            raise self.failure

    def finish(self) -> None:
        """Let the user finish the step, and compare the session with its twin."""
        self.stopped.set()
        self.join(5 * START_S)
        assert not self.is_alive(), "a user hangs"
        self.check()
        self.verify()

    def verify(self) -> None:
        """Compare the session with its twin."""
        raise NotImplementedError

    def close(self) -> None:
        """End the thread."""
        self.stopped.set()
        if self.is_alive():
            self.join(START_S)


class Client(User):
    """A user of a durable session without the SDK: numbered programs as requests, each repeated until answered."""

    def __init__(self, url: str, seed: int, pause_s: float = 0.0) -> None:
        super().__init__(seed, pause_s)
        self.twin = Session(seed=seed)
        self.holds, self.held = threading.Event(), threading.Event()
        self._programs = programs(seed)
        self._http = httpx.Client(base_url=url, timeout=START_S)
        made = self._http.post("/v1/sessions", json={"durable": True, "seed": seed})
        assert made.status_code == 201, made.text
        self.session = made.json()["id"]
        self.path = f"/v1/sessions/{self.session}"

    def hold(self) -> None:
        """Wait until no program is on its way, and send none until :attr:`holds` is cleared."""
        self.held.clear()
        self.holds.set()
        while not self.held.wait(0.01):
            self.check()

    def work(self) -> None:
        """Send programs until told to stop."""
        while not self.pause():
            if self.holds.is_set():
                self.held.set()
                time.sleep(0.001)
            else:
                self._step(next(self._programs))

    def _step(self, program: Sequence[dict[str, Any]]) -> None:
        begun = time.monotonic()
        answer = self._sent(list(program))
        try:
            self.twin.run(parse_program(list(program)))
            expected = 200
        except TelegradError as error:
            expected = error.status
        assert answer.status_code == expected, (program, answer.text)
        self.steps.append(Step(begun, time.monotonic()))

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
        super().close()
        self._http.close()

    def verify(self) -> None:
        """Compare all tensors of the session with the twin's."""
        self.check()
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


class TrainingLoop:
    """A training loop in the current session. Each loss depends on all steps before it."""

    def __init__(self, seed: int) -> None:
        data = np.random.default_rng(seed).standard_normal((64, 12)).astype(np.float32)
        self._batches = itertools.cycle([data[start::4] for start in range(4)])
        self._model = tg.nn.Sequential(tg.nn.Linear(12, 16), tg.nn.Tanh(), tg.nn.Dropout(0.2), tg.nn.Linear(16, 1))
        self._optimizer = tg.optim.Adam(self._model.parameters(), lr=1e-2)

    def loss_after(self, steps: int) -> float:
        """Take so many steps, and read the loss of the last one."""
        for _ in range(steps):
            self._optimizer.zero_grad()
            loss = (self._model(tg.tensor(next(self._batches))) ** 2).mean()
            loss.backward()
            self._optimizer.step()
        return float(loss.item())

    def parameters(self) -> list[bytes]:
        """The parameters after the last step."""
        return [each.detach().numpy().tobytes() for each in self._model.parameters()]


class Trainer(User):
    """A training loop of the SDK, over the stream.

    ``at_once`` is the number of training steps before the first loss is read, and between two later losses. Each loss
    is a step of the user.
    """

    def __init__(
        self, url: str, seed: int, pause_s: float = 0.0, at_once: tuple[int, int] = (5, 5), **options: Any
    ) -> None:
        super().__init__(seed, pause_s)
        self._url, self._at_once, self._options = url, at_once, options
        self._losses: list[float] = []
        self._parameters: list[bytes] = []

    def work(self) -> None:
        """Train in a new session of this thread."""
        with tg.connect(self._url, seed=self.seed, **self._options) as session:
            self.session = session.id
            loop = TrainingLoop(self.seed)
            while not self.pause():
                begun = time.monotonic()
                self._losses.append(loop.loss_after(self._at_once[bool(self.steps)]))
                self.steps.append(Step(begun, time.monotonic()))
            self._parameters = loop.parameters()

    def verify(self) -> None:
        """Compare the losses and the parameters with those of a loop that nothing disturbs, bit for bit."""
        with tg.connect("local://", seed=self.seed):
            loop = TrainingLoop(self.seed)
            losses = [loop.loss_after(self._at_once[number > 0]) for number in range(self.done)]
            assert self._losses == losses, f"session {self.session} has other losses than its twin"
            assert self._parameters == loop.parameters(), f"session {self.session} has other parameters than its twin"


def run(rounds: int, seed: int, *flags: str, clients: int = 4, report: Any = None) -> int:
    """Kill a server ``rounds`` times under load. Return how many programs were answered. Raises AssertionError."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), *flags)
        users = [Client(server.url, seed * 1000 + number) for number in range(clients)]
        trainer = Trainer(server.url, seed, durable=True)
        try:
            for user in (*users, trainer):
                user.start()
            trainer.wait_for(1)
            for number in range(rounds):
                time.sleep(chance.uniform(0.05, 0.6))
                server.kill()
                server.start()
                for user in users:
                    user.hold()
                for user in users:
                    user.verify()
                    user.holds.clear()
                trainer.check()
                if report is not None:
                    report(number + 1, sum(user.done for user in users))
            for user in (*users, trainer):
                user.finish()
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
