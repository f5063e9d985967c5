"""WebSocket frames over a socket, without a thread: sending and receiving are two calls, and nothing happens between.

The ``websockets`` library makes the handshake. Its clients copy more, and their threads wait for each other: 200 KB up
and 300 bytes down took them 220 to 320 µs, and this 170 (docs/decisions/0016).
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

import numpy as np
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.http11 import Response
from websockets.uri import parse_uri

from . import progress, unmasked
from .connection import CONNECT_S
from .frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FINAL,
    NORMAL_CLOSURE,
    PING,
    PONG,
    TEXT,
    ProtocolError,
    head,
    header_size,
    is_control,
    mask,
    parse_close,
    payload_size,
    text_of,
)

PIECE, SHOWN = 2**20, 2**18
"""Bytes that are masked and sent at a time, all with as much patience: what fits the cache, for each call has its
price; and where somebody watches how far it is, what a slow network takes in a moment."""
FIRST = 2**16
"""Bytes that are received at most of what is not known yet; of a long answer the rest goes straight to its place."""
TOLD = 2**20
"""Bytes that are received at most before it is told how far it is, however much there is."""
SPIN_S = 1e-3
"""Seconds to look for an answer again and again: a thread that sleeps takes 50 µs to wake, and does for every step."""
_let_others = getattr(os, "sched_yield", partial(time.sleep, 0))
"""Has whoever waits for this core go first: most likely the server, with the answer."""
MOST_PARTS = 512
"""Pieces of a message that are handed to the system at once: some systems take no more than 1024."""
_ROOM = 16
"""Bytes kept in front of the first piece for the frame's header."""
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Refused(OSError):
    """The server, or something before it, does not speak WebSocket here; ``status`` and ``body`` are what it said."""

    def __init__(self, text: str, status: int = 0, body: bytes = b"") -> None:
        super().__init__(text)
        self.status, self.body = status, body


class Closed(OSError):
    """The connection is over; ``code`` says why if the other side did."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(f"the stream was closed: {code} {reason}".rstrip())
        self.code = code


class ProtocolViolation(OSError):
    """The server sent something that RFC 6455 forbids."""


class WebSocket:
    """One connection, for one thread at a time.

    Its methods raise OSError when it is over: Closed, ProtocolViolation, or TimeoutError after the seconds without a
    byte that :meth:`have_patience` gives, few at first. Then, and after any other exception, it must be closed: what
    has arrived of a message is lost.
    """

    def __init__(self, url: str, headers: Mapping[str, str], context: ssl.SSLContext) -> None:
        address = urlsplit(url)
        self._secure = address.scheme == "https"
        self._where = address.netloc
        self._watched = progress.wanted()
        self._unread = bytearray()
        self._parts: list[bytes | memoryview] = []
        """What has arrived of a message that comes in several frames."""
        self._kind: int | None = None
        """The opcode of that message; None between messages."""
        self._over: OSError | None = None
        """Why nothing more is read."""
        self._goodbye = NORMAL_CLOSURE
        """The payload of the close frame that :meth:`close` sends."""
        self._piece = SHOWN if self._watched else PIECE
        self._scratch = bytearray(_ROOM + self._piece)
        self._brief = False
        """Whether the last wait was so short that spinning would have done."""
        self._selector = _Selector()
        self._socket = socket.create_connection(
            (address.hostname, address.port or (443 if self._secure else 80)), CONNECT_S
        )
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._secure:
                self._socket = context.wrap_socket(self._socket, server_hostname=address.hostname)
            self._selector.register(self._socket, selectors.EVENT_READ)
            self._unmasked = self._shake_hands(url, headers)
            """Whether frames go unmasked, from where they lie."""
        except BaseException:
            self._selector.close()
            self._socket.close()
            raise

    def _shake_hands(self, url: str, headers: Mapping[str, str]) -> bool:
        """Make a WebSocket of the connection; whether the server agrees to frames that are not masked."""
        offers = None if self._secure else unmasked.offers(self._socket)
        protocol = ClientProtocol(parse_uri(url.replace("http", "ws", 1)), max_size=None, extensions=offers)
        request = protocol.connect()
        for name, value in headers.items():
            request.headers[name] = value
        protocol.send_request(request)
        self._socket.sendall(b"".join(protocol.data_to_send()))
        received = bytearray()
        while b"\r\n\r\n" not in received:
            received += self._more()
        end = received.index(b"\r\n\r\n") + 4
        protocol.receive_data(bytes(received[:end]))
        self._unread = received[end:]
        if not protocol.events_received():  # no switch of protocols: an answer with a body
            protocol.receive_data(bytes(self._unread))
            while not (events := protocol.events_received()):
                data = self._socket.recv(FIRST)
                protocol.receive_data(data) if data else protocol.receive_eof()
                if not data:
                    events = protocol.events_received()
                    break
            answer = events[0] if events and isinstance(events[0], Response) else None
            raise _refusal(protocol.handshake_exc, answer)
        if protocol.handshake_exc is not None:
            raise _refusal(protocol.handshake_exc, None)
        return bool(protocol.extensions)

    def have_patience(self, seconds: float) -> None:
        """Wait so long from now on."""
        self._socket.settimeout(seconds)

    # Sending -----------------------------------------------------------------------------

    def send(self, body: Sequence[bytes | memoryview]) -> None:
        """Send a message of bytes, given in pieces."""
        size = sum(map(len, body))
        with progress.moving(f"sending to {self._where}", size, self._watched) as tell:
            self._send(BINARY, body, size, tell)

    def _send(
        self, kind: int, body: Sequence[bytes | memoryview], size: int, tell: Callable[[int], None] = lambda done: None
    ) -> None:
        """Send a frame."""
        header = head(kind, size)
        if self._unmasked:
            self._send_unmasked([header + unmasked.KEY, *body], size, tell)
        else:
            self._send_masked(header, body, tell)

    def _send_unmasked(self, parts: Sequence[bytes | memoryview], size: int, tell: Callable[[int], None]) -> None:
        """Send a frame, its header first: what the system takes in one call, unless somebody watches, and the rest."""
        taken = 0 if self._watched and size > SHOWN else self._socket.sendmsg(parts[:MOST_PARTS])
        sent = -len(parts[0])
        for part in parts:
            begin = min(taken, len(part))
            taken -= begin
            for start in range(begin, len(part), self._piece):
                piece = memoryview(part)[start : start + self._piece]
                self._socket.sendall(piece)
                tell(sent + start + len(piece))
            sent += len(part)

    def _send_masked(self, header: bytes, body: Sequence[bytes | memoryview], tell: Callable[[int], None]) -> None:
        """Send a frame. The masked copy of it is made in the scratch buffer, which is sent whenever it is full."""
        key = os.urandom(4)
        header += key
        begin, end, sent = _ROOM - len(header), _ROOM, 0
        self._scratch[begin:end] = header
        room = memoryview(self._scratch)
        for piece in body:
            start = 0
            while start < len(piece):
                count = min(len(piece) - start, len(room) - end)
                mask(room[end : end + count], piece[start : start + count], key, end - _ROOM)
                start, end = start + count, end + count
                if end == len(room):
                    self._socket.sendall(room[begin:])
                    sent += end - _ROOM
                    begin = end = _ROOM
                    tell(sent)
        if end > begin:
            self._socket.sendall(room[begin:end])
            tell(sent + end - _ROOM)

    # Receiving ---------------------------------------------------------------------------

    @property
    def answered(self) -> bool:
        """Whether a message has begun to arrive. Pings that came before it are answered."""
        while True:
            while self._unread and is_control(self._unread[0]):
                if not self._readable():
                    return False
                self._control(*self._frame())
            if self._unread:
                return True
            if not self._readable():
                return False
            self._unread += self._more()

    def receive(self) -> str | bytes | memoryview:
        """Wait for a message."""
        if self._watched and not self._unread and not self._readable():
            self._watch()
        while True:
            first, payload = self._frame()
            if is_control(first):
                self._control(first, payload)
                continue
            opcode = first & 0x0F
            if (opcode == CONTINUATION) != (self._kind is not None):
                expected = "a new message" if self._kind is None else "the rest of a message"
                raise self._violation(1002, f"a frame with opcode {opcode} came instead of {expected}")
            if self._kind is None:
                self._kind = opcode
            if not first & FINAL:
                self._parts.append(payload)
                continue
            if self._parts:
                payload = b"".join([*self._parts, payload])
            kind, self._kind, self._parts = self._kind, None, []
            try:
                return text_of(payload) if kind == TEXT else payload
            except ProtocolError as error:
                raise self._violation(error.code, str(error)) from None

    def _violation(self, code: int, text: str) -> ProtocolViolation:
        """The error for a server that breaks the protocol. It ends the connection, which is closed with ``code``."""
        self._goodbye = code.to_bytes(2, "big")
        self._over = ProtocolViolation(f"the server broke the WebSocket protocol: {text}")
        return self._over

    def _frame(self) -> tuple[int, bytes | memoryview]:
        """The first byte and the payload of the next frame."""
        if self._over is not None:
            raise self._over
        while len(self._unread) < 2 or len(self._unread) < header_size(self._unread[1]):
            self._unread += self._more()
        first, second = self._unread[:2]
        start = header_size(second)
        try:
            length = payload_size(self._unread[:start])
        except ProtocolError as error:
            raise self._violation(error.code, str(error)) from None
        if len(self._unread) - start >= length:
            payload: bytes | memoryview = bytes(self._unread[start : start + length])
            del self._unread[: start + length]
            return first, payload
        # Straight to where it stays.
        whole = np.empty(length, np.uint8).data
        arrived = len(self._unread) - start
        whole[:arrived] = self._unread[start:]
        self._unread = bytearray()
        with progress.moving(f"receiving from {self._where}", length, self._watched) as tell:
            while arrived < length:
                count = self._socket.recv_into(whole[arrived : arrived + TOLD])
                if not count:
                    raise Closed
                arrived += count
                tell(arrived)
        return first, whole

    def _control(self, first: int, payload: bytes | memoryview) -> None:
        if first & 0x0F == PING:
            self._send(PONG, [payload], len(payload))
        elif first & 0x0F == CLOSE:
            try:
                code, reason = parse_close(bytes(payload))
            except ProtocolError as error:
                raise self._violation(error.code, str(error)) from None
            self._goodbye = bytes(payload[:2])
            self._over = Closed(code, reason)
            raise self._over

    def _more(self) -> bytes:
        started = time.perf_counter()
        data = self._spin() if self._brief else None
        if data is None:
            data = self._socket.recv(FIRST)
            self._brief = time.perf_counter() - started < SPIN_S and not self._secure
        if not data:
            raise Closed
        return data

    def _spin(self) -> bytes | None:
        """What arrives within a moment; None if nothing does."""
        patience = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            until = time.perf_counter() + SPIN_S
            while time.perf_counter() < until:
                try:
                    return self._socket.recv(FIRST)
                except BlockingIOError:
                    _let_others()
        finally:
            self._socket.settimeout(patience)
        return None

    def _readable(self, seconds: float = 0) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(self._selector.select(seconds))

    def _watch(self) -> None:
        """Wait until something arrives, and show that it takes long."""
        line = progress.Line(f"waiting for {self._where}")
        deadline = time.monotonic() + (self._socket.gettimeout() or 0)
        try:
            while not self._readable(progress.EVERY_S) and time.monotonic() < deadline:
                line.update()
        finally:
            line.close()

    def close(self) -> None:
        """Send a close frame if that can be done at once, and close the socket.

        It has the code of the server's close frame, or of the server's violation of the protocol.
        """
        try:
            self._socket.settimeout(0)
            self._send(CLOSE, [self._goodbye], len(self._goodbye))
        except OSError:
            pass
        self.abandon()

    def abandon(self) -> None:
        """Close this process's descriptors, without a word to the server."""
        self._selector.close()
        self._socket.close()


def _refusal(error: Exception | None, answer: Response | None) -> Refused:
    if isinstance(error, InvalidStatus):
        answer = error.response
    if answer is not None:
        body = bytes(answer.body or b"")
        return Refused(f"the server answered {answer.status_code} to a WebSocket", answer.status_code, body)
    kind = "" if isinstance(error, InvalidHandshake) else f" ({type(error).__name__})"
    return Refused(f"there is no WebSocket: {error}{kind}")
