"""Sends a session's programs over a WebSocket: several in flight, answered in order, and a lost connection is reopened.

Programs are numbered. When a connection breaks, it is reopened; the server reports the last number that it ran, and
unanswered programs are sent again: each is answered from the server's record, or runs now
(docs/reference/stream.md).
"""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from telegrad_engine.errors import ConnectionFailed, ServerBusy, SessionLimit, TelegradError, TooLarge
from telegrad_engine.program import compression
from telegrad_engine.program.frames import QUOTA_USED_UP, TAKEN_OVER
from telegrad_engine.program.safetensors import Container, joined

from . import progress
from .connection import JITTER, RETRY_S, Reply, failure, problem_to_error, repeated
from .websocket import Closed, Refused, WebSocket

DELAYS_S = (0.0, 0.05, 0.25, 1.0)
"""Seconds to wait before each attempt to reconnect; an answer resets the count of attempts."""
RESTART_S = 60.0
"""Seconds in which a server that keeps the session on its disk may start again."""
UNAVAILABLE = 503
NO_MEMORY: Mapping[int, type[TelegradError]] = {1013: ServerBusy, QUOTA_USED_UP: SessionLimit}
"""The close codes of a server, and of a tenant, that has no memory left for a program."""


class WorkerAddress(NamedTuple):
    """The address of a session's worker, and the token that it takes."""

    url: str
    token: str


Locate = Callable[[], WorkerAddress | None]


class _Sent:
    """An unanswered program."""

    def __init__(self, number: int, body: Sequence[Container]) -> None:
        self.number, self.body, self.wanted = number, body, True


class Stream:
    """The stream of one session. Raises OSError if it cannot be opened: Refused if the server or a proxy declined.

    With ``compressed``, programs and answers are zstd frames if that is worthwhile. The server of a ``durable`` session
    may restart meanwhile. With ``locate``, the stream goes to the worker that it finds, if that can be reached.
    """

    room = 32
    """How many programs may be in flight. A server keeps the last 64 answers, for connections that break."""

    def __init__(
        self,
        session_url: str,
        headers: Mapping[str, str],
        timeout: float,
        context: ssl.SSLContext,
        compressed: bool = False,
        durable: bool = False,
        retry_s: float = RETRY_S,
        locate: Locate | None = None,
    ) -> None:
        # Numbers belong to a sender: other clients of the session, including a forked child, are other senders.
        self._url = f"{session_url}/stream?sender={secrets.token_hex(8)}"
        self._headers, self._timeout, self._context = headers, timeout, context
        self._compressed, self._durable, self._retry_s = compressed, durable, retry_s
        self._locate = locate
        """Finds the session's worker; None if the stream goes the way of everything else."""
        if compressed:
            self._url += f"&compress={compression.ENCODING}"
        self._attempts = 0
        """The number of attempts to connect. A server refuses an earlier attempt that arrives after a later one."""
        self._sent: deque[_Sent] = deque()
        self._number = self._seen = 0
        """The numbers of the program that was sent last, and of the last whose answer was read."""
        self._tries = 0
        self._broken_since: float | None = None
        """When the connection broke; None after an answer."""
        self._ran = 0
        """The last program that the server had run when the connection was last opened."""
        self._most = 0
        self._socket: WebSocket | None = None
        self._open()

    @property
    def labels(self) -> dict[str, str]:
        """The metadata that the next program must carry."""
        return {"sequence": str(self._number + 1), "seen": str(self._seen)}

    @property
    def answered(self) -> bool:
        """Whether :meth:`receive` would return almost at once."""
        try:
            return self._socket is None or self._socket.answered
        except OSError:
            return True

    def send(self, body: Sequence[Container]) -> None:
        """Send a program with :attr:`labels`. Its pieces must not change until it is answered.

        Raises ConnectionFailed, or TooLarge for a program beyond the server's limit.
        """
        size = sum(map(len, body))
        if size > self._most:
            raise TooLarge(f"a program has at most {self._most} bytes here, this one has {size}")
        if self._compressed:
            body = [compression.compress(joined(body))]
        number = self._number + 1
        try:
            self._sent.append(_Sent(number, body))
            self._number = number
            if self._socket is None or (len(self._sent) == 1 and self._socket.answered):
                raise Closed  # no answer is due, so what has arrived is the end
            self._socket.send(body)
        except OSError as error:
            self._resume(error)
        except BaseException:
            if self._sent:
                self._number = self._sent[-1].number  # after a Ctrl-C between the two, it would skip a number
            self._drop()
            raise

    def receive(self) -> Reply:
        """Wait for the next answer. Raises ConnectionFailed."""
        while True:
            try:
                if self._socket is None:
                    raise Closed
                frame = self._socket.receive()
            except OSError as error:
                self._resume(error)
                continue
            except BaseException:
                self._drop()
                raise
            self._tries, self._broken_since = 0, None
            sent = self._sent.popleft()
            self._seen = sent.number
            reply = self._reply(frame, sent.number)
            if sent.wanted:
                return reply

    def forget(self) -> None:
        """Drop the answers of programs in flight. The programs may still run, once."""
        for sent in self._sent:
            sent.wanted = False
        if self._sent:
            self._drop()  # an unread long answer would keep the server from reading on

    def close(self) -> None:
        """End the connection."""
        self._sent.clear()
        self._drop()

    def abandon(self) -> None:
        """In a forked child, close its copy of the socket."""
        self._sent.clear()
        if self._socket is not None:
            self._socket.abandon()
            self._socket = None

    def _reply(self, frame: str | bytes | memoryview, number: int) -> Reply:
        if not isinstance(frame, str):
            if self._compressed and compression.is_frame(frame):
                frame = compression.decompress(frame)
            return Reply(200, frame, {"sequence": str(number)})
        problem = _object(frame)
        if problem.get("sequence") != number:
            # The server misread a program, so later numbers cannot be right. Start over from the last one that ran.
            self._sent.clear()
            self._number = 0
            self._resume(Closed(1002, "the server could not tell which program it was sent"))
        return Reply(int(problem.get("status", 500)), frame.encode())

    def _resume(self, error: OSError) -> None:
        """Reopen the connection and send unanswered programs again.

        Raises ConnectionFailed if that fails, and the error for a program for which there is no memory.
        """
        self._drop()
        server, _, session = self._url.partition("/v1/sessions/")
        with progress.waiting(f"connecting to {server} again"):
            last = self._reconnect(error)
        if last is None:
            return
        self._tries, self._broken_since = 0, None
        if isinstance(last, Closed) and last.code in NO_MEMORY:
            # They have not run, and would be refused again before what is sent to free memory.
            self._sent = deque(sent for sent in self._sent if sent.number <= self._ran)
            self._number = self._ran
            raise NO_MEMORY[last.code](last.reason, quota="memory") from None
        if getattr(last, "code", None) == TAKEN_OVER:
            raise ConnectionFailed(
                f"the stream of session {session.partition('/')[0]} at {server} was closed: its sender has connected "
                f"once more ({TAKEN_OVER})"
            ) from None
        raise failure(server, last) from None

    def _reconnect(self, error: OSError) -> OSError | None:
        """Reopen the connection. Return the last error if that does not succeed in time."""
        begun = self._broken_since = self._broken_since or time.monotonic()
        # A server that lacks memory may reset the next connections before its reason can be read.
        full = error if _says_full(error) else None
        # A server that restores a durable session, or takes it over from another one, may let its client wait.
        while (self._durable or not isinstance(error, TimeoutError)) and getattr(error, "code", None) != TAKEN_OVER:
            if self._tries < len(DELAYS_S):
                time.sleep(DELAYS_S[self._tries])
            elif self._durable and full is None and time.monotonic() - begun < RESTART_S:
                time.sleep(DELAYS_S[-1] * JITTER.uniform(0.5, 1.0))  # not all clients at the same moment
            else:
                break
            self._tries += 1
            try:
                last = repeated(
                    self._opened,
                    lambda opened: opened.refusal if isinstance(opened, Refused) else None,
                    urlsplit(self._url).netloc,
                    self._retry_s,
                )
                if isinstance(last, Refused):
                    raise last
                self._ran = last
                self._send_again(last)
                return None
            except ConnectionFailed:
                raise
            except Refused as refused:
                if self._durable and refused.status == UNAVAILABLE:  # it is about to stop
                    error = refused.with_traceback(None)
                    continue
                self._tries = 0
                raise problem_to_error(self._url, refused.status, refused.body) from None
            except OSError as again:
                self._drop()
                error = again.with_traceback(None)  # the traceback would keep this frame alive
                full = error if _says_full(error) else full
            except BaseException:
                self._drop()
                raise
        return full or error

    def _send_again(self, last: int) -> None:
        """Send the unanswered programs to a server that has run all up to ``last``."""
        assert self._socket is not None
        # First the programs whose answers are dropped: an answer may be long, and is read before more is sent.
        while self._sent and not self._sent[0].wanted:
            if self._sent[0].number > last:
                self._socket.send(self._sent[0].body)
                self._socket.receive()
            self._seen = self._sent.popleft().number
        for sent in self._sent:
            self._socket.send(sent.body)

    def _opened(self) -> int | Refused:
        """:meth:`_open`, or the refusal of a server that is busy."""
        try:
            return self._open()
        except Refused as refused:
            if refused.refusal is None:
                raise
            return refused.with_traceback(None)

    def _open(self) -> int:
        """Connect, and return the number of the last program that the server has run."""
        self._attempts += 1
        url = f"{self._url}&attempt={self._attempts}"
        self._socket = self._direct(url) or WebSocket(url, self._headers, self._context)
        try:
            greeting = _object(self._socket.receive())
        except BaseException:
            self._drop()
            raise
        self._socket.have_patience(self._timeout)
        self._socket.unmasked = greeting.get("unmasked") is True
        try:
            last, self._most = int(greeting["last"]), int(greeting["max_bytes"])
        except (KeyError, TypeError, ValueError):
            self._drop()
            raise Refused(f"{self._url} does not speak Telegrad") from None
        if not self._number:
            self._number = self._seen = last
        elif not self._seen <= last <= self._number:
            self._drop()
            raise ConnectionFailed(
                f"{self._url}: program {self._number} was the last one sent, and the server did {last}"
            )
        return last

    def _direct(self, url: str) -> WebSocket | None:
        """A connection to the session's worker. If there is none, the next ones are not tried so either."""
        found = None if self._locate is None else self._locate()
        if found is None:
            return None
        path = url.partition("/v1/sessions/")[2]
        headers = {**self._headers, "authorization": f"Bearer {found.token}"}
        try:
            return WebSocket(f"{found.url.rstrip('/')}/v1/sessions/{path}", headers, self._context)
        except OSError:
            self._locate = None
            return None

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _says_full(error: OSError) -> bool:
    return isinstance(error, Closed) and error.code in NO_MEMORY


def _object(frame: str | bytes | memoryview) -> dict[str, Any]:
    """The JSON object in a text frame; empty if there is none."""
    try:
        data = json.loads(frame) if isinstance(frame, str) else None
    except ValueError:
        data = None
    return data if isinstance(data, dict) else {}
