"""Mutations that can safely be sent twice.

A client numbers its mutations of a session 1, 2, 3, …: in the header ``Telegrad-Sequence``, or, on the stream, in
each program's metadata. A number that was used is answered from the record; with another request, or out of order,
it is a 409. Without a number nothing is recorded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np
from starlette.responses import Response

from telegrad_engine.errors import InvalidArgument, SequenceConflict

HEADER = "Telegrad-Sequence"
MAX_ANSWERS = 64
MAX_BYTES = 16 * 2**20
NOT_DONE = 503
"""The status of a request that did not happen: its number stays free. After any other, something may have."""
_ROW = 1024
"""Bytes that are summed up word by word."""


class _Entry(NamedTuple):
    fingerprint: int
    answer: Any
    size: int


class SequenceRecord:
    """The last answers of a session, by sequence number. Its methods belong to whoever has the ``turn``."""

    def __init__(self) -> None:
        self.last = 0
        """The last number that was used; 0 before the first."""
        self.failed = 0
        """The last number whose request did not run to its end: what was sent before that was known must not run."""
        self.turn = asyncio.Lock()
        """Held from looking at ``last`` to recording the next."""
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._bytes = 0

    async def once(self, number: int, fingerprint: int, answer: Callable[[], Awaitable[Response]]) -> Response:
        """The recorded answer to this number, or ``answer()``, recorded.

        Numbered requests take turns in order of arrival, so a repeated one waits for the first.
        """
        async with self.turn:
            if number <= self.last:
                repeated: Response = self.recorded(number, fingerprint)
                return repeated
            if number != self.last + 1:
                raise SequenceConflict(skips(number, self.last))
            response = await answer()
            status = response.status_code
            if status != NOT_DONE:
                self.record(number, fingerprint, response, len(response.body), status >= 400)
            return response

    def recorded(self, number: int, fingerprint: int) -> Any:
        """The answer that this number got. Raises SequenceConflict if it was another request's, or is forgotten."""
        entry = self._entries.get(number)
        if entry is None:
            raise SequenceConflict(f"sequence number {number} is too old; its answer is no longer recorded")
        if entry.fingerprint != fingerprint:
            raise SequenceConflict(f"sequence number {number} was used for another request")
        return entry.answer

    def record(self, number: int, fingerprint: int, answer: Any, size: int, failed: bool) -> None:
        """Keep the answer to the next number; old ones give way, this one never does."""
        self.last = number
        if failed:
            self.failed = number
        self._entries[number] = _Entry(fingerprint, answer, size)
        self._bytes += size
        while len(self._entries) > MAX_ANSWERS or (self._bytes > MAX_BYTES and len(self._entries) > 1):
            self._drop()

    def forget(self, seen: int) -> None:
        """Drop the answers up to this number: their reader has them."""
        while self._entries and next(iter(self._entries)) <= seen:
            self._drop()

    def _drop(self) -> None:
        self._bytes -= self._entries.popitem(last=False)[1].size


def skips(number: int, last: int) -> str:
    """What is said of a number that is not the next."""
    return f"sequence number {number} skips ahead; the next one is {last + 1}"


def parse_number(text: str, name: str = HEADER, least: int = 1) -> int:
    """The number in a header or in metadata, or InvalidArgument."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) >= least):
        raise InvalidArgument(f"{name} is a whole number from {least} on, not {text!r:.40}")
    return int(text)


def fingerprint_of(body: bytes | memoryview, sender: str | None) -> int:
    """What tells a repeated body from another one of its number: a sender that gives no number twice, or its bytes."""
    return checksum(body) if sender is None else hash((sender, len(body)))


def checksum(body: bytes | memoryview) -> int:
    """A number that tells two bodies of one client apart, at the speed of memory; it withstands no ill will."""
    view = memoryview(body)
    rows = len(view) // _ROW
    words = np.ndarray((rows, _ROW // 8), np.uint64, view[: rows * _ROW])
    return hash((len(view), words.sum(0).tobytes(), bytes(view[rows * _ROW :])))
