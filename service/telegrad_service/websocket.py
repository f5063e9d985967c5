"""uvicorn's WebSocket protocol, with a short way for the frames that programs are.

The library copies a message three times: 64 MiB took it 77 ms, and 24 where they go straight to their place and are
unmasked by NumPy while they are in the cache (docs/decisions/0016). Whatever is not a whole binary
message in one frame, or a control frame, is the library's business, and so is everything behind it.

An application may answer a message while it arrives, which saves the turns of the event loop that its tasks would take:
the ASGI extension ``telegrad.prompt`` has a function for that (docs/decisions/0020).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.protocol import State

from telegrad_engine.errors import ServerBusy
from telegrad_engine.program.lending import Lent

from .connections import ConnectionLimits, extended, peer_of
from .frames import BINARY, CLOSE, CONTROL, SHORT, TEXT, Arriving, Room, head, size_of
from .limits import FREE, BodyReservation
from .lookout import Lookout
from .unmasked import Unmasking

PROMPT, ANSWER_WITH, ON_LOST = "telegrad.prompt", "answer_with", "on_lost"
"""The extension, and its functions. The first takes what may answer messages, what is to be done after that, and what
tells if nobody is kept waiting; the second what is called when the connection is lost."""
DIGEST = "telegrad.digest"
"""The key of the digest in a received message; the library's own messages do not have it, and short ones have None."""
Prompt = Callable[[memoryview], Any]
"""Of a message's bytes: what to send, as an application does; None, with nothing done, if it is to be received."""
_NOTHING = memoryview(b"")
BEGINNING = 2**14
"""Bytes that are read at a time of what is not known yet: a small message is whole then, and copied to its place."""
LIKE_THESE = 8
"""How many messages tell how long the next may be."""
PIECE = 2**19
"""Bytes of what is lent that are copied and sent at a time: they stay in the cache."""


class StreamProtocol(WebSocketsSansIOProtocol):
    """Reads and writes the frames of one connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits: ConnectionLimits = options["server_state"].limits
        self._reservation = BodyReservation(options["server_state"].bodies)
        """The memory of the message that is arriving, until the application takes it."""
        self.peer, self.spare = "", False
        self.waiting_since: float | None = None
        self._partial = 0
        """Bytes of a message that was not whole, when the limits were checked last."""
        self._partial_deadline: float = self.loop.time() + self._limits.settings.body_timeout_s
        """When the rest of it must be here."""
        self._plain = True
        """Whether no frame has come yet that the library has to read."""
        self._head = b""
        """The beginning of a frame of which too little is here to know how long it is."""
        self._frame: Arriving | None = None
        """The message that is arriving."""
        self._lengths: deque[int] = deque(maxlen=LIKE_THESE)
        """Of the last messages; empty where they were such that no room is made for the next."""
        self._every_s = float(self.config.ws_ping_interval or 0)
        """Seconds between pings; a client to whom goodbye was said has as many to take something."""
        self._prompt: tuple[Prompt, Callable[[], None], Lookout] | None = None
        self._lost: Callable[[], None] | None = None
        """What is called when the connection is lost."""
        self._rest: Lent | None = None
        """The message that is being sent in pieces; while there is one, nothing else is written."""
        self._sent = 0
        """How many bytes of it were."""

    def connection_made(self, transport: Any) -> None:
        """A connection has become a stream."""
        super().connection_made(transport)
        self.peer = peer_of(self.client[0]) if self.client else ""
        self.conn.available_extensions = [*(self.conn.available_extensions or ()), Unmasking(self.client)]
        self._limits.keep(self)

    def is_overdue(self, now: float) -> bool:
        """Whether the client has not sent the rest of a message in time. Between messages it may be silent: pings find
        out whether it is there."""
        arrived, timeout_s = self._partial_bytes(), self._limits.settings.body_timeout_s
        if arrived is None or arrived < self._partial or self.read_paused or not self.writable.is_set():
            self._partial_deadline = now + timeout_s
        else:
            self._partial_deadline = extended(self._partial_deadline, arrived - self._partial, now, timeout_s)
        self._partial = arrived or 0
        return now > self._partial_deadline

    def _partial_bytes(self) -> int | None:
        """How much is here of a message that is not whole; None between messages."""
        if self._frame is not None:
            return self._frame.arrived
        unread = len(self._head) if self._plain else len(self.conn.reader.buffer) + sum(map(len, self.frames))
        return unread or None

    def expire(self) -> None:
        """End the connection."""
        self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def handle_connect(self, event: Any) -> None:
        """A client wants to connect: the application learns what is offered beside the library's own."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][PROMPT] = {ANSWER_WITH: self._answer_with, ON_LOST: self._call_when_lost}

    def _answer_with(self, prompt: Prompt, after: Callable[[], None], alone: Callable[[], bool]) -> None:
        self._prompt = prompt, after, Lookout(self.transport.get_extra_info("socket").fileno(), alone)

    def _call_when_lost(self, lost: Callable[[], None]) -> None:
        self._lost = lost

    @property
    def place(self) -> memoryview | None:
        """Where what arrives next will stay; None if that is not known."""
        return None if self._frame is None else self._frame.room

    @property
    def room(self) -> Room | None:
        """Room for the next message, if it is likely to be one that should not be copied to its place."""
        if not self._lengths or self._head:
            return None
        return Room(min(self._lengths), max(self._lengths))

    def placed(self, count: int) -> None:
        """So many bytes have arrived there."""
        assert self._frame is not None
        self._frame.fill(count)
        self._deliver_whole(_NOTHING)

    def begun(self, room: Room, count: int) -> None:
        """So many bytes have arrived there, of whatever it is."""
        data = room.beginning[:count]
        size = size_of(data) if self._plain and data[0] == BINARY and self.conn.state is State.OPEN else None
        if size is not None and room.begin(*size, count):
            self._frame = room
            self._deliver_whole(_NOTHING)
        else:
            self.data_received(data)

    def data_received(self, data: bytes | memoryview) -> None:
        """Take what has arrived, in whatever pieces."""
        if not (self._plain and self.handshake_complete):
            super().data_received(bytes(data))
            self._reserve(self._partial_bytes() or 0)
            return
        rest = memoryview(data)
        while len(rest) and not self.transport.is_closing():
            if self._frame is not None:
                rest = self._frame.take(rest)
                self._deliver_whole(rest)
                continue
            if self._head:
                rest, self._head = memoryview(self._head + bytes(rest)), b""
            size = size_of(rest)
            if size is None:
                self._head = bytes(rest)
                return
            header, length = size
            if rest[0] == BINARY and length <= self.config.ws_max_size and self.conn.state is State.OPEN:
                self._frame = Arriving(length, bytes(rest[header - 4 : header]))
                rest = self._frame.take(rest[header:])
                self._deliver_whole(rest)
            elif rest[0] in CONTROL and length < 126:
                if len(rest) < header + length:
                    self._head = bytes(rest)
                    return
                self._send_all_of_it()
                super().data_received(bytes(rest[: header + length]))
                rest = rest[header + length :]
            else:
                self._plain = False
                self._send_all_of_it()
                super().data_received(bytes(rest))
                return

    def _deliver_whole(self, rest: memoryview) -> None:
        """Hand on the message that is arriving, once it is whole; the ``rest`` has arrived behind it."""
        if self._frame is None:
            return
        self._reserve(self._frame.arrived)
        if not self._frame.whole:
            if self._prompt is not None:  # the rest of it is most likely on its way
                lookout = self._prompt[2]
                lookout.found()
                lookout.look()
            return
        message, digest, self._frame = self._frame.message, self._frame.digest, None
        if BEGINNING < len(message) <= SHORT:
            self._lengths.append(len(message))
        elif self._lengths:
            self._lengths.clear()
        if self.close_sent:
            return
        # Where more has arrived others wait as well, on the other connections: there is a turn for each.
        if self._prompt is not None and not len(rest) and self.queue.empty() and self.writable.is_set():
            prompt, after, lookout = self._prompt
            lookout.found()
            answer = prompt(message)
            if answer is not None:
                try:
                    self._write(answer)
                finally:
                    after()
                lookout.look()
                return
        received: Any = {"type": "websocket.receive", "bytes": message, DIGEST: digest}
        self.queue.put_nowait(received)
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _reserve(self, size: int) -> None:
        """Reserve memory for a message of so many bytes so far, or end the connection if there is none left."""
        if size <= FREE or self.transport.is_closing():
            return
        try:
            self._reservation.reserve(size)
        except ServerBusy as busy:
            if self._rest is None:
                reason = CloseCode.TRY_AGAIN_LATER.to_bytes(2, "big") + busy.detail.encode()
                self.transport.write(head(CLOSE, len(reason)) + reason)
            self.transport.close()

    async def receive(self) -> Any:
        """The next message. Reading goes on when there is none left, if the client takes what is sent."""
        message = await self.queue.get()
        self._reservation.release()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            if self.writable.is_set():
                self.transport.resume_reading()
        return message

    async def send(self, message: Any) -> None:
        """Send what the application says; its bytes without copying them into a frame."""
        if message["type"] == "websocket.close" and message["code"] != CloseCode.GOING_AWAY:
            self._let_go()  # a server that stops has its own patience
        while not self.writable.is_set():  # it may be no more by the time that one is woken
            await self.writable.wait()
        if self.handshake_complete and (self.disconnected or self.close_sent):
            raise ClientDisconnected
        if message.get("bytes") is None or message["type"] != "websocket.send" or not self.handshake_complete:
            await super().send(message)
            if message["type"] == "websocket.accept":
                self._read_straight()
            elif message["type"] == "websocket.http.response.body" and not message.get("more_body"):
                self.handshake_complete = True  # or the library logs that the application has not answered
            return
        if self.conn.state is not State.OPEN:
            raise ClientDisconnected
        self._write(message)

    def _read_straight(self) -> None:
        """Have the event loop read by :class:`_Reader` from now on."""
        self.transport.pause_reading()  # it looks at how to read where it begins
        self.transport.set_protocol(_Reader(self))
        if not self.read_paused:
            self.transport.resume_reading()

    def _write(self, message: Any) -> None:
        """Send a message that an application sends, in one frame."""
        body = message.get("bytes")
        kind, body = (TEXT, message["text"].encode()) if body is None else (BINARY, body)
        if isinstance(body, Lent):
            self.transport.write(head(kind, len(body)))
            self._rest, self._sent = body, 0
            self._send_what_is_taken()
        else:
            self.transport.writelines([head(kind, len(body)), body])

    def _send_what_is_taken(self) -> None:
        """Go on with what is sent in pieces, until the client takes no more for now."""
        while self._rest is not None and self.writable.is_set():
            self._send_piece(self._rest)

    def _send_all_of_it(self) -> None:
        """Finish it, before something else is written."""
        while self._rest is not None:
            self._send_piece(self._rest)

    def _send_piece(self, lent: Lent) -> None:
        piece = b"" if self.transport.is_closing() else lent.read(self._sent, PIECE)
        self._sent += len(piece)
        if not piece or self._sent == len(lent):
            self._rest = None
        if piece:
            self.transport.write(piece)

    def _let_go(self, left: int = 0) -> None:
        """Cut off a client to whom goodbye was said, and who has taken nothing since ``left`` bytes waited for it."""
        rest = 0 if self._rest is None else len(self._rest) - self._sent
        waiting = 0 if self.disconnected else self.transport.get_write_buffer_size() + rest
        if waiting and waiting == left:
            self.transport.abort()
        elif not self.disconnected:
            self.loop.call_later(self._every_s, self._let_go, waiting)

    def handle_cont(self, event: Frame) -> None:
        """Append the next part of a message: kept apart, a great many of a byte each would take 40 times its size."""
        parts: list[Any] = self.frames
        if not isinstance(parts[0], bytearray):
            parts[0] = bytearray(parts[0])
        parts[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    # Pings of the client's are answered as they are read: who does not take the answers is not read from either.

    def schedule_ping(self) -> None:
        """Ping at even intervals. The library deducts how long the last answer took: nothing is left where a client
        that reads when it needs to has answered late."""
        self.ping_timer = self.loop.call_later(self._every_s, self.send_keepalive_ping)

    def send_keepalive_ping(self) -> None:
        """Ping a client that takes what is sent; otherwise there is enough under way to tell whether it is there."""
        if self.writable.is_set():
            super().send_keepalive_ping()
        else:
            self.schedule_ping()

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """It does again."""
        self.writable.set()
        self._send_what_is_taken()
        if self.writable.is_set() and not self.read_paused:
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._rest = None
        self._limits.leave(self)
        self._reservation.release()
        if self._lost is not None:
            self._lost()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends."""
        self._send_all_of_it()
        super().shutdown()


class _Reader(asyncio.BufferedProtocol):
    """What a transport has in place of its owner after the handshake: the event loop reads to where this says.

    What arrives of a message that has begun goes straight to where it will stay, and is in no other memory.
    """

    def __init__(self, owner: StreamProtocol) -> None:
        self._owner = owner
        self._beginning = memoryview(bytearray(BEGINNING))
        self._straight = False
        """Whether what is read now goes to its place."""
        self._room: Room | None = None
        """Where the next message is read to; None if nothing is known of it."""
        self.eof_received = owner.eof_received  # type: ignore[method-assign]
        self.connection_lost = owner.connection_lost  # type: ignore[method-assign]
        self.pause_writing = owner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = owner.resume_writing  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to now."""
        place = self._owner.place
        self._straight = place is not None
        if place is not None:
            return place
        if self._room is None:
            self._room = self._owner.room
        return self._beginning if self._room is None else self._room.beginning

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were."""
        if self._straight:
            self._owner.placed(nbytes)
        elif self._room is not None:
            room, self._room = self._room, None
            self._owner.begun(room, nbytes)
        else:
            self._owner.data_received(self._beginning[:nbytes])
