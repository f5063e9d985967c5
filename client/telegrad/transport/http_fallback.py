"""Sends a session's programs as HTTP requests, one at a time, if a stream is not possible.

Each request has a number in its header, so that one whose answer was lost can be posted again without running twice.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from telegrad_engine.program import compression
from telegrad_engine.program.safetensors import Container, joined
from telegrad_engine.program.wire import SAFETENSORS

from . import progress
from .connection import RETRY_S, Reply, failure, refusal, repeated
from .stream import DELAYS_S

HEADER = "telegrad-sequence"
SENDER_HEADER = "telegrad-sender"
OBSERVED_HEADER = "telegrad-observed"
PIECE = 2**18
"""Bytes of a body that are sent at a time."""


class _Posted(NamedTuple):
    body: bytes | memoryview
    headers: Mapping[str, str]


class HttpFallback:
    """The requests of one session. Nothing is sent before :meth:`receive`.

    With ``compressed``, programs are zstd frames if that is worthwhile, and answers may be.
    """

    room = 1
    labels: Mapping[str, str] = {}
    """No metadata: the number is sent in a header."""
    answered = True
    """A program is posted when its answer is received, so there is nothing to wait for before."""

    def __init__(
        self, url: str, path: str, client: httpx.Client, compressed: bool = False, retry_s: float = RETRY_S
    ) -> None:
        self._url, self._path, self._client, self._compressed, self._retry_s = url, path, client, compressed, retry_s
        coding = compression.ENCODING if compressed else "identity"  # not httpx's own choice
        self._headers = {
            "content-type": SAFETENSORS,
            "accept": SAFETENSORS,
            "accept-encoding": coding,
            SENDER_HEADER: secrets.token_hex(8),
        }
        self._where = urlsplit(url).netloc
        self._watched = progress.wanted()
        self._done = 0
        """The last number used."""
        self._posted: _Posted | None = None
        """The unanswered program."""

    def send(self, pieces: Sequence[Container]) -> None:
        """Keep a program for :meth:`receive`. Raises ConnectionFailed."""
        if self._posted is not None:
            self.receive()  # its answer is dropped, but its number counts if it reached the server
        body = joined(pieces)
        if self._compressed:
            body = compression.compress(body)
        headers = {**self._headers, HEADER: str(self._done + 1), "content-length": str(len(body))}
        if compression.is_frame(body):
            headers["content-encoding"] = compression.ENCODING
        self._posted = _Posted(body, headers)

    def receive(self) -> Reply:
        """Post the program and wait for the answer. Raises ConnectionFailed."""
        assert self._posted is not None
        posted = self._posted
        reply = repeated(lambda: self._post_again(posted), lambda reply: reply.refusal, self._where, self._retry_s)
        if self._compressed and compression.is_frame(reply.body):  # unless httpx has unpacked it
            reply = reply._replace(body=compression.decompress(reply.body))
        # In one statement: a Ctrl-C between the two would use a number twice.
        self._posted, self._done = None, self._done + (reply.status < 400 or _used(reply))
        return reply

    def _post_again(self, posted: _Posted) -> Reply:
        """Post a program, again if the connection fails."""
        delays = [*DELAYS_S]
        while True:
            try:
                return self._post(posted)
            except httpx.HTTPError as error:
                if isinstance(error, httpx.TimeoutException) or not delays:
                    raise failure(self._url, error) from None
            time.sleep(delays.pop(0))

    def _post(self, posted: _Posted) -> Reply:
        size = len(posted.body)
        waiting = progress.waiting(f"waiting for {self._where}") if size < progress.LARGE else nullcontext()
        with waiting, progress.moving(f"sending to {self._where}", size, self._watched) as tell:

            def pieces() -> Iterator[bytes]:
                for start in range(0, size, PIECE):
                    yield bytes(posted.body[start : start + PIECE])
                    tell(min(start + PIECE, size))

            request = self._client.build_request("POST", self._path, content=pieces(), headers=posted.headers)
            response = self._client.send(request, stream=True)
        parts, length = [], int(response.headers.get("content-length", 0))
        with closing(response), progress.moving(f"receiving from {self._where}", length, self._watched) as tell:
            for part in response.iter_bytes():
                parts.append(part)
                tell(response.num_bytes_downloaded)
        body = b"".join(parts)
        observed = OBSERVED_HEADER in response.headers
        refused = refusal(response.status_code, response.headers, body)
        return Reply(response.status_code, body, observed=observed, refusal=refused)

    def forget(self) -> None:
        """Do nothing: the next :meth:`send` posts a program that is unanswered, and drops its answer."""

    def abandon(self) -> None:
        """In a forked child, drop the program that the parent posts."""
        self._posted = None

    def close(self) -> None:
        """Do nothing: the client closes itself."""


def _used(reply: Reply) -> bool:
    """Whether a failed request has used its number, according to its problem document."""
    try:
        return "sequence" in json.loads(bytes(reply.body))
    except ValueError:
        return False
