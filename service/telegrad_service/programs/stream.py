"""``WS /v1/sessions/{session}/stream``: programs without a request each, several under way, answered in order.

A frame is one container, as it is posted to ``…/programs``, with its sequence number in the metadata; docs/stream.md
has the protocol. One program is read while the one before runs. Nothing more is read before that is answered, and
nothing is answered faster than it is taken, so a client that floods costs two bodies and an answer of memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any

from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from telegrad_engine.errors import ProgramNotRun, SequenceConflict, ServerBusy, TelegradError

from .. import problems, work
from ..host import GOING_AWAY, TAKEN_OVER, SessionHandle
from ..settings import Settings

PATH = "/v1/sessions/{session}/stream"
UNSUPPORTED = 1003
"""WebSocket's close code for a kind of message that is not read here."""


async def stream(websocket: WebSocket) -> None:
    """A client wants to connect: refused with a problem document, or served."""
    state = websocket.app.state
    try:
        handle: SessionHandle = state.host.find(websocket.path_params["session"])
    except TelegradError as error:
        await websocket.send_denial_response(problems.problem(error))
        return
    with suppress(WebSocketDisconnect):
        await Stream(handle, state.settings, websocket).serve()


class Stream:
    """One connection; a session has one at a time."""

    def __init__(self, handle: SessionHandle, settings: Settings, websocket: WebSocket) -> None:
        self._handle = handle
        self._settings = settings
        self._receive, self._send = websocket.receive, websocket.send
        self._task = asyncio.current_task()
        self._waiting = False
        """Whether the client is waited for, which can be broken off."""
        self._ending: tuple[int, str] | None = None

    def stop(self, code: int, reason: str) -> None:
        """Answer what runs, then close."""
        if self._ending is None:
            self._ending = code, reason
            if self._waiting and self._task is not None:
                self._task.cancel()

    async def serve(self) -> None:
        """Answer one program after another until the client goes, or is told to."""
        await self._receive()  # the wish to connect
        # A client that connects again does not believe in its old connection any more.
        self._handle.stop_streams(TAKEN_OVER, "the session's client has connected again")
        self._handle.streams.add(self)
        try:
            await self._client(self._send({"type": "websocket.accept"}))
            await self._client(self._send(_text(self._greeting())))
            while self._ending is None:
                message = await self._client(self._receive())
                if message["type"] == "websocket.disconnect":
                    return
                answer = await self._answer(message.get("bytes"))
                if answer is not None:
                    await self._client(self._send(answer))
        except asyncio.CancelledError:
            if self._ending is None or self._task is None:
                raise
            self._task.uncancel()
        finally:
            self._handle.streams.discard(self)
        assert self._ending is not None, "the loop ends when there is a reason to"
        code, reason = self._ending
        await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _client(self, waiting: Awaitable[Any]) -> Any:
        self._waiting = True
        try:
            return await waiting
        finally:
            self._waiting = False

    def _greeting(self) -> dict[str, Any]:
        """Where the session is: a client that lost its connection goes on from there."""
        record = self._handle.sequence
        return {
            "session": self._handle.id,
            "last": record.last,
            "failed": record.failed,
            "max_bytes": self._settings.max_body_bytes,
        }

    async def _answer(self, body: bytes | None) -> Message | None:
        """Run a program, or say from the record what became of it; nothing if the stream is to end."""
        if body is None:
            self._ending = UNSUPPORTED, "a frame is binary: a safetensors container"
            return None
        record, depth = self._handle.sequence, self._settings.max_json_depth
        async with record.turn:
            try:
                done = await self._handle.call(work.run_numbered, body, record.last, record.failed, depth)
            except ServerBusy as busy:
                self._ending = GOING_AWAY, busy.detail
                return None
            number, error = done.number, done.error
            record.forget(done.seen)
            if number is None or number > record.last + 1:
                assert error is not None, "a program without the next number has not run"
                return _problem(error, number)
            if number <= record.last:
                try:
                    repeated: Message = record.recorded(number, done.fingerprint)
                    return repeated
                except SequenceConflict as conflict:
                    return _problem(conflict, number)
            answer = {"type": "websocket.send", "bytes": done.answer} if error is None else _problem(error, number)
            halts = not done.complete and not isinstance(error, ProgramNotRun)
            record.record(number, done.fingerprint, answer, len(done.answer), halts)
            return answer


def _problem(error: TelegradError, number: int | None) -> Message:
    return _text(problems.content(error) | {"sequence": number})


def _text(data: Mapping[str, Any]) -> Message:
    return {"type": "websocket.send", "text": json.dumps(data, default=str)}
