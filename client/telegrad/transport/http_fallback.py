"""Sends a session's programs as HTTP requests, one at a time, if a stream is not possible.

Each request has a number in its header, so that one whose answer was lost can be posted again without running twice.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from telegrad_engine.program import compression
from telegrad_engine.program.safetensors import Container, joined

from .connection import TIMEOUTS, UNREACHABLE, Connection, Reply, failure
from .stream import DELAYS_S

HEADER = "telegrad-sequence"
SENDER_HEADER = "telegrad-sender"


class _Posted(NamedTuple):
    sender: str
    number: int
    body: bytes | memoryview

    @property
    def headers(self) -> dict[str, str]:
        headers = {SENDER_HEADER: self.sender, HEADER: str(self.number)}
        if compression.is_frame(self.body):
            headers["content-encoding"] = compression.ENCODING
        return headers


class HttpFallback:
    """The requests of one session, over one connection.

    With ``compressed``, programs are zstd frames if that is worthwhile, and answers may be.
    """

    room = 1
    labels: Mapping[str, str] = {}
    """No metadata: the number is sent in a header."""

    def __init__(self, url: str, connection: Connection, compressed: bool = False) -> None:
        self._url, self._connection, self._compressed = url, connection, compressed
        self._sender = secrets.token_hex(8)
        self._done = 0
        """The last number used."""
        self._posted: _Posted | None = None
        """The unanswered request."""

    @property
    def answered(self) -> bool:
        """Whether :meth:`receive` would return almost at once."""
        return self._connection.answered

    def send(self, pieces: Sequence[Container]) -> None:
        """Send a program. Raises ConnectionFailed."""
        if self._posted is not None:
            self.receive()  # its answer is dropped, but its number counts if it reached the server
        body = joined(pieces)
        self._posted = _Posted(self._sender, self._done + 1, compression.compress(body) if self._compressed else body)
        try:
            self._connection.send(self._posted.body, self._posted.headers)
        except UNREACHABLE as error:
            self._again(error)

    def receive(self) -> Reply:
        """Wait for the answer. Raises ConnectionFailed."""
        tries = 0
        while True:
            try:
                reply = self._connection.receive()
                break
            except UNREACHABLE as error:
                self._again(error, tries)
                tries += 1
        if self._compressed and compression.is_frame(reply.body):  # unless httpx has unpacked it
            reply = reply._replace(body=compression.decompress(reply.body))
        # In one statement: a Ctrl-C between the two would use a number twice.
        self._posted, self._done = None, self._done + (reply.status < 400 or _used(reply))
        return reply

    def _again(self, error: Exception, tries: int = 0) -> None:
        """Post the unanswered request again. Raises ConnectionFailed if that fails too."""
        assert self._posted is not None
        while not isinstance(error, TIMEOUTS) and tries < len(DELAYS_S):
            time.sleep(DELAYS_S[tries])
            tries += 1
            try:
                self._connection.send(self._posted.body, self._posted.headers)
                return
            except UNREACHABLE as another:
                error = another.with_traceback(None)  # the traceback would keep this frame alive
        raise failure(self._url, error) from None

    def forget(self) -> None:
        """Do nothing: the next :meth:`send` drops an answer that is still due."""

    def abandon(self) -> None:
        """In a forked child, close its copy of the socket, without telling the server."""
        self._posted = None
        self._connection.close()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def _used(reply: Reply) -> bool:
    """Whether a failed request has used its number, according to its problem document."""
    try:
        return "sequence" in json.loads(bytes(reply.body))
    except ValueError:
        return False
