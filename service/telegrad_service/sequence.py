"""Mutations that can safely be sent twice.

A client numbers its mutations of a session 1, 2, 3, … in the header ``Telegrad-Sequence``. A
number that was used is answered from the record; with another request, or out of order, it is a
409. Without the header nothing is recorded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.responses import Response

from telegrad_engine.errors import InvalidArgument, SequenceConflict

HEADER = "Telegrad-Sequence"
MAX_ANSWERS = 64
MAX_BYTES = 16 * 2**20
NOT_DONE = frozenset({429, 500, 503})
"""Statuses of a request that did not happen: its number stays free."""


class _Entry(NamedTuple):
    fingerprint: int
    response: Response


class SequenceRecord:
    """The last answers of a session, by sequence number."""

    def __init__(self) -> None:
        self.last = 0
        """The last number that was used; 0 before the first."""
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._bytes = 0
        self._turn = asyncio.Lock()

    async def once(self, number: int, fingerprint: int, answer: Callable[[], Awaitable[Response]]) -> Response:
        """The recorded answer to this number, or ``answer()``, recorded.

        Numbered requests take turns in order of arrival, so a repeated one waits for the first.
        """
        async with self._turn:
            if number <= self.last:
                return self._recorded(number, fingerprint)
            if number != self.last + 1:
                raise SequenceConflict(f"sequence number {number} skips ahead; the next one is {self.last + 1}")
            response = await answer()
            if response.status_code not in NOT_DONE:
                self._record(number, _Entry(fingerprint, response))
            return response

    def _recorded(self, number: int, fingerprint: int) -> Response:
        entry = self._entries.get(number)
        if entry is None:
            raise SequenceConflict(f"sequence number {number} is too old; its answer is no longer recorded")
        if entry.fingerprint != fingerprint:
            raise SequenceConflict(f"sequence number {number} was used for another request")
        return entry.response

    def _record(self, number: int, entry: _Entry) -> None:
        self.last = number
        self._entries[number] = entry
        self._bytes += len(entry.response.body)
        while len(self._entries) > MAX_ANSWERS or (self._bytes > MAX_BYTES and len(self._entries) > 1):
            self._bytes -= len(self._entries.popitem(last=False)[1].response.body)


def parse_number(header: str) -> int:
    """The number in a header, or InvalidArgument."""
    if not (header.isascii() and header.isdecimal() and len(header) < 19 and int(header) > 0):
        raise InvalidArgument(f"{HEADER} is a whole number from 1 on, not {header!r:.40}")
    return int(header)
