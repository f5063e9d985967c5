"""Programs that keep nobody waiting run on the event loop; all others do not, and nobody can tell but by the clock.

Internals: whether a program ran on the event loop is seen only beside the host.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.errors import InternalError
from telegrad_engine.program import Instruction
from telegrad_engine.session.session import NotAtOnce, Session
from telegrad_service.hosting import actor, host, work
from telegrad_service.hosting.commands import WORKLOADS, brief
from telegrad_service.hosting.host import SessionHandle, SessionOptions
from telegrad_service.hosting.in_process import InProcessHost
from telegrad_service.observability.request import REQUEST, RequestInfo
from telegrad_service.settings import Settings
from telegrad_service.tenants.principal import ANYONE

from .conftest import SessionClient
from .streams import ADD, UP, Raw, container, remembered, written


def thread(session: Session, within: float = 0.0) -> threading.Thread:
    """The thread that it runs on."""
    return threading.current_thread()


def took(session: Session, seconds: float) -> None:
    """Have the session's last program be one that took so long."""
    session.last_s = seconds


def hosted(go: Callable[..., Any]) -> None:
    """Run ``go(host, handle)`` beside a session that has been alone for long enough."""

    async def run() -> None:
        here = InProcessHost(Settings())
        handle = await here.create(SessionOptions())
        await handle.call(took, host.AT_ONCE_S)
        await asyncio.sleep(2 * actor.ALONE_S)
        try:
            await go(here, handle)
        finally:
            await here.close()

    asyncio.run(run())


def test_a_session_that_is_alone_runs_brief_programs_here() -> None:
    async def go(here: InProcessHost, handle: SessionHandle) -> None:
        assert handle.run_at_once(thread) is threading.current_thread()
        assert await handle.call(thread) is not threading.current_thread()

    hosted(go)


def test_beside_another_session_only_tiny_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(here: InProcessHost, handle: SessionHandle) -> None:
        other = await here.create(SessionOptions())
        handle.run_at_once(thread)
        monkeypatch.setattr(actor, "ALONE_S", 3600.0)  # a busy machine lets more time pass between two lines
        await other.call(thread)
        with pytest.raises(NotAtOnce):
            handle.run_at_once(thread)
        await handle.call(took, host.TINY_S)
        await other.call(thread)
        assert handle.run_at_once(thread) is threading.current_thread()
        await handle.call(took, host.AT_ONCE_S)
        monkeypatch.undo()
        await asyncio.sleep(2 * actor.ALONE_S)
        handle.run_at_once(thread)

    hosted(go)


def test_what_a_thread_leaves_is_its_own_to_finish() -> None:
    async def go(here: InProcessHost, handle: SessionHandle) -> None:
        free, left, by = threading.Event(), asyncio.Event(), []
        loop = asyncio.get_running_loop()

        def run(session: Session) -> None:
            session.defer(lambda: by.append(threading.current_thread()))
            loop.call_soon_threadsafe(left.set)
            free.wait(30)
            session.flush()

        running = asyncio.ensure_future(handle.call(run))
        await left.wait()
        handle.flush()
        behind = asyncio.ensure_future(handle.call(thread))
        await asyncio.sleep(0)
        assert not by
        free.set()
        await running
        assert by == [await behind]

    hosted(go)


def test_an_error_after_an_answer_is_told_to_the_next_program_of_that_session() -> None:
    async def go(here: InProcessHost, handle: SessionHandle) -> None:
        other = await here.create(SessionOptions())

        def fail() -> None:
            raise RuntimeError("broken on purpose")

        def answer(session: Session, within: float) -> str:
            session.defer(fail)
            return "answered"

        assert handle.run_at_once(answer) == "answered"
        handle.flush()
        for _ in range(2):
            with pytest.raises(InternalError, match="cannot be used any more"):
                await handle.call(work.run, [Instruction("zeros", [], ["x"], {"size": [2]})])
        await other.call(work.run, [Instruction("zeros", [], ["x"], {"size": [2]})])
        await here.end(ANYONE, handle.id)

    hosted(go)


def test_behind_a_call_that_runs_or_a_long_program_nothing_does() -> None:
    async def go(here: InProcessHost, handle: SessionHandle) -> None:
        free = threading.Event()
        running = asyncio.ensure_future(handle.call(lambda session: free.wait(30)))
        await asyncio.sleep(0)
        with pytest.raises(NotAtOnce):
            handle.run_at_once(thread)
        free.set()
        await running
        handle.run_at_once(thread)
        await handle.call(took, 0.5)
        with pytest.raises(NotAtOnce):
            handle.run_at_once(thread)

    hosted(go)


def test_a_request_runs_here_once_its_like_was_brief() -> None:
    async def go(here: InProcessHost, handle: SessionHandle) -> None:
        seconds = 0.0

        @brief(lambda session, work: work)
        def asleep(session: Session, work: str) -> threading.Thread:
            time.sleep(seconds)
            return threading.current_thread()

        async def is_here(name: str, received: int = 0) -> bool:
            info = RequestInfo("test")
            info.received = received
            REQUEST.set(info)
            return await handle.call(asleep, name) is threading.current_thread()

        assert [await is_here("a"), await is_here("a"), await is_here("b")] == [False, True, False]
        assert not await is_here("a", received=1_000_000)
        seconds = 1.0
        assert not await is_here("c")
        assert not await is_here("c"), "its like took a second"
        running = asyncio.ensure_future(handle.call(asleep, "c"))
        await asyncio.sleep(0)
        assert not await is_here("b"), "it waits for the one before it"
        await running

    hosted(go)


def test_values_that_may_decide_the_size_of_a_result_are_not_taken_for_brief() -> None:
    """A brief call on a few numbers does not tell how long the same op takes on others."""

    async def go(here: InProcessHost, handle: SessionHandle) -> None:
        def workload(session: Session, name: str, *inputs: object) -> object:
            return WORKLOADS[work.run_op](session, name, inputs, {})

        for name, data in {"few": [1, 2], "x": [1.0, 2.0], "y": [3.0, 4.0], "z": [1.0]}.items():
            await handle.call(work.run, [Instruction("tensor", [], [name], {"data": data})])
        assert await handle.call(workload, "bincount", "few") is None
        assert await handle.call(workload, "arange", 3.0) is None
        of_x, of_y, of_z = [await handle.call(workload, "mul", name, 2.0) for name in "xyz"]
        assert of_x == of_y != of_z

    hosted(go)


@pytest.mark.parametrize("compress", [None, "zstd"], ids=["as its bytes arrive", "in a task"])
def test_who_has_the_answer_finds_the_session_where_the_program_left_it(url: str, compress: str | None) -> None:
    with tg.connect(url, compress=compress) as session:
        x = tg.zeros(3)
        transport: Any = session.recorder.transport
        here = f"{url}/v1/sessions/{transport.session_id}"
        x.sum().item()
        with httpx.Client() as client:
            before = client.get(here).json()["programs"]
            for turn in range(1, 30):
                x.add_(1)
                assert x.sum().item() == 3 * turn
                assert client.get(here).json()["programs"] == before + turn


def test_small_and_large_batches_in_turn_train_as_in_torch(url: str) -> None:
    """Programs of both kinds on one stream, several under way: answered in order, each run once."""
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((size, 300)).astype(np.float32) for size in (8, 8, 1500) * 20]
    start = rng.standard_normal((300, 4)).astype(np.float32) / 20

    def losses(lib: Any) -> list[float]:
        w = lib.tensor(start, requires_grad=True)
        optimizer = lib.optim.SGD([w], lr=0.1, momentum=0.9)
        kept = []
        for step, batch in enumerate(batches):
            optimizer.zero_grad()
            loss = ((lib.tensor(batch) @ w).tanh() ** 2).mean()
            loss.backward()
            optimizer.step()
            kept.append(loss.detach())
            if step % 10 == 3:
                kept[-1].item()
        return [loss.item() for loss in kept]

    with tg.connect(url) as session:
        time.sleep(2 * actor.ALONE_S)
        np.testing.assert_allclose(losses(tg), losses(torch), rtol=1e-4)
        assert sum(report["planned_runs"] for report in session.compiled()) > 0


def test_what_is_brief_does_not_overtake_what_came_with_it(session: SessionClient) -> None:
    brief = [
        {"op": "mul", "in": ["_0", 2], "out": ["_1"]},
        {"op": "sum", "in": ["_1"], "out": ["_2"]},
        {"op": "fetch", "in": [["_2"]]},
        {"op": "free", "in": [["_1", "_2"]]},
    ]
    with closing(Raw(session)) as raw:
        raw.socket.sendall(written(0x82, container(1, UP, x=np.ones(8, np.float32))))
        time.sleep(2 * actor.ALONE_S)
        for number in range(2, 30):
            assert b'"sequence":"' + str(number - 1).encode() in raw.message()[1]
            raw.socket.sendall(written(0x82, remembered(number, ["x", "y", "s"], *brief)))
        for number in range(30, 40, 2):
            both = container(number, ADD), remembered(number + 1, ["x", "y", "s"], *brief)
            assert b'"answer"' in raw.message()[1]
            raw.socket.sendall(b"".join(written(0x82, each) for each in both))
            assert b'"answer"' in raw.message()[1]
        assert np.frombuffer(raw.message()[1][-4:], np.float32) == 8 * 2 * 6


def test_others_are_answered_while_a_long_program_runs_behind_brief_ones(url: str) -> None:
    with tg.connect(url) as session:
        time.sleep(2 * actor.ALONE_S)
        x = tg.ones(1500, 1500) / 1500
        for _ in range(20):
            assert x[0].sum().item() == pytest.approx(1, rel=1e-4)

        def long() -> None:
            y = x
            for _ in range(20):
                y = y @ x
            assert y[0].sum().item() == pytest.approx(1, rel=1e-3)

        computing = threading.Thread(target=long)
        computing.start()
        while session.requests < 21:
            time.sleep(0.001)
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert computing.is_alive()
        computing.join(60)
