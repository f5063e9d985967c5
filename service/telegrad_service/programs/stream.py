"""``WS /v1/sessions/{session}/stream``: programs without a request each, several under way, answered in order.

A frame is one container, as it is posted to ``…/programs``, with its sequence number in the metadata; docs/stream.md
has the protocol. While a program runs the next one waits behind it, and one more may be read. Nothing more is before
an answer has gone, and nothing is answered faster than it is taken, so a client that floods costs three bodies and two
answers of memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from telegrad_engine.cancellation import CancellationToken
from telegrad_engine.errors import ServerBusy, TelegradError, TooLarge
from telegrad_engine.program import compression, wire
from telegrad_engine.program.result import Lent, whole
from telegrad_engine.session.memory_accounting import Accounts
from telegrad_engine.session.session import NotAtOnce

from .. import problems
from ..hosting import work
from ..hosting.host import GOING_AWAY, TAKEN_OVER, TOKEN, SessionHandle
from ..hosting.sequence import parse_sender
from ..http import encodings
from ..http.limits import BodyReservation
from ..settings import Settings
from ..streaming.websocket import ANSWER_WITH, DIGEST, ON_LOST, PROMPT

logger = logging.getLogger(__name__)
T = TypeVar("T")
Running = asyncio.Future[work.Numbered]
PATH = "/v1/sessions/{session}/stream"
UNSUPPORTED = 1003
"""WebSocket's close code for a kind of message that is not read here."""
AT_ONCE = 2
"""How many programs of one stream may wait or run: with one behind it, a session goes from one to the next at once."""
MAX_AT_ONCE = 2**20
"""How many bytes a program may have to be read and run on the event loop."""
MAX_TEXT_AT_ONCE = 2**16
"""How many of them may be JSON."""
TOO_LONG = 1009
"""The one for a message that is too long, whether it is so as it comes or when it is unpacked."""
OWN_FAULT = 1011
"""The one for what should not happen."""


async def stream(websocket: WebSocket) -> None:
    """A client wants to connect: refused with a problem document, or served."""
    state = websocket.app.state
    try:
        handle: SessionHandle = state.host.find(websocket.path_params["session"])
        compressed = encodings.asks(websocket.query_params.get("compress"))
        sender = parse_sender(websocket.query_params.get("sender"))
    except TelegradError as error:
        await websocket.send_denial_response(problems.problem(error))
        return
    with suppress(WebSocketDisconnect):
        await Stream(handle, sender, state.settings, websocket, compressed, state.host.bodies).serve()


class Stream:
    """One connection; each sender has one at a time. One task reads, this one; another answers."""

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
        """The account of the programs that wait or run."""
        self._compressed = compressed
        """Whether long answers go in zstd frames."""
        self._websocket = websocket
        self._receive, self._send = websocket.receive, websocket.send
        extension = websocket.scope.get("extensions", {}).get(PROMPT, {})
        self._answer_with = extension.get(ANSWER_WITH)
        """Takes what answers messages that keep nobody waiting, where the server can do so."""
        self._on_lost = extension.get(ON_LOST)
        """Takes what is called when the connection is lost, where the server can do so."""
        self.gone = False
        """Whether the connection is lost."""
        self._room = asyncio.Semaphore(AT_ONCE)
        self._under_way: asyncio.Queue[Running | None] = asyncio.Queue()
        """What is to be answered, in order; None is the end."""
        self._reader = asyncio.current_task()
        self._writer: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[Any] | None] = set()
        """Which of the two wait for the client, or for their turn, and can be broken off."""
        self._count = 0
        """How many run or are about to; while there are any, the turn to use a number is this stream's."""
        self._unanswered = 0
        """How many were read and are not answered."""
        self._gone = False
        """Whether the client takes no answers any more."""
        self._ending: tuple[int, str] | None = None

    def stop(self, code: int, reason: str) -> None:
        """Answer what runs, then close."""
        if self._ending is None:
            self._ending = code, reason
            # An answer can be asked for again, unless the server stops: then a slow client has the time of draining.
            kept = self._writer if code == GOING_AWAY else None
            for task in self._waiting:
                if task is not None and task is not kept:
                    task.cancel()

    def _lost(self) -> None:
        """The client is gone: unless it connects again soon, what it has sent is cancelled."""
        if not self.gone:
            self.gone = True
            asyncio.get_running_loop().call_later(self._settings.reconnect_s, self._handle.cancel_streamed)

    async def serve(self) -> None:
        """Answer one program after another until the client goes, or is told to."""
        await self._receive()  # the wish to connect
        # A client that connects again does not believe in its old connection any more.
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
            self._handle.beat()  # a client whose connection broke has the time of a heartbeat to connect again

    async def _converse(self) -> None:
        """Greet, read and answer, until all that was read is answered."""
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
        """Wait for what may never come: this may be broken off."""
        task = asyncio.current_task()
        self._waiting.add(task)
        try:
            return await waiting
        finally:
            self._waiting.discard(task)

    def _greeting(self) -> dict[str, Any]:
        """Where the session is: a client that lost its connection goes on from there."""
        record = self._record
        return {
            "session": self._handle.id,
            "last": record.last,
            "failed": record.failed,
            "max_bytes": self._settings.max_body_bytes,
        }

    # Reading -----------------------------------------------------------------------------

    async def _read(self) -> None:
        """Have the session run what comes."""
        if self._answer_with is not None and not self._compressed:
            self._answer_with(self._prompt, self._handle.flush, lambda: self._handle.alone)
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
            ran = self._ran_at_once(body)
            self._under_way.put_nowait(ran or await self._run(body, message.get(DIGEST)))
            if ran is not None:
                asyncio.get_running_loop().call_soon(self._handle.flush)  # behind the answer

    def _prompt(self, body: memoryview) -> Message | None:
        """The answer to a program that keeps nobody waiting and has none before it; None, with nothing done, else.

        What the program leaves in its session is still to be finished then.
        """
        if self._unanswered or self._ending is not None:
            return None
        try:
            return self._plain(self._run_at_once(body))
        except NotAtOnce:
            return None
        except Exception:
            self._break_down()
            return None

    def _ran_at_once(self, body: memoryview) -> Running | None:
        """A program that has run and kept nobody waiting; None, with nothing done, where it might."""
        done: Running = asyncio.get_running_loop().create_future()
        try:
            done.set_result(self._run_at_once(body))
        except NotAtOnce:
            return None
        except Exception as error:  # the one who answers has the words
            done.set_exception(error)
        return done

    def _run_at_once(self, body: memoryview) -> work.Numbered:
        """What a program came to that keeps nobody waiting. Raises NotAtOnce, with nothing done, where it might."""
        record = self._record
        text_size = int.from_bytes(body[:8], "little")
        if text_size > MAX_TEXT_AT_ONCE or len(body) > MAX_AT_ONCE:
            raise NotAtOnce
        if record.turn.locked() or compression.is_frame(body):
            raise NotAtOnce
        return self._handle.run_at_once(work.run_numbered, record, body, *self._limits)

    async def _run(self, body: memoryview, digest: bytes | None) -> Running:
        """A program that has begun, or waits for the one before it; ``digest`` is its body's, if it is known."""
        record, reservation = self._record, BodyReservation(self._bodies)
        try:
            reservation.reserve(len(body))
        except ServerBusy as busy:
            refused: Running = asyncio.get_running_loop().create_future()
            refused.set_exception(busy)
            return refused
        try:
            if not self._count:
                await self._patiently(record.turn.acquire())
        except BaseException:
            reservation.release()
            raise
        self._count += 1
        token = CancellationToken()
        TOKEN.set(token)  # the task copies the context in which it is made
        call = self._handle.call(work.run_numbered, record, body, *self._limits, digest=digest)
        running = asyncio.ensure_future(call)
        self._handle.streamed.add(token)
        running.add_done_callback(partial(self._done, token, reservation))
        return running

    def _done(self, token: CancellationToken, reservation: BodyReservation, running: Running) -> None:
        """A program has come to its end: nobody's turn has to wait until its client takes the answer."""
        self._handle.streamed.discard(token)
        reservation.release()
        self._count -= 1
        if not self._count:
            self._record.turn.release()

    # Answering ---------------------------------------------------------------------------

    async def _answer(self) -> None:
        """Send what programs come to, in order; where the client does not take it any more, just wait for them."""
        while (running := await self._under_way.get()) is not None:
            try:
                await self._send_answer(running)
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
                del running  # or the last answer stayed, and with it what its session lent
                self._unanswered -= 1
                self._room.release()

    async def _send_answer(self, running: Running) -> None:
        answer = await self._message(await running)
        if answer is not None and not self._gone:
            await self._deliver(answer)

    def _break_down(self) -> None:
        """End for an error that should not be: the one that is being handled."""
        logger.exception("a stream met an error of the server's own")
        self.stop(OWN_FAULT, problems.OWN_FAULT)

    async def _deliver(self, answer: Message) -> None:
        """Send an answer as soon as the client takes it; a stream that ends waits for that only so long."""
        if self._ending is None:
            await self._patiently(self._send(answer))
            return
        async with asyncio.timeout(None if self._ending[0] == GOING_AWAY else self._settings.stream_ping_s):
            await self._send(answer)

    async def _message(self, done: work.Numbered) -> Message | None:
        """An answer as the client takes it; None where the stream is to end instead."""
        message = self._plain(done)
        if message is None or done.error is not None or not self._compressed:
            return message
        return {**message, "bytes": await asyncio.to_thread(_compressed, done.answer)}

    def _plain(self, done: work.Numbered) -> Message | None:
        """An answer as it is."""
        number, error = done.number, done.error
        if error is None:
            return {"type": "websocket.send", "bytes": done.answer}
        if number is None and isinstance(error, TooLarge):
            self.stop(TOO_LONG, error.detail)
            return None
        return _text(problems.content(error) | {"sequence": number})


def _compressed(answer: wire.Container | Lent) -> wire.Container:
    return compression.compress(whole(answer))


def _text(data: Mapping[str, Any]) -> Message:
    return {"type": "websocket.send", "text": json.dumps(data, default=str)}
