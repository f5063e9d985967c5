"""Instructions are sent to the server while the client continues to record, and none is lost.

Internals: what is in flight, and the connections that carry it, are shown nowhere else.
"""

from __future__ import annotations

import gc
import math
import socket
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad.tape import flush_policy
from telegrad.tape.flush_policy import FIRST_ROOM

from ..servers import running_server
from .cutting import Cutter
from .parity import held

pytestmark = pytest.mark.full

STEPS = 12
BATCHES = np.random.default_rng(0).standard_normal((STEPS, 64, 512)).astype(np.float32)
"""Batches of 128 KiB, so that each step is sent in a message of its own."""
LABELS = np.arange(64) % 5


def train(lib: Any, labels: Any = lambda step: LABELS) -> Any:
    """Run a few steps on new batches without reading a value, and return the weight."""
    layer = lib.nn.Linear(512, 5)
    with lib.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    optimizer = lib.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(layer(lib.tensor(BATCHES[step])), lib.tensor(labels(step)) + 0)
        loss.backward()
        optimizer.step()
    return layer.weight


def test_steps_go_out_before_anybody_waits(server: str) -> None:
    with tg.connect(server) as session:
        weight = train(tg)
        sent = session.requests
        assert 1 <= sent <= STEPS
        np.testing.assert_allclose(weight.tolist(), train(torch).tolist(), rtol=1e-4, atol=1e-6)
        assert session.requests == sent + 1


@pytest.mark.parametrize("read_every", [1, 10])
def test_a_step_is_not_torn_however_much_it_uploads(server: str, read_every: int) -> None:
    """The images of a step are sent with its labels and with the ops on them."""
    images, labels = np.zeros((1024, 512), np.float32), np.zeros(1024, np.int64)
    with tg.connect(server) as session:
        layer = tg.nn.Linear(512, 5)
        optimizer = tg.optim.SGD(layer.parameters(), lr=0.1)
        for turn in range(1, 31):
            if turn == 11:
                sent = session.requests
            x = tg.tensor(images).reshape(1024, 512)
            loss = tg.nn.functional.cross_entropy(layer(x), tg.tensor(labels))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if turn % read_every == 0:
                loss.item()
        assert session.requests - sent <= 20


def test_who_looks_at_each_step_has_it_in_one_message_and_who_does_not_need_not_wait(server: str) -> None:
    """This holds even if something is recorded between a step and the read of its value."""
    with tg.connect(server) as session:
        w = tg.zeros(8, requires_grad=True)
        optimizer = tg.optim.SGD([w], lr=0.1)
        goal = tg.ones(8)

        def steps(count: int) -> None:
            total = tg.zeros(())
            for _ in range(count):
                optimizer.zero_grad()
                loss = ((w - goal) ** 2).sum()
                loss.backward()
                optimizer.step()
                total = total + loss.detach()
            total.item()

        steps(3)
        sent = session.requests
        for _ in range(10):
            steps(1)
        assert session.requests - sent == 10
        steps(12)
        sent = session.requests
        steps(3)
        assert session.requests - sent > 1
        assert w.tolist() == pytest.approx([1 - 0.8**28] * 8)


def sent_together(session: tg.Session, rows: int, pause_s: float = 0) -> Callable[[int], list[int]]:
    """Return a function that runs steps, each of which uploads ``rows`` rows of 2 KB, and returns steps per message."""
    w = tg.zeros(500, 500, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.1)
    x, images = tg.ones(500, 500), np.ones((rows, 500), np.float32)

    def steps(count: int) -> list[int]:
        ended = [0]
        for step in range(count):
            before = session.requests
            optimizer.zero_grad()
            loss = ((tg.tensor(images) if rows else x) @ w).mean()
            if step and session.requests > before:
                ended.append(step)
            loss.backward()
            optimizer.step()
            time.sleep(pause_s)
        loss.item()
        return [int(n) for n in np.diff([*ended, count])]

    return steps


@pytest.mark.parametrize(
    ("rows", "count", "sent"),
    [
        (0, 13, [1, 4, 4, 4]),
        (0, 3, [3]),
        (100, 13, [1, 4, 4, 4]),
        (100, 3, [1, 2]),
        (150, 13, [1, 3, 3, 3, 3]),  # 300 KB; four of them are too large for the server's event loop
        (600, 13, [1] * 13),
    ],
)
def test_a_server_is_sent_one_step_and_then_several(
    server: str, rows: int, count: int, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers do not depend on the progress of the server."""
    monkeypatch.setattr(flush_policy, "GATHER_S", math.inf)  # as if no step took long
    with tg.connect(server) as session:
        steps = sent_together(session, rows)
        for _ in range(4):  # the recorder learns the steps
            steps(count)
        assert [steps(count) for _ in range(4)] == [sent] * 4


def test_steps_that_differ_are_planned(server: str) -> None:
    """Each length of a sequence is one template, independent of the number of steps per message."""
    lengths = np.random.default_rng(0).permutation(np.repeat(np.arange(1, 9), 30))
    with tg.connect(server) as session:
        w = tg.full((50, 50), 0.01, requires_grad=True)
        optimizer = tg.optim.SGD([w], lr=0.1)
        batch = np.ones((10, 50), np.float32)
        for length in lengths.tolist():
            optimizer.zero_grad()
            x = tg.tensor(batch)
            for _ in range(length):
                x = (x @ w).tanh()
            x.mean().backward()
            optimizer.step()
        session.flush()
        runs = [report["planned_runs"] / report["runs"] for report in session.compiled() if report["runs"] > 5]
        assert len(runs) == 8 and min(runs) > 0.6


def test_more_is_under_way_to_a_server_that_is_far_but_not_to_one_that_takes_long(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a medium latency more programs are in flight; with a long one, no more than usual."""
    with Cutter(server) as proxy, tg.connect(proxy.url, stream=True) as session:
        w = tg.ones(8, requires_grad=True)
        optimizer = tg.optim.SGD([w], lr=0.001)

        def under_way(steps: int) -> int:
            most = 0
            for _ in range(steps):
                optimizer.zero_grad()
                (w * w).sum().backward()
                optimizer.step()
                most = max(most, len(session.recorder._in_flight))
            return most

        w.tolist()
        monkeypatch.setattr(flush_policy, "SOON_S", 60.0)
        proxy.delay_s = 0.05
        assert FIRST_ROOM < under_way(2000) <= session.recorder.transport.room
        proxy.kill()  # nothing in flight is lost
        assert w.tolist() == pytest.approx([0.998**2000] * 8, rel=1e-4)
        monkeypatch.setattr(flush_policy, "SOON_S", 0.25)
        proxy.delay_s = 0.15
        under_way(250)
        assert under_way(100) == FIRST_ROOM
        assert w.tolist() == pytest.approx([0.998**2350] * 8, rel=1e-4)


@pytest.mark.parametrize("rows", [0, 100])
def test_a_server_is_not_kept_waiting_by_a_slow_client(server: str, rows: int) -> None:
    with tg.connect(server) as session:
        steps = sent_together(session, rows, pause_s=0.1)
        steps(5)  # the recorder learns the steps
        assert [steps(5) for _ in range(3)] == [[1] * 5] * 3


def test_a_slow_step_is_not_torn(server: str) -> None:
    with tg.connect(server) as session:
        layer = tg.nn.Linear(512, 5)
        optimizer = tg.optim.SGD(layer.parameters(), lr=0.1)
        for images in BATCHES[:5]:
            x = tg.tensor(images)
            time.sleep(0.1)
            optimizer.zero_grad()
            tg.nn.functional.cross_entropy(layer(x), tg.tensor(LABELS)).backward()
            optimizer.step()
        session.flush()
        assert session.requests <= 5


def test_whatever_was_sent_before_a_loop_it_begins_with_one_step(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_policy, "GATHER_S", math.inf)  # as if no step took long
    with tg.connect(server) as session:
        steps = sent_together(session, rows=100)
        steps(2)
        for _ in range(4):
            tg.ones(2).tolist()

        def after_uploads() -> list[int]:
            before = session.requests
            kept = [tg.tensor(batch) for batch in BATCHES]
            assert session.requests > before + 2 and len(kept) == STEPS
            found = steps(7)
            for _ in range(4):
                tg.ones(2).tolist()
            return found

        after_uploads()  # the recorder learns the uploads
        assert [after_uploads() for _ in range(3)] == [[1, 4, 2]] * 3


def test_who_has_trained_is_sent_ahead_all_the_same(server: str) -> None:
    with tg.connect(server) as session:
        weight = train(tg)
        for _ in range(4):
            weight.sum().item()
        sent = session.requests
        sums = [tg.tensor(batch).sum() for batch in BATCHES]
        assert session.requests > sent
        np.testing.assert_allclose([x.item() for x in sums], BATCHES.sum((1, 2)), rtol=1e-3)


def test_in_this_process_nothing_runs_before_it_is_needed() -> None:
    with tg.connect("local://") as session:
        train(tg)
        assert session.requests == 0


def wrong_in(bad: int) -> Any:
    """A function whose labels for step ``bad`` are out of range, which only the server can detect."""
    return lambda step: LABELS + 5 if step == bad else LABELS


def test_an_error_surfaces_at_the_next_value_and_names_its_line(server: str) -> None:
    with tg.connect(server) as session:
        weight = train(tg, wrong_in(2))
        with pytest.raises(IndexError, match="is out of bounds") as caught:
            weight.tolist()
        note = "".join(traceback.format_exception(caught.value))
        assert f"recorded at {__file__}" in note
        # The steps before it have run, those after it have not.
        expected = torch.nn.Linear(512, 5)
        assert session.requests <= STEPS
        np.testing.assert_allclose(weight.tolist(), _after(expected, 2).tolist(), rtol=1e-4, atol=1e-6)
        del weight, caught
        gc.collect()
        assert held(session) == {}


def _after(layer: Any, steps: int) -> Any:
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(torch.tensor(BATCHES[step])), torch.tensor(LABELS)).backward()
        optimizer.step()
    return layer.weight


def test_closing_tells_of_an_error_that_nobody_saw(server: str) -> None:
    session = tg.connect(server)
    train(tg, wrong_in(0))
    with pytest.warns(UserWarning, match="no value was read after it: .*out of bounds"):
        session.close()


def test_through_a_proxy_programs_go_by_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    # The server itself acts as the proxy: it answers requests for an absolute URL as its own.
    with running_server(allowed_host="telegrad.invalid") as server:
        monkeypatch.setenv("http_proxy", server)
        monkeypatch.setenv("no_proxy", "")
        with tg.connect("http://telegrad.invalid") as session:
            assert (tg.ones(2) + 1).tolist() == [2.0, 2.0]
            transport: Any = session.recorder.transport
            assert type(transport._programs).__name__ == "HttpFallback"


@pytest.mark.parametrize("no_proxy", ["", "localhost, 127.0.0.1"])
def test_a_proxy_is_not_asked_for_this_machine(server: str, monkeypatch: pytest.MonkeyPatch, no_proxy: str) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", no_proxy)
    with tg.connect(server, stream=None) as session:
        assert (tg.ones(2) + 1).tolist() == [2.0, 2.0]
        assert type(session.recorder.transport._programs).__name__ == "Stream"  # type: ignore[attr-defined]


def test_a_proxy_is_not_asked_for_the_names_that_are_excepted(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A name that resolves to this machine, but does not look local.
    monkeypatch.setattr(socket, "getaddrinfo", partial(of_this_machine, socket.getaddrinfo))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.org, .invalid")
    url = server.replace("127.0.0.1", "telegrad.invalid")
    with pytest.raises(tg.TelegradError, match=r"telegrad\.invalid"):  # the server was reached and refused the name
        tg.connect(url)
    monkeypatch.setenv("no_proxy", "example.org")
    with pytest.raises(ConnectionError, match="cannot reach"):
        tg.connect(url)


def of_this_machine(resolve: Any, host: Any, *args: Any, **options: Any) -> Any:
    return resolve("127.0.0.1" if host in ("telegrad.invalid", b"telegrad.invalid") else host, *args, **options)
