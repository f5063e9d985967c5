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
TENSOR = {"id": "x", "data": X.tolist(), "dtype": "float64"}
PROGRAM = {"instructions": [{"op": "tensor", "out": ["x"], "attrs": {"data": X.tolist(), "dtype": "float64"}}]}


@pytest.mark.parametrize(("path", "body"), [("/tensors", TENSOR), ("/programs", PROGRAM)], ids=["tensor", "program"])
def test_others_are_answered_in_the_meantime(
    new_session: Callable[..., SessionClient], path: str, body: object
) -> None:
    sender, other = new_session(), Talk(new_session())
    other.ask(1, UP, x=np.zeros(1, np.float32))
    content = json.dumps(body).encode()
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
    assert statuses in ([200], [201])
    # A parser that holds the interpreter's lock takes half of the whole time at once.
    assert np.diff(answered).max() < 0.25 * (answered[-1] - answered[0])
    made = sender.get("/tensors/x", headers={"accept": "application/vnd.safetensors"})
    assert X.tobytes() in made.content
