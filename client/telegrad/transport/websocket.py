"""WebSocket messages over a blocking socket, without a thread.

The ``websockets`` library makes the handshake and handles every frame except binary messages in one frame: text,
fragments, pings and closes. Binary messages are sent and received here, because that copies them less often
(docs/decisions/0043).
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

import numpy as np
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode, apply_mask  # type: ignore[attr-defined]  # in C if there is a wheel
from websockets.protocol import State
from websockets.uri import parse_uri

from telegrad_engine.program.frames import BINARY, CLIENT_HEADER, CONTROL, MASKED, frame_header, frame_size, is_loopback

from . import progress
from .connection import CONNECT_S, Refusal, refusal

PIECE, WATCHED_PIECE = 2**20, 2**18
"""Bytes to send at a time, each piece within the timeout: as many as fit in the cache; fewer if progress is shown, so
that a slow network takes a piece in a moment."""
MASKED_PIECE = 2**16
"""Bytes to mask at a time: few enough for malloc to have the memory without asking the system."""
FIRST = 2**16
"""The most bytes to receive while the length of a frame is unknown. The rest is received into its own memory."""
REPORTED = 2**20
"""The most bytes to receive between two updates of the progress bar."""
MAX_SIZE = 2**40
"""The most bytes of a payload that is received. A longer one exceeds any memory, so it must be a mistake."""
SPIN_S = 1e-3
"""Seconds to poll for an answer without sleeping: a thread that sleeps takes 50 µs to wake."""
_yield_core = getattr(os, "sched_yield", partial(time.sleep, 0))
"""Yields this core to another process: most likely the server, which has the answer."""
MAX_PARTS = 512
"""The most pieces of a message in one system call. Some systems take at most 1024."""
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Refused(OSError):
    """The server, or a proxy in front of it, accepts no WebSocket here; ``status`` and ``body`` are its answer.

    ``refusal`` is None if it did not say that it may accept one later.
    """

    def __init__(self, text: str, status: int = 0, body: bytes = b"", refusal: Refusal | None = None) -> None:
        super().__init__(text)
        self.status, self.body, self.refusal = status, body, refusal


class Closed(OSError):
    """The connection has ended; ``code`` is the server's reason if it gave one."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(f"the stream was closed: {code} {reason}".rstrip())
        self.code, self.reason = code, reason


class ProtocolViolation(OSError):
    """The server sent a frame that RFC 6455 forbids."""


class WebSocket:
    """One connection, for one thread at a time.

    Its methods raise OSError when the connection has ended: Closed, ProtocolViolation, or TimeoutError if no byte
    arrives within the seconds that :meth:`have_patience` sets, few at first. After that, and after any other
    exception, the connection must be closed, because a partly received message is lost.
    """

    def __init__(self, url: str, headers: Mapping[str, str], context: ssl.SSLContext) -> None:
        address = urlsplit(url)
        self._secure = address.scheme == "https"
        self._where = address.netloc
        self._watched = progress.wanted()
        self._unread = bytearray()
        self._fragments: list[Frame] = []
        """The frames received so far of a message in several frames."""
        self._over: OSError | None = None
        """Why no more frames are read."""
        self._piece = WATCHED_PIECE if self._watched else PIECE
        self._brief = False
        """Whether the last wait was so short that spinning would have sufficed."""
        self.unmasked = False
        """Whether binary messages are sent with a masking key of zero, which leaves them as they are."""
        self._selector = _Selector()
        self._socket = socket.create_connection(
            (address.hostname, address.port or (443 if self._secure else 80)), CONNECT_S
        )
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._secure:
                self._socket = context.wrap_socket(self._socket, server_hostname=address.hostname)
            self._selector.register(self._socket, selectors.EVENT_READ)
            self._protocol = ClientProtocol(parse_uri(url.replace("http", "ws", 1)), max_size=None)
            self._shake_hands(headers)
        except BaseException:
            self.abandon()
            raise

    def _shake_hands(self, headers: Mapping[str, str]) -> None:
        protocol = self._protocol
        request = protocol.connect()
        address, port = self._socket.getsockname()[:2]
        if not self._secure and hasattr(self._socket, "sendmsg") and is_loopback(address):
            request.headers[CLIENT_HEADER] = f"{address}:{port}"
        for name, value in headers.items():
            request.headers[name] = value
        protocol.send_request(request)
        self._flush()
        while b"\r\n\r\n" not in self._unread:
            self._more()
        end = self._unread.index(b"\r\n\r\n") + 4
        protocol.receive_data(bytes(self._unread[:end]))
        del self._unread[:end]
        if not protocol.events_received():  # no switch of protocols: an answer with a body
            protocol.receive_data(bytes(self._unread))
            while protocol.handshake_exc is None:
                data = self._socket.recv(FIRST)
                protocol.receive_data(data) if data else protocol.receive_eof()
        if isinstance(error := protocol.handshake_exc, InvalidStatus):
            status, body = error.response.status_code, bytes(error.response.body or b"")
            refused = refusal(status, error.response.headers, body)
            raise Refused(f"the server answered {status} to a WebSocket", status, body, refused)
        if error is not None:
            kind = "" if isinstance(error, InvalidHandshake) else f" ({type(error).__name__})"
            raise Refused(f"there is no WebSocket: {error}{kind}")

    def have_patience(self, seconds: float) -> None:
        """Set the timeout."""
        self._socket.settimeout(seconds)

    # Sending -----------------------------------------------------------------------------

    def send(self, body: Sequence[bytes | memoryview]) -> None:
        """Send a binary message, which is not empty, given in parts."""
        size, done, sent = sum(map(len, body)), 0, 0
        key = bytes(4) if self.unmasked else os.urandom(4)
        parts: list[bytes | memoryview] = [frame_header(BINARY, size, key)]
        try:
            with progress.moving(f"sending to {self._where}", size, self._watched) as tell:
                for piece in self._pieces(body, key):
                    parts.append(piece)
                    done += len(piece)
                    if done == size or done - sent >= self._piece:
                        self._write(parts)
                        tell(done)
                        parts, sent = [], done
        except ConnectionError:
            self._raise_reason()
            raise

    def _raise_reason(self) -> None:
        """Raise Closed if the server said why it closes the connection before it stopped reading."""
        try:
            while True:
                self.receive()
        except Closed:
            raise
        except OSError:
            return

    def _pieces(self, body: Sequence[bytes | memoryview], key: bytes) -> Iterator[bytes | memoryview]:
        """The pieces of a frame's payload, masked unless the key is zero."""
        length = self._piece if self.unmasked else MASKED_PIECE
        for part in body:
            for start in range(0, len(part), length):
                piece = memoryview(part)[start : start + length]
                if self.unmasked:
                    yield piece
                else:
                    yield apply_mask(piece, key)
                    shift = len(piece) % 4
                    key = key[shift:] + key[:shift]

    def _write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send parts of a frame: unmasked ones without copying them, in one system call as far as possible."""
        if not self.unmasked:
            self._socket.sendall(b"".join(parts))
            return
        taken = self._socket.sendmsg(parts[:MAX_PARTS])
        for part in parts:
            if taken < len(part):
                self._socket.sendall(memoryview(part)[taken:])
            taken = max(0, taken - len(part))

    def _flush(self) -> None:
        """Send the frames that the library has written."""
        if data := b"".join(self._protocol.data_to_send()):
            self._socket.sendall(data)

    # Receiving ---------------------------------------------------------------------------

    @property
    def answered(self) -> bool:
        """Whether a message has begun to arrive. Control frames before it are handled."""
        while self._unread or self._readable():
            if not self._unread:
                self._more()
            elif not self._unread[0] & CONTROL:
                return True
            elif not self._readable():
                return False
            else:
                self._read_frame()
        return False

    def receive(self) -> str | bytes | memoryview:
        """Wait for a message."""
        if self._watched and not self._unread and not self._readable():
            self._watch()
        while (message := self._read_frame()) is None:
            pass
        return message

    def _read_frame(self) -> str | bytes | memoryview | None:
        """Read a frame. Return the message that it completes; None if there is none."""
        if self._over is not None:
            raise self._over
        while (lengths := frame_size(self._unread)) is None:
            self._more()
        start, size = lengths
        header = bytes(self._unread[:start])
        if size >= 2**63:
            raise self._violation("a length has its highest bit set", CloseCode.PROTOCOL_ERROR)
        if len(frame_header(BINARY, size)) < start and header[1] < MASKED:  # the library refuses masked frames
            raise self._violation("a length takes more bytes than it needs", CloseCode.PROTOCOL_ERROR)
        if size > MAX_SIZE:
            raise self._violation(f"a frame has {size} bytes", CloseCode.MESSAGE_TOO_BIG)
        payload = self._payload(start, size)
        if header[0] == BINARY and header[1] < MASKED and not self._fragments:
            return payload
        return self._pass_on(header + payload)

    def _payload(self, start: int, size: int) -> bytes | memoryview:
        """The payload of the frame whose header, of ``start`` bytes, has arrived."""
        if len(self._unread) - start >= size:
            payload = bytes(self._unread[start : start + size])
            del self._unread[: start + size]
            return payload
        # The rest is received straight into its final memory.
        whole = np.empty(size, np.uint8).data
        arrived = len(self._unread) - start
        whole[:arrived] = self._unread[start:]
        self._unread = bytearray()
        with progress.moving(f"receiving from {self._where}", size, self._watched) as tell:
            while arrived < size:
                count = self._socket.recv_into(whole[arrived : arrived + REPORTED])
                if not count:
                    raise Closed
                arrived += count
                tell(arrived)
        return whole

    def _pass_on(self, frame: bytes) -> str | bytes | None:
        """Have the library handle a frame. Return the message that it completes; None if there is none."""
        self._protocol.receive_data(frame)
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._fragments.append(event)
        if self._protocol.parser_exc is not None:
            raise self._violation(str(self._protocol.parser_exc))
        if self._protocol.close_rcvd is not None:
            self._over = Closed(self._protocol.close_rcvd.code, self._protocol.close_rcvd.reason)
            raise self._over
        self._flush()  # the answer to a ping
        if not self._fragments or not self._fragments[-1].fin:
            return None
        frames, self._fragments = self._fragments, []
        message = b"".join(frame.data for frame in frames)
        if frames[0].opcode is Opcode.BINARY:
            return message
        try:
            return message.decode()
        except UnicodeDecodeError:
            raise self._violation("a text is not UTF-8", CloseCode.INVALID_DATA) from None

    def _violation(self, text: str, code: CloseCode | None = None) -> ProtocolViolation:
        """Return the error for a server that breaks the protocol, and prepare a close frame if there is a ``code``."""
        if code is not None:
            self._protocol.fail(code, text)
        self._over = ProtocolViolation(f"the server broke the WebSocket protocol: {text}")
        return self._over

    def _more(self) -> None:
        """Wait until something arrives. If the last wait was brief, do not sleep for the first moment."""
        started = time.perf_counter()
        if self._brief:
            while not self._readable() and time.perf_counter() - started < SPIN_S:
                _yield_core()
        data = self._socket.recv(FIRST)
        self._brief = time.perf_counter() - started < SPIN_S and not self._secure
        if not data:
            raise Closed
        self._unread += data

    def _readable(self, seconds: float = 0) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(self._selector.select(seconds))

    def _watch(self) -> None:
        """Wait until something arrives, and show a bar if that takes long."""
        bar = progress.Bar(f"waiting for {self._where}")
        deadline = time.monotonic() + (self._socket.gettimeout() or 0)
        try:
            while not self._readable(progress.EVERY_S) and time.monotonic() < deadline:
                bar.update()
        finally:
            bar.close()

    def close(self) -> None:
        """Send a close frame if that is possible at once, and close the socket.

        The frame has the code of the server's close frame, or of the server's violation of the protocol.
        """
        with suppress(OSError):
            self._socket.settimeout(0)
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
        self.abandon()

    def abandon(self) -> None:
        """Close this process's descriptors without telling the server."""
        self._selector.close()
        self._socket.close()
