"""Mutations that can safely be sent twice.

A client numbers its mutations of a session 1, 2, 3, …: in the header ``Telegrad-Sequence``, or, on the stream, in
each program's metadata. A number that was used is answered from the record; with another request, or out of order,
it is a 409. Without a number nothing is recorded.

Numbers belong to a sender: the header ``Telegrad-Sender``, or the stream's query parameter ``sender``, names it. All
requests without a name count in one row.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.responses import Response
from xxhash import xxh3_128_digest

from telegrad_engine.errors import InvalidArgument, SequenceConflict
from telegrad_engine.program.message import Progress
from telegrad_engine.session.memory_accounting import Accounts

HEADER = "Telegrad-Sequence"
SENDER_HEADER = "Telegrad-Sender"
SENDER_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
ANONYMOUS = ""
"""The sender of requests that name none."""
MAX_SENDERS = 16
"""How many senders a session remembers; a new one takes the place of the one that was silent for longest."""
MAX_NUMBER = 10**18 - 1
MAX_ANSWERS = 64
MAX_BYTES = 16 * 2**20
NOT_DONE = 503
"""The status of a request that did not happen: its number stays free. After any other, something may have."""


class _Entry(NamedTuple):
    digest: bytes
    answer: Any
    size: int


class SequenceRecord:
    """The last answers to one sender, by sequence number. Its methods belong to whoever has the ``turn``."""

    def __init__(self, accounts: Accounts | None = None) -> None:
        self.last = 0
        """The last number that was used; 0 before the first."""
        self.failed = 0
        """The last number whose request did not run to its end: what was sent before that was known must not run."""
        self.waiting = 0
        """How many requests wait for the turn."""
        self.turn = asyncio.Lock()
        """Held from looking at ``last`` to recording the next."""
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._begun: tuple[int, Progress] | None = None
        """The number whose message runs, and how far it has."""
        self._bytes = 0
        self._accounts, self._counted = accounts, 0

    async def once(self, number: int, digest: bytes, answer: Callable[[], Awaitable[Response]]) -> Response:
        """The recorded answer to this number, or ``answer()``, recorded.

        Numbered requests take turns in order of arrival, so a repeated one waits for the first.
        """
        self.waiting += 1
        try:
            await self.turn.acquire()
        finally:
            self.waiting -= 1
        try:
            if number <= self.last:
                repeated: Response = self.recorded(number, digest)
                return repeated
            if number != self.last + 1:
                raise SequenceConflict(skips(number, self.last))
            response = await answer()
            status = response.status_code
            if status != NOT_DONE:
                self.record(number, digest, response, len(response.body), status >= 400)
            return response
        finally:
            self.turn.release()

    def recorded(self, number: int, digest: bytes) -> Any:
        """The answer that this number got. Raises SequenceConflict if it was another request's, or is forgotten."""
        entry = self._entries.get(number)
        if entry is None:
            raise SequenceConflict(f"sequence number {number} is too old; its answer is no longer recorded")
        if entry.digest != digest:
            raise SequenceConflict(f"sequence number {number} was used for another request")
        return entry.answer

    def progress_of(self, number: int) -> Progress:
        """How far the message of this number has run."""
        if self._begun is None or self._begun[0] != number:
            self._begun = number, Progress()
        return self._begun[1]

    def record(self, number: int, digest: bytes, answer: Any, size: int, failed: bool) -> None:
        """Keep the answer to the next number; old ones give way, this one never does."""
        self.last = number
        self._begun = None
        if failed:
            self.failed = number
        self._entries[number] = _Entry(digest, answer, size)
        self._bytes += size
        while len(self._entries) > MAX_ANSWERS or (self._bytes > MAX_BYTES and len(self._entries) > 1):
            self._drop()
        self._account()

    def forget(self, seen: int) -> None:
        """Drop the answers up to this number: their reader has them."""
        before = len(self._entries)
        while self._entries and next(iter(self._entries)) <= seen:
            self._drop()
        if len(self._entries) < before:
            self._account()

    def clear(self) -> None:
        """Forget all answers."""
        self._entries.clear()
        self._bytes = 0
        self._account()

    def _account(self) -> None:
        """Have the session's accounts follow the size of the answers."""
        if self._accounts is not None:
            self._accounts.answer_bytes += self._bytes - self._counted
            self._counted = self._bytes

    def _drop(self) -> None:
        self._bytes -= self._entries.popitem(last=False)[1].size


class SequenceRecords:
    """The records of a session's senders."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, SequenceRecord] = OrderedDict()
        self.accounts: Accounts | None = None
        """The session's, which include the recorded answers."""

    def of(self, sender: str) -> SequenceRecord:
        """The record of a sender: a new one if there is none, in the place of an idle one if there are too many."""
        record = self._records.get(sender)
        if record is None:
            record = self._records[sender] = SequenceRecord(self.accounts)
            idle = (name for name, other in self._records.items() if not other.turn.locked() and other is not record)
            if len(self._records) > MAX_SENDERS and (oldest := next(idle, None)) is not None:
                self._records.pop(oldest).clear()
        self._records.move_to_end(sender)
        return record

    @property
    def anonymous(self) -> int:
        """The last number that was used without a sender's name; 0 before the first."""
        record = self._records.get(ANONYMOUS)
        return 0 if record is None else record.last


def skips(number: int, last: int) -> str:
    """What is said of a number that is not the next."""
    return f"sequence number {number} skips ahead; the next one is {last + 1}"


def parse_number(text: str, name: str = HEADER, least: int = 1) -> int:
    """The number in a header or in metadata, or InvalidArgument."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) >= least):
        raise InvalidArgument(f"{name} is a whole number from {least} to {MAX_NUMBER}, not {text!r:.40}")
    return int(text)


def parse_sender(name: str | None) -> str:
    """The sender that a header or a query parameter names, or InvalidArgument."""
    if name is None:
        return ANONYMOUS
    if not re.fullmatch(SENDER_PATTERN[1:-1], name):
        raise InvalidArgument(f"a sender's name matches {SENDER_PATTERN}, unlike {name!r:.80}")
    return name


def digest_of(body: bytes | memoryview) -> bytes:
    """128 bits that tell two bodies of one sender apart, at the speed of memory.

    Whoever finds a collision can only confuse a sender of their own.
    """
    return xxh3_128_digest(body)
