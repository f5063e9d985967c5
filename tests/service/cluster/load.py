"""Load for a cluster: clients that train in sessions of their own, and know what each step must have given.

Each step ends with a loss that the client reads: the server has acknowledged the step. A session that is not disturbed
gives the same losses and the same parameters, bit for bit, in this process.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import numpy as np

import telegrad as tg

from ... import chaos
from ..api_keys import WAIT_S, wait_until

PAUSE_S = 0.3
"""Seconds, on average, between two steps of a client."""
BEGINNING = 100
"""How many steps the SDK's clients take at once at the beginning."""
FINISH_S = 2 * WAIT_S
"""Seconds that clients get to finish what they do."""


class Step(NamedTuple):
    """When a step began, and when its answer was there."""

    begun: float
    answered: float


class Losses:
    """The losses of a training loop in a session of this thread, one after another; they depend on all steps before."""

    def __init__(self, seed: int) -> None:
        data = np.random.default_rng(seed).standard_normal((32, 8)).astype(np.float32)
        self._batches = [data[start::4] for start in range(4)]
        self._model = tg.nn.Sequential(tg.nn.Linear(8, 16), tg.nn.Tanh(), tg.nn.Dropout(0.2), tg.nn.Linear(16, 1))
        self._optimizer = tg.optim.Adam(self._model.parameters(), lr=1e-2)
        self._step = 0

    def begin(self) -> float:
        """Take many steps without waiting, so that there is much to restore. Return the last one's loss."""
        for _ in range(BEGINNING - 1):
            self._next()
        return self.next()

    def next(self) -> float:
        """Take a step, and return its loss."""
        return float(self._next().item())

    def _next(self) -> Any:
        batch = tg.tensor(self._batches[self._step % 4])
        self._optimizer.zero_grad()
        loss = (self._model(batch) ** 2).mean()
        loss.backward()
        self._optimizer.step()
        self._step += 1
        return loss

    def parameters(self) -> list[bytes]:
        """The parameters after the last step."""
        return [each.detach().numpy().tobytes() for each in self._model.parameters()]


class Trainer(threading.Thread):
    """A training loop of the SDK in a session of its own, with pauses, until :attr:`stopped`."""

    def __init__(self, url: str, seed: int, durable: bool = True) -> None:
        super().__init__(daemon=True)
        self._url, self._seed, self._durable = url, seed, durable
        self.session = ""
        """The session's id."""
        self.losses: list[float] = []
        """The loss of the last step of the beginning, and of each step after it."""
        self.steps: list[Step] = []
        self.stopped = threading.Event()
        self.failure: BaseException | None = None
        self._parameters: list[bytes] = []

    def run(self) -> None:
        """Train."""
        try:
            self._train()
        except BaseException as error:
            self.failure = error

    def _train(self) -> None:
        pauses = random.Random(self._seed)
        with tg.connect(self._url, seed=self._seed, durable=self._durable) as session:
            self.session = session.id
            losses = Losses(self._seed)
            self.losses.append(losses.begin())
            while not self.stopped.wait(pauses.uniform(0, 2 * PAUSE_S)):
                begun = time.monotonic()
                self.losses.append(losses.next())
                self.steps.append(Step(begun, time.monotonic()))
            self._parameters = losses.parameters()

    @property
    def done(self) -> int:
        """How many steps were acknowledged."""
        return len(self.steps)

    def verify(self) -> None:
        """Hold each loss and the parameters against an undisturbed session's."""
        if self.failure is not None:
            raise self.failure
        with tg.connect("local://", seed=self._seed):
            losses = Losses(self._seed)
            expected = [losses.begin(), *(losses.next() for _ in self.losses[1:])]
            assert self.losses == expected, f"session {self.session} has other losses"
            assert self._parameters == losses.parameters(), f"session {self.session} has other parameters"


class Caller(chaos.Client):
    """A client without the SDK: numbered programs as requests, each repeated until it is answered, with pauses."""

    def __init__(self, url: str, seed: int) -> None:
        server: Any = SimpleNamespace(url=url)
        super().__init__(server, seed)
        self.session = self.path.rpartition("/")[2]
        self.steps: list[Step] = []
        self._pauses = random.Random(seed)

    def _step(self, program: Sequence[dict[str, Any]]) -> None:
        begun = time.monotonic()
        super()._step(program)
        self.steps.append(Step(begun, time.monotonic()))
        time.sleep(self._pauses.uniform(0, 2 * PAUSE_S))


class Load:
    """Clients of durable sessions that go on until they are told to finish."""

    def __init__(self, url: str, trainers: int, callers: int) -> None:
        self._url = url
        self.trainers = [Trainer(url, seed) for seed in range(trainers)]
        self.callers = [Caller(url, seed) for seed in range(trainers, trainers + callers)]
        self.clients: list[Trainer | Caller] = [*self.trainers, *self.callers]
        for client in self.clients:
            client.start()

    @property
    def acknowledged(self) -> int:
        """How many steps of all clients were acknowledged."""
        return sum(client.done for client in self.clients)

    def advance(self, steps: int = 3) -> None:
        """Wait until each client has begun and finished so many more steps."""
        goals = [client.done + 1 + steps for client in self.clients]

        def reached() -> bool:
            for client in self.clients:
                if client.failure is not None:
                    raise client.failure
            return all(client.done >= goal for client, goal in zip(self.clients, goals, strict=True))

        wait_until(reached)

    def finish(self) -> None:
        """Let each client finish its step, and hold its session against an undisturbed one."""
        self._stop()
        for client in self.clients:
            client.join(FINISH_S)
            assert not client.is_alive(), "a client hangs"
        for client in self.clients:
            client.verify()

    def close(self) -> None:
        """Have the clients stop, whatever they do, and end their sessions."""
        self._stop()
        for client in self.clients:
            client.join(FINISH_S)
        for client in self.clients:
            httpx.delete(f"{self._url}/v1/sessions/{client.session}", timeout=WAIT_S)
        for caller in self.callers:
            caller.close()

    def _stop(self) -> None:
        for trainer in self.trainers:
            trainer.stopped.set()
        for caller in self.callers:
            caller.stopped = True


@contextmanager
def load(url: str, trainers: int, callers: int) -> Iterator[Load]:
    """So many clients with the SDK, and without it, each of which has taken a few steps."""
    found = Load(url, trainers, callers)
    try:
        found.advance()
        yield found
    finally:
        found.close()


def resumed_s(clients: Sequence[Trainer | Caller], since: float) -> list[float]:
    """For each client, the seconds from a moment to the first answer to a step that it began after that moment."""
    return [next(step.answered for step in client.steps if step.begun > since) - since for client in clients]
