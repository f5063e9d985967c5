"""A session that sends much JSON does not keep the others waiting."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from .conftest import SessionClient
from .streams import ADD, UP, Talk, fetch

X = np.random.default_rng(0).random((52_000, 10))
"""10 MiB in JSON."""
ATTEMPTS = 10
TENSOR = {"id": "x", "data": X.tolist(), "dtype": "float64"}
PROGRAM = {"instructions": [{"op": "tensor", "out": ["x"], "attrs": {"data": X.tolist(), "dtype": "float64"}}]}


@pytest.mark.parametrize(
    ("path", "body", "status"), [("/tensors", TENSOR, 201), ("/programs", PROGRAM, 200)], ids=["tensor", "program"]
)
def test_others_are_answered_in_the_meantime(
    new_session: Callable[..., SessionClient], path: str, body: object, status: int
) -> None:
    content = json.dumps(body).encode()

    def longest_share() -> float:
        """The longest time without an answer to the other session, as a share of the time that the body takes."""
        sender, other = new_session(), Talk(new_session())
        other.ask(1, UP, x=np.zeros(1, np.float32))
        statuses: list[int] = []

        def send() -> None:
            headers = {"content-type": "application/json", "telegrad-sequence": "1"}
            statuses.append(sender.request("POST", path, content=content, headers=headers).status_code)

        thread = threading.Thread(target=send)
        answered = [time.perf_counter()]
        thread.start()
        while not statuses and thread.is_alive():
            other.ask(len(answered) + 1, ADD, fetch("x"))
            answered.append(time.perf_counter())
        thread.join()
        other.socket.close()
        assert statuses == [status]
        made = sender.get("/tensors/x", headers={"accept": "application/vnd.safetensors"})
        assert X.tobytes() in made.content
        return float(np.diff(answered).max() / (answered[-1] - answered[0]))

    # A parser that holds the interpreter's lock takes half of the whole time at once, and each time. On a busy machine
    # others may take as much now and then.
    assert any(longest_share() < 0.25 for _ in range(ATTEMPTS))
