"""uvicorn's WebSocket protocol, with a fast path for binary messages in one frame.

The ``websockets`` library handles the handshake, control frames, and everything else a client may send. Binary messages
are received into separate buffers and sent without a copy, because the library copies each of them three times
(docs/decisions/0043).

An application may answer a message within the call that receives it, which saves two switches between tasks: the ASGI
extension ``telegrad.prompt`` has a function for that (docs/maintainers/tuning.md).
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame, apply_mask  # type: ignore[attr-defined]  # in C if there is a wheel
from websockets.protocol import State

from telegrad_engine.errors import ServerBusy, SessionLimit
from telegrad_engine.program.frames import (
    BINARY,
    CONTROL,
    KEY_SIZE,
    MASKED,
    QUOTA_USED_UP,
    TEXT,
    frame_header,
    frame_size,
)
from telegrad_engine.program.result import BorrowedAnswer
from telegrad_engine.session.memory_accounting import Accounts

from ..http.limits import FREE, BodyReservation, ConnectionLimits, extended, peer_of
from ..process import usable_cores
from ..tenants.principal import ANYONE, SCOPE_KEY
from .frame_assembler import FrameAssembler

PROMPT, ANSWER_WITH, ON_LOST = "telegrad.prompt", "answer_with", "on_lost"
"""The extension and its functions. ``answer_with`` takes three functions: one answers messages, one is called after
each answer, and one tells whether no other session waits. ``on_lost`` takes a function to call when the connection is
lost."""
Prompt = Callable[[memoryview], Any]
"""Answers a message with an ASGI message to send, or with None if the application is to receive it."""
_NOTHING = memoryview(b"")
RECEIVED = 2**18
"""Bytes to receive at a time while the length of the message is unknown. To copy a message that is not longer is faster
than two system calls. The rest of a longer one is received into its own memory."""
PIECE = 2**19
"""Bytes of a :class:`BorrowedAnswer` answer that are copied and sent at a time, few enough to stay in the cache."""
POLL_S = 1e-3
"""Seconds to poll at most. Polling blocks the event loop."""
CAN_POLL = hasattr(select, "poll") and hasattr(os, "sched_yield") and usable_cores() > 1
"""Whether this system can poll, and has a core for a client on the same machine."""


class BusyPoll:
    """Polls one connection without sleeping, as long as the client's next bytes arrive within a millisecond.

    A sleeping process takes time to wake, 70 µs on one virtual machine, which delays each answer to a client that reads
    every value. The SDK polls for answers in the same way (telegrad/transport/websocket.py); see
    docs/maintainers/tuning.md. ``descriptor`` is the connection's; ``alone`` tells whether no other session waits.
    """

    def __init__(self, descriptor: int, alone: Callable[[], bool]) -> None:
        self._alone = alone
        self._waits_since = 0.0
        self._soon = False
        """Whether the last bytes came within ``POLL_S`` seconds."""
        if CAN_POLL:
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)

    def arrived(self) -> None:
        """Note that a message, or a part of one, has arrived."""
        self._soon = CAN_POLL and perf_counter() - self._waits_since < POLL_S

    def wait(self) -> None:
        """Poll until the next bytes arrive, if they are likely to arrive soon."""
        self._waits_since = perf_counter()
        if not self._soon or not self._alone():
            return
        while not self._poll.poll(0) and perf_counter() - self._waits_since < POLL_S:
            os.sched_yield()  # the client may be waiting for this core


class StreamProtocol(WebSocketsSansIOProtocol):
    """Reads and writes the frames of one connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits: ConnectionLimits = options["server_state"].limits
        self._bodies: Callable[[str], Accounts] = options["server_state"].bodies
        self._reservation: BodyReservation | None = None
        """The memory of the incoming message, if it is long, until the application receives it."""
        self.peer, self.spare = "", False
        self.waiting_since: float | None = None
        self._partial = 0
        """Bytes of an incomplete message when the limits were last checked."""
        self._partial_deadline: float = self.loop.time() + self._limits.settings.body_timeout_s
        """When the rest of that message must have arrived."""
        self._fast = True
        """Whether this class receives messages itself. After a text or a fragment, the library receives everything."""
        self._unread = b""
        """The beginning of a frame, if it has arrived only in part."""
        self.assembler: FrameAssembler | None = None
        """The incoming message, if its length is known."""
        self._every_s = float(self.config.ws_ping_interval or 0)
        """Seconds between pings, and seconds in which the client of a closing connection must read some data."""
        self._prompt: tuple[Prompt, Callable[[], None], BusyPoll] | None = None
        self._lost: Callable[[], None] | None = None
        """Called when the connection is lost."""
        self._rest: BorrowedAnswer | None = None
        """The message that is sent in pieces. Nothing else is written until all of it is."""
        self._sent = 0
        """How many bytes of that message were sent."""

    def connection_made(self, transport: Any) -> None:
        """Take over a connection from HTTP."""
        super().connection_made(transport)
        self.peer = peer_of(self.client[0]) if self.client else ""
        self._limits.keep(self)

    def is_overdue(self, now: float) -> bool:
        """Whether the client has not sent the rest of a message in time.

        Between messages the client may be silent: pings show whether it is still connected.
        """
        arrived, timeout_s = self._partial_bytes(), self._limits.settings.body_timeout_s
        if arrived is None or arrived < self._partial or self.read_paused or not self.writable.is_set():
            self._partial_deadline = now + timeout_s
        else:
            self._partial_deadline = extended(self._partial_deadline, arrived - self._partial, now, timeout_s)
        self._partial = arrived or 0
        return now > self._partial_deadline

    def _partial_bytes(self) -> int | None:
        """The number of bytes of an incomplete message that have arrived; None between messages."""
        if self.assembler is not None:
            return self.assembler.arrived
        unread = len(self._unread) if self._fast else len(self.conn.reader.buffer) + sum(map(len, self.frames))
        return unread or None

    def expire(self) -> None:
        """End the connection."""
        self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def handle_connect(self, event: Any) -> None:
        """Handle the client's request: tell the application about the extension."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][PROMPT] = {ANSWER_WITH: self._answer_with, ON_LOST: self._call_when_lost}

    def _answer_with(self, prompt: Prompt, after: Callable[[], None], alone: Callable[[], bool]) -> None:
        self._prompt = prompt, after, BusyPoll(self.transport.get_extra_info("socket").fileno(), alone)

    def _call_when_lost(self, lost: Callable[[], None]) -> None:
        self._lost = lost

    def data_received(self, data: bytes | memoryview) -> None:
        """Handle received bytes."""
        if not (self._fast and self.handshake_complete):
            super().data_received(bytes(data))
            self._reserve(self._partial_bytes() or 0)
            return
        rest = memoryview(data)
        while len(rest) and not self.transport.is_closing():
            if self.assembler is not None:
                rest = self.assembler.take(rest)
                self.assembled(rest)
                continue
            if self._unread:
                rest, self._unread = memoryview(self._unread + bytes(rest)), b""
            size = frame_size(rest)
            if size is None:
                self._unread = bytes(rest)
                return
            header, length = size
            end = header + length
            masked = rest[1] & MASKED  # the library refuses other frames
            if rest[0] == BINARY and masked and length <= self.config.ws_max_size and self.conn.state is State.OPEN:
                key = bytes(rest[header - KEY_SIZE : header])
                if end <= len(rest):
                    message, rest = apply_mask(rest[header:end], key), rest[end:]
                    self._deliver(memoryview(message), rest)
                else:
                    self.assembler, rest = FrameAssembler(length, key), rest[header:]
            elif rest[0] & CONTROL and length < 126:
                if len(rest) < end:
                    self._unread = bytes(rest)
                    return
                self._send_all_of_it()
                super().data_received(bytes(rest[:end]))
                rest = rest[end:]
            else:
                self._fast = False
                self._send_all_of_it()
                super().data_received(bytes(rest))
                return

    def assembled(self, rest: memoryview = _NOTHING) -> None:
        """Deliver the message in :attr:`assembler` if it is complete; ``rest`` has arrived after it."""
        assembler = self.assembler
        if assembler is None:
            return
        self._reserve(assembler.arrived)
        if self.transport.is_closing():
            return
        if assembler.complete:
            self.assembler = None
            self._deliver(assembler.message, rest)
        elif self._prompt is not None:  # the rest probably arrives soon
            poll = self._prompt[2]
            poll.arrived()
            poll.wait()

    def _deliver(self, message: memoryview, rest: memoryview) -> None:
        """Answer a message, or queue it for the application."""
        if self.close_sent:
            return
        # If more has arrived, queue the message, so that the event loop serves other connections in between.
        if self._prompt is not None and not len(rest) and self.queue.empty() and self.writable.is_set():
            prompt, after, poll = self._prompt
            poll.arrived()
            answer = prompt(message)
            if answer is not None:
                try:
                    self._write(answer)
                finally:
                    after()
                poll.wait()
                return
        received: Any = {"type": "websocket.receive", "bytes": message}
        self.queue.put_nowait(received)
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _reserve(self, size: int) -> None:
        """Reserve memory for the ``size`` bytes of a message that have arrived. End the connection if none is left."""
        if size <= FREE or self.transport.is_closing():
            return
        if self._reservation is None:
            principal: Any = self.scope.get(SCOPE_KEY, ANYONE)  # nobody's before it is authenticated
            self._reservation = BodyReservation(self._bodies(principal.tenant))
        try:
            self._reservation.reserve(size)
        except (ServerBusy, SessionLimit) as busy:
            if self._rest is None:
                code = QUOTA_USED_UP if isinstance(busy, SessionLimit) else CloseCode.TRY_AGAIN_LATER
                self.conn.fail(code, busy.detail)
                self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def _release(self) -> None:
        """Release the memory of the message that the application has received."""
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None

    async def receive(self) -> Any:
        """Return the next message. Resume reading if no other is queued and the write buffer is not full."""
        message = await self.queue.get()
        self._release()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            if self.writable.is_set():
                self.transport.resume_reading()
        return message

    async def send(self, message: Any) -> None:
        """Send an ASGI message, without copying its bytes into a frame."""
        if message["type"] == "websocket.close" and message["code"] != CloseCode.GOING_AWAY:
            self._let_go()  # a server that stops has its own deadline
        while not self.writable.is_set():  # another task may have written since it was set
            await self.writable.wait()
        if self.handshake_complete and (self.disconnected or self.close_sent):
            raise ClientDisconnected
        if message.get("bytes") is None or message["type"] != "websocket.send" or not self.handshake_complete:
            await super().send(message)
            if message["type"] == "websocket.accept":
                self._read_straight()
            elif message["type"] == "websocket.http.response.body" and not message.get("more_body"):
                self.handshake_complete = True  # otherwise the library logs that the application has not answered
            return
        if self.conn.state is not State.OPEN:
            raise ClientDisconnected
        self._write(message)

    def _read_straight(self) -> None:
        """Make the event loop receive through :class:`_Reader` from now on."""
        self.transport.pause_reading()  # the loop chooses how to receive when reading resumes
        self.transport.set_protocol(_Reader(self))
        if not self.read_paused:
            self.transport.resume_reading()

    def _write(self, message: Any) -> None:
        """Send the text or the bytes of an ASGI message in one frame."""
        body = message.get("bytes")
        kind, body = (TEXT, message["text"].encode()) if body is None else (BINARY, body)
        if isinstance(body, BorrowedAnswer):
            self.transport.write(frame_header(kind, len(body)))
            self._rest, self._sent = body, 0
            self._send_what_is_taken()
        else:
            self.transport.writelines([frame_header(kind, len(body)), body])

    def _send_what_is_taken(self) -> None:
        """Send more of a :class:`BorrowedAnswer` answer, until the transport's buffer is full."""
        while self._rest is not None and self.writable.is_set():
            self._send_piece(self._rest)

    def _send_all_of_it(self) -> None:
        """Send the rest of a :class:`BorrowedAnswer` answer, so that something else can be written."""
        while self._rest is not None:
            self._send_piece(self._rest)

    def _send_piece(self, lent: BorrowedAnswer) -> None:
        piece = b"" if self.transport.is_closing() else lent.read(self._sent, PIECE)
        self._sent += len(piece)
        if not piece or self._sent == len(lent):
            self._rest = None
        if piece:
            self.transport.write(piece)

    def _let_go(self, left: int = 0) -> None:
        """Abort a closing connection if ``left`` bytes, as many as at the previous check, are still to be sent."""
        rest = 0 if self._rest is None else len(self._rest) - self._sent
        waiting = 0 if self.disconnected else self.transport.get_write_buffer_size() + rest
        if waiting and waiting == left:
            self.transport.abort()
        elif not self.disconnected:
            self.loop.call_later(self._every_s, self._let_go, waiting)

    def handle_cont(self, event: Frame) -> None:
        """Append a fragment. A list of one-byte fragments would take 40 times the message's size."""
        parts: list[Any] = self.frames
        if not isinstance(parts[0], bytearray):
            parts[0] = bytearray(parts[0])
        parts[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def schedule_ping(self) -> None:
        """Ping at even intervals.

        The library subtracts the latency of the last pong, which leaves no interval if a client answers late.
        """
        self.ping_timer = self.loop.call_later(self._every_s, self.send_keepalive_ping)

    def send_keepalive_ping(self) -> None:
        """Ping the client, unless the write buffer is full: TCP then detects a lost connection."""
        if self.writable.is_set():
            super().send_keepalive_ping()
        else:
            self.schedule_ping()

    def pause_writing(self) -> None:
        """Pause reading too when the client does not read, because its pings would be answered."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue to send and to read when the client reads again."""
        self.writable.set()
        self._send_what_is_taken()
        if self.writable.is_set() and not self.read_paused:
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the ended connection holds."""
        self._rest = None
        self._limits.leave(self)
        self._release()
        if self._lost is not None:
            self._lost()
        self._prompt = self._lost = None  # these refer to the session, which may have ended
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection because the server stops."""
        self._send_all_of_it()
        super().shutdown()


class _Reader(asyncio.BufferedProtocol):
    """Replaces :class:`StreamProtocol` at its transport after the handshake, to choose the buffer to receive into.

    The rest of a message whose length is known is received directly into its own memory.
    """

    def __init__(self, owner: StreamProtocol) -> None:
        self._owner = owner
        self._received = np.empty(RECEIVED, np.uint8).data
        self._assembler: FrameAssembler | None = None
        """The assembler whose buffer is in use; None for ``_received``."""
        self.eof_received = owner.eof_received  # type: ignore[method-assign]
        self.connection_lost = owner.connection_lost  # type: ignore[method-assign]
        self.pause_writing = owner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = owner.resume_writing  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer to receive into."""
        self._assembler = self._owner.assembler
        if self._assembler is None:
            return self._received
        return self._assembler.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle ``nbytes`` bytes that were received."""
        if self._assembler is None:
            self._owner.data_received(self._received[:nbytes])
        else:
            self._assembler.fill(nbytes)
            self._owner.assembled()
