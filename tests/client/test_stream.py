"""The recorder on a stream: several programs in flight, nothing sent needlessly, errors with their lines.

Internals: what is in flight, and when it is sent, are shown nowhere else.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad.tape import flush_policy
from telegrad_engine.errors import ProgramNotRun

from ..servers import running_server
from .cutting import DOWN, UP, Cutter
from .parity import held
from .test_ahead import train, wrong_in

MIB = np.ones((256, 1024), np.float32)


def ops(session: tg.Session) -> list[str]:
    """The instructions that would be sent now."""
    session.recorder.free_dead()
    return [instruction.op for instruction in session.recorder.pending]


# Several in flight ------------------------------------------------------------------------------


def test_programs_are_sent_while_others_run(server: str) -> None:
    with tg.connect(server, stream=True) as session:
        x, most = tg.zeros(1024), 0
        for _ in range(40):
            x += tg.tensor(MIB).sum(0)
            most = max(most, len(session.recorder._in_flight))
        assert 1 < most <= session.recorder.transport.room
        assert x[0].item() == 40 * 256


def test_what_was_sent_after_an_error_runs_unless_it_depends_on_it(server: str) -> None:
    with tg.connect(server, stream=True) as session:
        x = tg.zeros(1024)
        session.flush()
        bad = tg.zeros(3).index_select(0, tg.tensor([9]) + 0)
        y = tg.zeros(1024)
        for _ in range(12):
            x += tg.tensor(MIB).sum(0)
            y += bad.sum() * tg.tensor(MIB).sum(0)
        assert session.requests > 2
        with pytest.raises((IndexError, RuntimeError), match="out of") as caught:
            x.tolist()
        assert f"recorded at {__file__}" in "".join(traceback.format_exception(caught.value))
        assert not isinstance(caught.value, ProgramNotRun)
        assert (x[0].item(), y[0].item()) == (12 * 256, 0)
        x += tg.tensor(MIB).sum(0)
        assert x[0].item() == 13 * 256
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            bad.tolist()


@pytest.fixture
def forgetful() -> Iterator[str]:
    """A server that remembers one program. It is not started around a test's lines, which would catch errors there."""
    with running_server(remembered_programs=1) as url:
        yield url


@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_forgets_programs_is_sent_them_again_in_order(forgetful: str, stream: bool) -> None:
    with tg.connect(forgetful, stream=stream) as session:
        ours, theirs = train(tg), train(torch)
        np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-4, atol=1e-6)
        assert train(tg, wrong_in(3)) is not None
        with pytest.raises(IndexError, match="out of bounds"):
            session.flush()


def test_what_is_old_is_sent_when_the_next_is_recorded(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_policy, "AHEAD_S", 0.05)
    with tg.connect(server) as session:
        x = tg.ones(3)
        assert session.requests == 0
        time.sleep(0.1)
        x = x + 1
        assert (session.requests, ops(session)) == (1, ["add", "free"])
        assert x.tolist() == [2.0, 2.0, 2.0]


def test_an_idle_client_answers_pings_before_its_next_program_and_loses_nothing() -> None:
    with (
        running_server(stream_ping_s=0.1) as url,
        Cutter(url) as proxy,
        tg.connect(proxy.url, stream=True) as session,
    ):
        x = tg.zeros(3)
        for count in range(1, 4):
            x += 1
            assert x.tolist() == [count] * 3
        up = proxy.passed[UP]
        x += 1
        assert x.tolist() == [4] * 3
        usual = proxy.passed[UP] - up
        stream: Any = session.recorder.transport
        connection = stream._programs._socket
        for count in range(5, 8):
            time.sleep(0.2)  # until the proxy has relayed the data
            up, down = proxy.passed[UP], proxy.passed[DOWN]
            deadline = time.monotonic() + 30
            while (pings := (proxy.passed[DOWN] - down) // 6) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert proxy.passed[UP] == up
            x += 1
            assert x.tolist() == [count] * 3
            deadline = time.monotonic() + 30
            while (sent := proxy.passed[UP] - up) < usual + 10 * pings and time.monotonic() < deadline:
                time.sleep(0.01)
            assert sent >= usual + 10 * pings
        assert stream._programs._socket is connection


# What is sent without a read ------------------------------------------------------------------------------------


def test_what_something_depends_on_is_sent(session: tg.Session) -> None:
    x = tg.ones(3, requires_grad=True)
    y = x * 2
    (y * y).sum().backward()
    del y
    assert x.grad is not None
    assert x.grad.tolist() == [8.0, 8.0, 8.0]
    v = tg.zeros(3)
    v[1:].add_(1)
    assert v.tolist() == [0.0, 1.0, 1.0]


def test_draws_and_writes_are_sent_though_nobody_looks(address: str) -> None:
    def second(look: bool) -> Any:
        with tg.connect(address, seed=3):
            first = tg.rand(4)
            if look:
                first.tolist()
            del first
            return tg.rand(4).tolist()

    assert second(look=True) == second(look=False)
    with tg.connect(address) as session:
        base = tg.zeros(2)
        view = base.view(2)
        view += 1
        del view
        assert {"view", "add_"} <= set(ops(session))
        assert base.tolist() == [1.0, 1.0]


def test_what_may_fail_is_sent_though_nobody_looks(session: tg.Session) -> None:
    tg.tensor([1, 2]) // tg.tensor([1, 0])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        session.flush()


def test_a_profile_shows_what_was_called(session: tg.Session) -> None:
    x = tg.ones(3)
    with tg.profiler.profile() as profile:
        x.sin()
        x.cos()
    assert {"aten::sin", "aten::cos"} <= {event.name for event in profile.events()}


# Errors on their own lines ----------------------------------------------------------------------


@pytest.fixture
def debugging() -> Iterator[None]:
    tg.debug(True)
    yield
    tg.debug(False)


def raised_in(error: BaseException) -> str:
    """The source of the line of this file that raised."""
    found = [f.line for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    return str(found[-1])


@pytest.mark.usefixtures("debugging")
def test_debug_raises_on_the_line_itself(session: tg.Session) -> None:
    x = tg.zeros(3)
    index = tg.tensor([9]) + 0
    with pytest.raises((IndexError, RuntimeError), match="out of") as caught:
        x.index_select(0, index)
        x.exp()
    assert raised_in(caught.value) == "x.index_select(0, index)"
    requests = session.requests
    x.exp()
    assert session.requests == requests + 1
    tg.debug(False)
    x.exp()
    assert session.requests == requests + 1


@pytest.mark.usefixtures("debugging", "session")
def test_all_of_training_works_under_debug() -> None:
    np.testing.assert_allclose(train(tg).tolist(), train(torch).tolist(), rtol=1e-4, atol=1e-6)
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: grad * 10)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20.0, 20.0]


# Threads ----------------------------------------------------------------------------------------

THREADS, ROUNDS = 8, 25


def work(number: int) -> list[float]:
    """Train a separate parameter on the current session, and return the losses."""
    seen = []
    w = tg.full((4,), float(number), requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.01)
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        loss = (w * w + tg.tensor([1.0, 2.0, 3.0, 4.0])).sum()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


def expected(number: int) -> list[float]:
    w = np.full(4, float(number), np.float32)
    seen = []
    for _ in range(ROUNDS):
        seen.append(float((w * w).sum() + 10))
        w -= np.float32(0.01) * 2 * w
    return seen


def in_threads(function: Any) -> list[Any]:
    together = threading.Barrier(THREADS)

    def run(number: int) -> Any:
        together.wait(20)
        return function(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(1, THREADS + 1), timeout=240))


def test_one_session_for_several_threads(session: tg.Session) -> None:
    for number, seen in enumerate(in_threads(work), start=1):
        np.testing.assert_allclose(seen, expected(number), rtol=1e-5)
    assert held(session) == {}


def test_a_session_for_each_thread(address: str, session: tg.Session) -> None:
    def alone(number: int) -> Any:
        with tg.connect(address) as own:
            assert tg.current() is own
            return work(number), own.requests

    for number, (seen, requests) in enumerate(in_threads(alone), start=1):
        np.testing.assert_allclose(seen, expected(number), rtol=1e-5)
        assert requests == ROUNDS
    assert tg.current() is session
    assert session.requests == 0
