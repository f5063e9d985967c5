"""Load for a cluster: users who know what each of their steps must have given (tests/chaos.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx

from ...chaos import Client, Trainer, User
from ..api_keys import WAIT_S, wait_until

AT_ONCE = (100, 1)
"""Trainers take many steps at once at the beginning, so that there is much to restore."""


class Load:
    """Users of durable sessions who go on until they are told to finish."""

    def __init__(self, url: str, trainers: int, clients: int, pause_s: float) -> None:
        self._url = url
        self.users: list[User] = [
            *(Trainer(url, seed, pause_s, AT_ONCE, durable=True) for seed in range(trainers)),
            *(Client(url, seed, pause_s) for seed in range(trainers, trainers + clients)),
        ]
        for user in self.users:
            user.start()

    def advance(self, steps: int = 3) -> None:
        """Wait until each user has begun and finished so many more steps."""
        goals = [user.done + 1 + steps for user in self.users]

        def reached() -> bool:
            for user in self.users:
                user.check()
            return all(user.done >= goal for user, goal in zip(self.users, goals, strict=True))

        wait_until(reached)

    def finish(self) -> None:
        """Let each user finish the step, and compare each session with its twin."""
        for user in self.users:
            user.stopped.set()
        for user in self.users:
            user.finish()

    def close(self) -> None:
        """Stop the users, whatever they do, and end their sessions."""
        for user in self.users:
            user.stopped.set()
        for user in self.users:
            user.close()
            httpx.delete(f"{self._url}/v1/sessions/{user.session}", timeout=WAIT_S)


@contextmanager
def load(url: str, trainers: int, clients: int, pause_s: float = 0.0) -> Iterator[Load]:
    """So many users with the SDK, and without it, each of whom has taken a few steps."""
    found = Load(url, trainers, clients, pause_s)
    try:
        found.advance()
        yield found
    finally:
        found.close()


def resumed_s(users: Sequence[User], since: float) -> list[float]:
    """For each user, the seconds from a moment to the first answer to a step that began after that moment."""
    return [next(step.answered for step in user.steps if step.begun > since) - since for user in users]
