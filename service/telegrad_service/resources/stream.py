"""``WS /v1/sessions/{session}/stream``: pipelined programs on one connection, answered in order.

A frame is one container, as in a request to ``…/programs``, with its sequence number in the metadata;
docs/reference/stream.md specifies the protocol. While a program runs, the next one waits, and one more may be read.
The server does not read on until an answer is sent, and sends answers only as fast as the client reads them. So a
client that floods the stream costs the memory of three bodies and two answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar
from weakref import ref

from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from telegrad_engine.cancellation import CancellationToken
from telegrad_engine.errors import ServerBusy, SessionLimit, TelegradError, TooLarge
from telegrad_engine.program import compression
from telegrad_engine.program.frames import CLIENT_HEADER, QUOTA_USED_UP, TAKEN_OVER, is_loopback
from telegrad_engine.program.result import in_one_buffer
from telegrad_engine.session.memory_accounting import Accounts
from telegrad_engine.session.session import NotAtOnce

from .. import problems
from ..hosting.commands import run_numbered
from ..hosting.sequence import StreamAnswer, parse_number, parse_sender
from ..hosting.session_handle import GOING_AWAY, TOKEN, SessionHandle
from ..http.limits import BodyReservation
from ..http.representations import asks_for_compression
from ..observability.request import REQUEST, new_id, note_route
from ..routing.route import check_query
from ..settings import Settings
from ..streaming.websocket import ANSWER_WITH, ON_LOST, PROMPT
from ..tenants.principal import Scope, principal_of

logger = logging.getLogger(__name__)
T = TypeVar("T")
Running = asyncio.Future[StreamAnswer]
PATH = "/v1/sessions/{session}/stream"
SCOPE: Scope = "sessions"
"""The scope that the stream needs, like a route with a body."""
QUERY = ("attempt", "compress", "sender")
REVOKED = 4401
"""The WebSocket close code for a client whose API key is no longer valid."""
UNSUPPORTED = 1003
"""The WebSocket close code for a type of message that the stream does not accept."""
AT_ONCE = 2
"""The number of programs of one stream that may wait or run. With one waiting, the session is never idle."""
MAX_AT_ONCE = 2**20
"""The largest program, in bytes, that is decoded and run on the event loop."""
MAX_TEXT_AT_ONCE = 2**16
"""The largest JSON part, in bytes, of such a program."""
TOO_LONG = 1009
"""The WebSocket close code for a message that is too long, before or after decompression."""
OWN_FAULT = 1011
"""The WebSocket close code for an internal error."""


async def stream(websocket: WebSocket) -> None:
    """Serve a stream, or refuse it with a problem document."""
    state = websocket.app.state
    principal = principal_of(websocket)
    try:
        principal.require(SCOPE)
        check_query(websocket.scope, QUERY)
        handle: SessionHandle = state.host.find(principal, websocket.path_params["session"])
        compressed = asks_for_compression(websocket.query_params.get("compress"))
        sender = parse_sender(websocket.query_params.get("sender"))
        attempt = parse_number(websocket.query_params.get("attempt", "0"), "attempt", least=0)
        await handle.ready()
        if attempt:
            handle.senders.of(sender).connects(attempt)
    except TelegradError as error:
        await websocket.send_denial_response(problems.problem(error))
        return
    finally:
        note_route(PATH, principal.tenant)
    served = Stream(handle, sender, state.settings, websocket, compressed, state.host.bodies(principal.tenant))
    revoked = partial(served.stop, REVOKED, "the API key is no longer valid")
    with suppress(WebSocketDisconnect), state.authenticator.watching(principal, revoked):
        await served.serve()


def _is_direct(websocket: WebSocket) -> bool:
    """Whether a single TCP connection on the loopback interface joins the client and this server.

    RFC 6455 (10.3) requires masks because of proxies between client and server. If the client and the server name the
    same address and port, there is no proxy.
    """
    end = websocket.client
    if end is None or websocket.headers.getlist(CLIENT_HEADER) != [f"{end.host}:{end.port}"]:
        return False
    return is_loopback(end.host)


class Stream:
    """One connection; a sender has at most one. The task that calls :meth:`serve` reads, another one answers."""

    def __init__(
        self,
        handle: SessionHandle,
        sender: str,
        settings: Settings,
        websocket: WebSocket,
        compressed: bool,
        bodies: Accounts,
    ) -> None:
        self._handle = handle
        self.sender = sender
        self._record = handle.senders.of(sender)
        self._settings = settings
        self._limits = settings.max_json_depth, settings.max_body_bytes
        self._bodies = bodies
        """The memory account of the programs that wait or run."""
        self._compressed = compressed
        """Whether long answers are compressed with zstd."""
        self._websocket = websocket
        self._account = handle.account
        request = REQUEST.get()
        self._request_id = new_id() if request is None else request.id
        self._receive, self._send = websocket.receive, websocket.send
        extension = websocket.scope.get("extensions", {}).get(PROMPT, {})
        self._answer_with = extension.get(ANSWER_WITH)
        """Registers the function that answers short messages immediately; None if the server does not support it."""
        self._on_lost = extension.get(ON_LOST)
        """Registers a callback for the loss of the connection; None if the server does not support it."""
        self.gone = False
        """Whether the connection is lost."""
        self._room = asyncio.Semaphore(AT_ONCE)
        self._under_way: asyncio.Queue[Running | None] = asyncio.Queue()
        """The programs to answer, in order; None marks the end."""
        self._reader = asyncio.current_task()
        self._writer: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[Any] | None] = set()
        """The tasks, reader or writer, that wait for the client or for their turn and can be cancelled."""
        self._count = 0
        """The number of programs that run or wait. If there are any, this stream holds the record's ``turn``."""
        self._unanswered = 0
        """The number of programs that were read and not answered yet."""
        self._gone = False
        """Whether the client no longer reads answers."""
        self._ending: tuple[int, str] | None = None

    def stop(self, code: int, reason: str) -> None:
        """Answer the programs that were read, then close the connection."""
        if self._ending is None:
            self._ending = code, reason
            # A client can request an answer again, unless the server stops: then the writer goes on while it drains.
            kept = self._writer if code == GOING_AWAY else None
            for task in self._waiting:
                if task is not None and task is not kept:
                    task.cancel()

    def _lost(self) -> None:
        """Cancel the client's programs if it does not reconnect within ``reconnect_s`` seconds."""
        if not self.gone:
            self.gone = True
            asyncio.get_running_loop().call_later(self._settings.reconnect_s, _cancel_streamed, ref(self._handle))

    async def serve(self) -> None:
        """Answer programs until the client disconnects or :meth:`stop` is called."""
        await self._receive()  # websocket.connect
        # A client that reconnects has abandoned its old connection.
        self._handle.stop_streams(TAKEN_OVER, "the sender has connected again", self.sender)
        self._handle.streams.add(self)
        if self._on_lost is not None:
            self._on_lost(self._lost)
        try:
            await self._converse()
            if self._ending is not None and self._websocket.application_state is not WebSocketState.DISCONNECTED:
                code, reason = self._ending
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
        finally:
            self._handle.streams.discard(self)
            self._handle.beat()  # a client whose connection broke has one heartbeat period to reconnect

    async def _converse(self) -> None:
        """Send the greeting, then read programs and answer all of them."""
        self._writer = asyncio.create_task(self._answer())
        try:
            await self._patiently(self._send({"type": "websocket.accept"}))
            await self._patiently(self._send(_text(self._greeting())))
            await self._read()
        except asyncio.CancelledError:
            if self._ending is None or self._reader is None:
                raise
            self._reader.uncancel()
        finally:
            self._under_way.put_nowait(None)
            await self._writer

    async def _patiently(self, waiting: Awaitable[T]) -> T:
        """Wait for something that may never happen; :meth:`stop` cancels the wait."""
        task = asyncio.current_task()
        self._waiting.add(task)
        try:
            return await waiting
        finally:
            self._waiting.discard(task)

    def _greeting(self) -> dict[str, Any]:
        """The first message: the sequence numbers with which a reconnected client continues, and limits."""
        record = self._record
        greeting = {
            "session": self._handle.id,
            "request_id": self._request_id,
            "last": record.last,
            "failed": record.failed,
            "max_bytes": self._settings.max_body_bytes,
        }
        return greeting | {"unmasked": True} if _is_direct(self._websocket) else greeting

    # Reading -----------------------------------------------------------------------------

    async def _read(self) -> None:
        """Read programs and run them in the session."""
        if self._answer_with is not None and not self._compressed:
            in_context: Any = copy_context().run  # the protocol calls it outside of this task, which has the request
            self._answer_with(partial(in_context, self._prompt), self._handle.flush, lambda: self._handle.alone)
        while self._ending is None:
            await self._patiently(self._room.acquire())
            message = await self._patiently(self._receive())
            if message["type"] == "websocket.disconnect":
                self._gone = True
                self._lost()
                return
            body = message.get("bytes")
            if body is None:
                self._ending = UNSUPPORTED, "a frame is binary: a safetensors container"
                return
            self._unanswered += 1
            self._account.received += len(body)
            ran = self._ran_at_once(body)
            self._under_way.put_nowait(ran or await self._run(body))
            if ran is not None:
                asyncio.get_running_loop().call_soon(self._handle.flush)  # after the answer

    def _prompt(self, body: memoryview) -> Message | None:
        """Run a short program and return its answer. None, without an effect, if it is long or others are unanswered.

        The session must be flushed afterwards.
        """
        if self._unanswered or self._ending is not None:
            return None
        try:
            message = self._plain(self._run_at_once(body))
            self._account.received += len(body)
            return message
        except NotAtOnce:
            return None
        except ServerBusy as busy:
            self.stop(GOING_AWAY, busy.detail)
            return None
        except Exception:
            self._break_down()
            return None

    def _ran_at_once(self, body: memoryview) -> Running | None:
        """Run a short program and return its finished future, or None, without an effect, if it may take long."""
        try:
            done = self._run_at_once(body)
        except NotAtOnce:
            return None
        except Exception as error:  # _answer handles it
            return _failed(error)
        finished: Running = asyncio.get_running_loop().create_future()
        finished.set_result(done)
        return finished

    def _run_at_once(self, body: memoryview) -> StreamAnswer:
        """Run a short program on the event loop. Raises NotAtOnce, without an effect, if it may take long."""
        record = self._record
        text_size = int.from_bytes(body[:8], "little")
        if text_size > MAX_TEXT_AT_ONCE or len(body) > MAX_AT_ONCE:
            raise NotAtOnce
        if record.turn.locked() or compression.is_frame(body):
            raise NotAtOnce
        return self._handle.run_at_once(run_numbered, self.sender, body, *self._limits)

    async def _run(self, body: memoryview) -> Running:
        """Start a program, or queue it after the previous one."""
        record, reservation = self._record, BodyReservation(self._bodies)
        try:
            reservation.reserve(len(body))
        except (ServerBusy, SessionLimit) as busy:
            return _failed(busy)
        try:
            if not self._count:
                await self._patiently(record.turn.acquire())
        except BaseException:
            reservation.release()
            raise
        self._count += 1
        token = CancellationToken()
        TOKEN.set(token)  # the task copies the current context
        call = self._handle.call(run_numbered, self.sender, body, *self._limits)
        running = asyncio.ensure_future(call)
        self._handle.streamed.add(token)
        running.add_done_callback(partial(self._done, token, reservation))
        return running

    def _done(self, token: CancellationToken, reservation: BodyReservation, running: Running) -> None:
        """Release the memory and the turn of a finished program, before its client has read the answer."""
        self._handle.streamed.discard(token)
        reservation.release()
        self._count -= 1
        if not self._count:
            self._record.turn.release()

    # Answering ---------------------------------------------------------------------------

    async def _answer(self) -> None:
        """Send the answers in order, or only wait for the programs if the client no longer reads answers."""
        while (running := await self._under_way.get()) is not None:
            try:
                await self._send_answer(running)
            except SessionLimit as limit:
                self.stop(QUOTA_USED_UP, limit.detail)
            except ServerBusy as busy:
                self.stop(GOING_AWAY, busy.detail)
            except asyncio.CancelledError:
                if self._ending is None:
                    raise
                self._gone = True
            except (WebSocketDisconnect, TimeoutError):
                self._gone = True
            except Exception:
                self._break_down()
            finally:
                del running  # otherwise the last answer would keep the memory that its session lent
                self._unanswered -= 1
                self._room.release()

    async def _send_answer(self, running: Running) -> None:
        try:
            done = await running
        finally:
            del running  # its error, if any, has this frame in its traceback
        answer = await self._message(done)
        if answer is not None and not self._gone:
            await self._deliver(answer)

    def _break_down(self) -> None:
        """Log the internal error that is being handled, and end the stream."""
        logger.exception("a stream met an error of the server's own")
        self.stop(OWN_FAULT, problems.OWN_FAULT)

    async def _deliver(self, answer: Message) -> None:
        """Send an answer when the client is ready for it. A stream that is ending waits for a limited time."""
        if self._ending is None:
            await self._patiently(self._send(answer))
            return
        async with asyncio.timeout(None if self._ending[0] == GOING_AWAY else self._settings.stream_ping_s):
            await self._send(answer)

    async def _message(self, done: StreamAnswer) -> Message | None:
        """The message for an answer, compressed if the client asked for that; None if the stream ends instead."""
        message = self._plain(done)
        if message is None or done.error is not None or not self._compressed:
            return message
        compressed = await asyncio.to_thread(lambda: compression.compress(in_one_buffer(done.answer)))
        self._account.sent += len(compressed) - len(done.answer)
        return {**message, "bytes": compressed}

    def _plain(self, done: StreamAnswer) -> Message | None:
        """The message for an answer, uncompressed; None if the stream ends instead."""
        number, error = done.number, done.error
        if error is None:
            self._account.sent += len(done.answer)
            return {"type": "websocket.send", "bytes": done.answer}
        self._account.problems[error.slug] += 1
        if number is None and isinstance(error, TooLarge):
            self.stop(TOO_LONG, error.detail)
            return None
        request_id = self._request_id if number is None else f"{self._request_id}-{number}"
        message = _text(problems.content(error) | {"sequence": number, "request_id": request_id})
        self._account.sent += len(message["text"])
        return message


def _failed(error: Exception) -> Running:
    """A future with an error. No frame of the error's traceback refers to it: it would keep the session's memory."""
    failed: Running = asyncio.get_running_loop().create_future()
    failed.set_exception(error)
    return failed


def _cancel_streamed(handle: ref[SessionHandle]) -> None:
    """Cancel the programs of a session without a client. The reference is weak, so that an ended session is freed."""
    session = handle()
    if session is not None:
        session.cancel_streamed()


def _text(data: Mapping[str, Any]) -> Message:
    return {"type": "websocket.send", "text": json.dumps(data, default=str)}
