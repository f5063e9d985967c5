"""The SDK tells a session that is observed the user's lines and modules, and any other session nothing."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import httpx
import pytest

import telegrad as tg

from ..servers import running


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as (address, _):
        yield address


@contextmanager
def observing(url: str, session: Any) -> Iterator[SimpleQueue[tuple[str, Any]]]:
    """The events of a session, which is observed within the block."""
    events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    path = f"{url}/v1/sessions/{session.id}/events"
    with httpx.Client(timeout=240) as client, client.stream("GET", path, params={"observe": "true"}) as answer:
        assert answer.status_code == 200

        def read() -> None:
            name = ""
            try:
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        name = line.removeprefix("event: ")
                    elif line.startswith("data: "):
                        events.put((name, json.loads(line.removeprefix("data: "))))
            except httpx.HTTPError:  # the block has ended
                pass

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        yield events


def step_with(url: str, session: Any, events: SimpleQueue[tuple[str, Any]], train: Any, label: str) -> dict[str, Any]:
    """The boxes by label of the first observed step in which this one has a line; ``train`` trains on."""
    while True:
        train()
        while not events.empty():
            name, _ = events.get()
            if name == "step":
                graph = httpx.get(f"{url}/v1/sessions/{session.id}/graph/folded?source=step").json()
                boxes = {box["label"]: box for box in graph["boxes"]}
                if boxes.get(label, {}).get("line") is not None:
                    return boxes


class Net(tg.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.Tanh())
        self.head = tg.nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        hidden = self.encoder(x) * 2.0
        return self.head(hidden)


@pytest.mark.parametrize("stream", [True, False])
def test_lines_and_modules_of_a_training_loop(url: str, stream: bool) -> None:
    plain = tg.nn.Module.__call__
    with tg.connect(url, stream=stream) as session:
        model, x = Net(), tg.ones(3, 4)
        optimizer = tg.optim.SGD(model.parameters(), lr=0.01)

        def train() -> None:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()

        with observing(url, session) as events:
            boxes = step_with(url, session, events, train, "mean")
            own = {label: (box["module"], box["line"]) for label, box in boxes.items() if box["kind"] == "op"}
            first = inspect.getsourcelines(Net.forward)[1]
            loss_line = f"test_observed_sessions.py:{inspect.getsourcelines(train)[1] + 2}"
            assert own["tanh"] == ("encoder.1", f"test_observed_sessions.py:{first + 1}")
            assert own["mul"] == ("Net", f"test_observed_sessions.py:{first + 1}")
            assert own["linear"] == ("head", f"test_observed_sessions.py:{first + 2}")
            assert own["square"] == own["mean"] == (None, loss_line)
            while True:
                train()
                name, data = events.get(timeout=240)
                if name == "scalars":
                    break
            assert data["values"][0]["key"] == f"{loss_line} mean"
            for _ in range(10):
                train()
            assert tg.nn.Module.__call__ is plain  # all is told
        while tg.nn.Module.__call__ is not plain:
            train()


def test_a_loop_computes_the_same_while_it_is_observed(url: str) -> None:
    def losses(observed: bool, steps: int = 20) -> list[float]:
        with tg.connect(url) as session:
            tg.manual_seed(0)
            model, x = Net(), tg.randn(3, 4)
            optimizer = tg.optim.Adam(model.parameters())
            found = []

            def train() -> None:
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                found.append(loss.item())

            if observed:
                with observing(url, session) as events:
                    step_with(url, session, events, train, "mean")
                    for _ in range(steps):
                        train()
            else:
                for _ in range(steps):
                    train()
            return found

    watched = losses(True)
    assert watched == losses(False, len(watched))


def test_what_is_not_observed_is_told_nothing(url: str) -> None:
    plain = tg.nn.Module.__call__
    with tg.connect(url) as session:
        model, x = Net(), tg.ones(3, 4)
        path = f"{url}/v1/sessions/{session.id}/events"
        with httpx.Client(timeout=240) as client, client.stream("GET", path) as answer:
            lines = answer.iter_lines()
            for _ in range(3):
                model(x).sum().item()
                assert tg.nn.Module.__call__ is plain
            names = {next(line for line in lines if line.startswith("event: ")) for _ in range(3)}
        assert names == {"event: program"}
        model(x).sum().backward()
        graph = httpx.get(f"{url}/v1/sessions/{session.id}/graph/folded").json()
        assert all(box["line"] is box["module"] is None for box in graph["boxes"])


@pytest.mark.full
def test_interactive_use_tells_each_structure_the_first_time(url: str) -> None:
    with tg.connect(url) as session, observing(url, session) as events:
        w = tg.ones(3, requires_grad=True)
        for number in range(6):
            value = w * 2.0
            for _ in range(number):
                value = value.exp()
            value.sum().item()
        labels: list[str] = []
        while len(labels) < 3:
            name, data = events.get(timeout=240)
            if name == "scalars":
                labels += [each["label"] for each in data["values"]]
        assert all(label.startswith("sum test_observed_sessions.py:") for label in labels)
