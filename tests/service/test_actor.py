"""Calls of an actor: in order, one at a time, off the event loop.

Internals: which thread runs what, and when, is seen only beside the actor.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import threading
import weakref
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from starlette.responses import Response

from telegrad_engine.compile import Compiler
from telegrad_engine.errors import SequenceConflict, ServerBusy
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.session.session import NotAtOnce
from telegrad_service.hosting.actor import Actor, Work, Workers
from telegrad_service.hosting.commands import run_numbered
from telegrad_service.hosting.sequence import MAX_BYTES, SequenceRecord

from .streams import UP, container, hosted


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(3)
    yield made
    made.stop()


def test_order_and_threads(workers: Workers) -> None:
    seen: list[int] = []
    running = threading.Semaphore(1)

    def note(number: int) -> int:
        assert running.acquire(blocking=False), "two calls at once"
        assert threading.current_thread() is not threading.main_thread()
        seen.append(number)
        running.release()
        return number

    async def go() -> list[int]:
        actor = Actor(workers)
        return list(await asyncio.gather(*[actor.call(note, number) for number in range(50)]))

    assert asyncio.run(go()) == seen == list(range(50))


def test_actors_run_side_by_side(workers: Workers) -> None:
    meeting = threading.Barrier(3)

    async def go() -> None:
        await asyncio.gather(*[Actor(workers).call(meeting.wait, 30) for _ in range(3)])

    asyncio.run(go())


def test_errors_reach_the_caller_and_stop_nothing(workers: Workers) -> None:
    async def go() -> None:
        actor = Actor(workers)
        failing = asyncio.ensure_future(actor.call(int, "x"))
        following = asyncio.ensure_future(actor.call(int, "3"))
        with pytest.raises(ValueError):
            await failing
        assert await following == 3
        assert not actor.busy

    asyncio.run(go())


def test_who_gives_up_waiting_is_skipped(workers: Workers) -> None:
    ran: list[str] = []
    gate = threading.Event()

    async def go() -> None:
        actor = Actor(workers)
        first = asyncio.ensure_future(actor.call(gate.wait, 30))
        second = asyncio.ensure_future(actor.call(ran.append, "second"))
        third = asyncio.ensure_future(actor.call(ran.append, "third"))
        await asyncio.sleep(0)
        second.cancel()
        gate.set()
        await asyncio.gather(first, third)
        assert second.cancelled()

    asyncio.run(go())
    assert ran == ["third"]


def test_abandoned_calls_are_answered(workers: Workers) -> None:
    gate = threading.Event()

    async def go() -> None:
        actor = Actor(workers)
        calls = [asyncio.ensure_future(actor.call(gate.wait, 30)) for _ in range(2)]
        await asyncio.sleep(0.01)
        actor.abandon(ServerBusy("over"), ServerBusy("over"))
        for call in calls:
            with pytest.raises(ServerBusy):
                await call
        gate.set()
        assert await actor.call(int, "1") == 1
        assert not actor.busy

    asyncio.run(go())


def test_nothing_holds_what_an_answered_call_had(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is not scheduled again before the answer is used must not keep the session's memory."""
    gate = threading.Event()
    put = workers.put

    def lingers(work: Work, tenant: str = "") -> None:
        def run() -> None:
            work()
            gate.wait(30)

        put(run, tenant)

    monkeypatch.setattr(workers, "put", lingers)

    async def go() -> None:
        argument = np.zeros(3)
        held = weakref.ref(argument)
        assert await Actor(workers).call(len, argument) == 3
        del argument
        assert held() is None

    try:
        asyncio.run(go())
    finally:
        gate.set()


def test_a_request_that_did_not_happen_keeps_its_number() -> None:
    async def answer(status: int, body: bytes = b"") -> Response:
        return Response(body, status)

    async def refuse() -> Response:
        raise ServerBusy("not now")

    async def go() -> None:
        record = SequenceRecord()
        with pytest.raises(ServerBusy):
            await record.once(1, 0, refuse)
        assert record.last == 0
        assert (await record.once(1, 0, lambda: answer(422))).status_code == 422
        assert (await record.once(1, 0, lambda: answer(200))).status_code == 422
        large = b"x" * (MAX_BYTES // 2 + 1)
        for number in (2, 3):
            await record.once(number, 0, lambda: answer(200, large))
        with pytest.raises(SequenceConflict, match="too old"):
            await record.once(2, 0, lambda: answer(200))
        assert (await record.once(3, 0, lambda: answer(200))).body == large

    asyncio.run(go())


def test_a_message_that_could_not_run_at_once_goes_on_where_it_stopped() -> None:
    def message(number: int, *programs: dict[str, Any], told: int = 0) -> bytes:
        """Calls of one template each, of which the first were told before."""
        texts = [json.dumps([program]) for program in programs]
        digests = [sha256(text.encode()).hexdigest() for text in texts]
        templates = {f"template.{digests[i]}": texts[i] for i in range(told, len(texts))}
        calls = json.dumps([{"template": digest, "ids": ["x"]} for digest in digests])
        return save({}, {**templates, "calls": calls, "seen": str(number - 1), "sequence": str(number)})

    planner = Compiler(after=2, choose=False)
    session = hosted(memory=ProgramCache(), compiler=planner)
    add, double = [{"op": op, "in": ["_0", number]} for op, number in (("add_", 1), ("mul_", 2))]

    def run(body: bytes, within: float | None = None) -> None:
        assert run_numbered(session, "", body, 64, 2**20, within).error is None

    run(container(1, UP, x=np.zeros(2, np.float32)))
    for number in range(2, 9):
        run(message(number, add, told=number > 2))
    both = message(9, add, double, told=1)
    with pytest.raises(NotAtOnce):  # the second program was never seen
        run(both, math.inf)
    assert session.get("x").tolist() == [8, 8]
    run(both)
    assert session.get("x").tolist() == [16, 16]


def test_the_record_of_a_failed_program_holds_none_of_its_arrays() -> None:
    program = [{"op": "neg", "in": ["nope"], "out": ["never"]}, {"op": "tensor", "out": ["x"]}]
    body = np.frombuffer(container(1, *program, x=np.zeros(1000, np.float32)), np.uint8).copy()
    held = weakref.ref(body)
    session = hosted()
    answer = run_numbered(session, "", memoryview(body), 64, 2**20)
    assert isinstance(answer.error, LookupError)
    del body
    gc.collect()
    assert held() is None and session.senders.of("").failed == 1
