"""Programs that keep nobody waiting run on the event loop; all others do not, and nobody can tell but by the clock.

Internals: whether a program ran on the event loop is seen only beside the host.
"""

from __future__ import annotations

import asyncio
import json
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
from telegrad_engine.program import Instruction, compression
from telegrad_engine.session.session import NotAtOnce, Session
from telegrad_service.app import create_app
from telegrad_service.hosting import actor, session_handle
from telegrad_service.hosting.commands import WORKLOADS, brief, create_tensor, run_instructions, run_op
from telegrad_service.hosting.host import SessionHost
from telegrad_service.hosting.session_handle import SessionHandle, SessionOptions
from telegrad_service.observability.request import REQUEST, RequestInfo
from telegrad_service.observability.watch import RequestWatch
from telegrad_service.resources.autograd import BackwardArguments, backward
from telegrad_service.resources.tensors import get_tensor
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
        here = SessionHost(Settings())
        handle = await here.create(SessionOptions())
        await handle.call(took, session_handle.AT_ONCE_S)
        await asyncio.sleep(2 * actor.ALONE_S)
        try:
            await go(here, handle)
        finally:
            await here.close()

    asyncio.run(run())


def test_a_session_that_is_alone_runs_brief_programs_here() -> None:
    async def go(here: SessionHost, handle: SessionHandle) -> None:
        assert handle.run_at_once(thread) is threading.current_thread()
        assert await handle.call(thread) is not threading.current_thread()

    hosted(go)


def test_beside_another_session_only_tiny_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(here: SessionHost, handle: SessionHandle) -> None:
        other = await here.create(SessionOptions())
        handle.run_at_once(thread)
        monkeypatch.setattr(actor, "ALONE_S", 3600.0)  # a busy machine lets more time pass between two lines
        await other.call(thread)
        with pytest.raises(NotAtOnce):
            handle.run_at_once(thread)
        await handle.call(took, session_handle.TINY_S)
        await other.call(thread)
        assert handle.run_at_once(thread) is threading.current_thread()
        await handle.call(took, session_handle.AT_ONCE_S)
        monkeypatch.undo()
        await asyncio.sleep(2 * actor.ALONE_S)
        handle.run_at_once(thread)

    hosted(go)


def test_what_a_thread_leaves_is_its_own_to_finish() -> None:
    async def go(here: SessionHost, handle: SessionHandle) -> None:
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
    async def go(here: SessionHost, handle: SessionHandle) -> None:
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
                await handle.call(run_instructions, [Instruction("zeros", [], ["x"], {"size": [2]})])
        await other.call(run_instructions, [Instruction("zeros", [], ["x"], {"size": [2]})])
        await here.end(ANYONE, handle.id)

    hosted(go)


def test_behind_a_call_that_runs_or_a_long_program_nothing_does() -> None:
    async def go(here: SessionHost, handle: SessionHandle) -> None:
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


def test_a_request_runs_here_once_its_like_was_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_handle, "BRIEF_S", 0.05)

    async def go(here: SessionHost, handle: SessionHandle) -> None:
        await handle.call(run_instructions, [])
        seconds = 0.0

        @brief(lambda session, work: work)
        def busy(session: Session, work: str) -> threading.Thread:
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass
            return threading.current_thread()

        @brief(lambda session: "fails")
        def fail(session: Session) -> None:
            raise RuntimeError("at once")

        async def is_here(name: str, body_size: int = 0) -> bool:
            info = RequestInfo("test")
            info.body_size = body_size
            REQUEST.set(info)
            return await handle.call(busy, name) is threading.current_thread()

        assert [await is_here("a"), await is_here("a"), await is_here("b")] == [False, True, False]
        assert not await is_here("a", body_size=1_000_000)
        seconds = 0.2
        assert await is_here("a")
        assert not await is_here("a"), "the last one was long"
        assert not await is_here("fails")
        with pytest.raises(RuntimeError):
            await handle.call(fail)
        assert not await is_here("fails"), "an error comes early"
        running = asyncio.ensure_future(handle.call(busy, "c"))
        await asyncio.sleep(0)
        assert not await is_here("b"), "it waits for the one before it"
        await running

    hosted(go)


def workloads(**calls: Callable[[Session], object]) -> dict[str, object]:
    """The workloads of calls in a session with some tensors."""
    session = Session()
    graph = [
        Instruction("tensor", [], ["few"], {"data": [1, 2]}),
        Instruction("tensor", [], ["x"], {"data": [1.0, 2.0]}),
        Instruction("tensor", [], ["y"], {"data": [3.0, 4.0]}),
        Instruction("tensor", [], ["z"], {"data": [1.0]}),
        Instruction("zeros", [], ["large"], {"size": [5000]}),
        *[Instruction("tensor", [], [name], {"data": 1.0, "requires_grad": True}) for name in ("w", "hooked")],
        Instruction("mse_loss", ["w", "z"], ["loss"]),
        Instruction("mse_loss", ["w", "large"], ["loss_of_large"]),
        Instruction("mul", ["hooked", 2.0], ["loss_with_hook"]),
    ]
    session.run(graph)
    session.tensors["hooked"].register_hook(lambda grad: time.sleep(1))
    return {name: call(session) for name, call in calls.items()}


def of_op(name: str, *inputs: object, data: bool = False) -> Callable[[Session], object]:
    return lambda session: WORKLOADS[run_op](session, name, inputs, {}, None, data, 10**6)


def of_backward(name: str) -> Callable[[Session], object]:
    return lambda session: WORKLOADS[backward](session, BackwardArguments(tensors=[name]))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(of_op("bincount", "few"), id="values that decide a size"),
        pytest.param(of_op("arange", 3.0), id="a number that decides a size"),
        pytest.param(of_op("mul", "large", "x"), id="a tensor whose values may be slow"),
        pytest.param(lambda s: WORKLOADS[get_tensor](s, "large", True, "application/json"), id="the same read"),
        pytest.param(of_backward("loss_of_large"), id="saved values larger than all gradients"),
        pytest.param(of_backward("loss_with_hook"), id="hook of a leaf"),
        pytest.param(of_backward("x"), id="no graph"),
        pytest.param(of_backward("nothing"), id="no tensor"),
    ],
)
def test_what_may_be_long_has_no_workload(call: Callable[[Session], object]) -> None:
    """A brief call does not tell how long another one takes."""
    assert workloads(call=call) == {"call": None}


def test_what_differs_in_length_differs_in_workload() -> None:
    found = workloads(
        x=of_op("mul", "x", 2.0),
        y=of_op("mul", "y", 3.0),
        shorter=of_op("mul", "z", 2.0),
        other=of_op("add", "x", 2.0),
        whole=of_op("mul", "x", 2),
        more=of_op("mul", "x", 3),
        with_data=of_op("mul", "x", 2.0, data=True),
        backward=of_backward("loss"),
    )
    assert found["x"] == found.pop("y")
    assert None not in found.values() and len(set(found.values())) == len(found)
    created = [Instruction("zeros", [], None, {"size": [2]})]
    create = WORKLOADS[create_tensor]
    assert create(Session(), created, True, 1) != create(Session(), created, False, 1)


def test_a_large_graph_is_left_to_a_thread() -> None:
    """To count or to free its nodes takes long."""
    session = Session()
    session.run([Instruction("tensor", [], ["w"], {"data": 1.0, "requires_grad": True})])
    assert session.has_small_graphs
    session.run([Instruction("neg_", ["v"]) if i else Instruction("neg", ["w"], ["v"]) for i in range(10_000)])
    assert not session.has_small_graphs


def test_a_small_body_that_was_compressed_is_not_taken_for_small(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    at_once = actor.Actor.run_at_once

    def run_at_once(self: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        ran.append("here")
        return at_once(self, function, *arguments, **options)

    monkeypatch.setattr(actor.Actor, "run_at_once", run_at_once)
    monkeypatch.setattr(session_handle, "BRIEF_S", 0.5)

    async def go() -> None:
        app = create_app()
        watched: Any = RequestWatch(app, app.state.requests, app.state.host.ledger, log=False)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(watched), base_url="http://localhost") as client:
            tensors = f"/v1/sessions/{(await client.post('/v1/sessions', json={})).json()['id']}/tensors"

            async def is_here(size: int) -> bool:
                plain = json.dumps({"data": [0.5] * size}).encode()
                body = compression.compress(plain)
                coding = {} if body is plain else {"content-encoding": "zstd"}
                headers = {"content-type": "application/json", **coding}
                ran.clear()
                answer = await client.post(tensors, content=bytes(body), headers=headers)
                assert answer.status_code == 201 and len(body) < 2048
                return bool(ran)

            assert [await is_here(4) for _ in range(3)] == [False, False, True]
            assert not await is_here(10_000)
        await app.state.host.close()

    asyncio.run(go())


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
