"""Sequence numbers, which make it safe to repeat a mutation.

A client numbers its mutations of a session 1, 2, 3, …, in the header ``Telegrad-Sequence``, or on a stream in each
program's metadata. A repeated request gets the recorded answer. A used number with a different request, or a number
that skips ahead, gets a 409. Requests without a number are not recorded.

Each sender counts its own mutations. The header ``Telegrad-Sender``, or the stream's query parameter ``sender``, has
the sender's name. All requests without a name share one sequence.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, NamedTuple

from starlette.responses import Response
from xxhash import xxh3_128_digest

from telegrad_engine.errors import InvalidArgument, SequenceConflict, TelegradError, from_slug
from telegrad_engine.program.result import BorrowedAnswer, in_one_buffer
from telegrad_engine.program.wire import Container, Progress
from telegrad_engine.session.memory_accounting import Accounts
from telegrad_engine.session.session import Session

HEADER = "Telegrad-Sequence"
SENDER_HEADER = "Telegrad-Sender"
SENDER_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
ANONYMOUS = ""
"""The sender of requests without a sender's name."""
MAX_SENDERS = 16
"""The number of senders that a session records. A new one replaces the one that was inactive for longest."""
MAX_NUMBER = 10**18 - 1
MAX_ANSWERS = 64
MAX_BYTES = 16 * 2**20


class StreamAnswer(NamedTuple):
    """The answer to a program on a stream."""

    number: int | None
    """The program's sequence number, if it could be read."""
    answer: Container | BorrowedAnswer = b""
    error: TelegradError | None = None
    observed: bool = False
    """Whether the answer says that the session is observed, which a replay of it would not say."""


class _Entry(NamedTuple):
    digest: bytes
    answer: StreamAnswer | Response

    @property
    def size(self) -> int:
        return len(self.answer.answer if isinstance(self.answer, StreamAnswer) else self.answer.body)


class SequenceRecord:
    """The last answers to one sender, by sequence number. All methods that read or change answers, except
    :meth:`once`, require holding ``turn``.
    """

    def __init__(self, accounts: Accounts | None = None) -> None:
        self.last = 0
        """The last number that was used; 0 before the first."""
        self.failed = 0
        """The last number whose request failed. Programs that were sent before the sender knew that must not run."""
        self.waiting = 0
        """The number of requests that wait for ``turn``."""
        self._attempt = 0
        """The number of the newest attempt to connect the sender's stream; 0 if its attempts have no numbers."""
        self.turn = asyncio.Lock()
        """The lock that is held from reading ``last`` until the next answer is recorded."""
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._begun: tuple[int, Progress] | None = None
        """The number of the message that runs, and its progress."""
        self._bytes = 0
        self._accounts, self._counted = accounts, 0

    async def once(
        self,
        number: int,
        digest: bytes,
        answer: Callable[[], Awaitable[Response]],
        recording: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> Response:
        """Return the recorded answer for this number, or else call ``answer()`` and record its result.

        That happens within ``recording()``, at whose end the journal of a durable session has the answer. Numbered
        requests run in the order of their arrival, so a repeated request waits for the first one. If ``answer()``
        raises an error, the request had no effect, and its number stays free.
        """
        self.waiting += 1
        try:
            await self.turn.acquire()
        finally:
            self.waiting -= 1
        try:
            response: Response | None = self.recorded(number, digest)
            if response is not None:
                return response
            async with recording():
                response = await answer()
                self.record(number, digest, response, response.status_code >= 400)
            return response
        finally:
            self.turn.release()

    def recorded(self, number: int, digest: bytes) -> Any:
        """Return the recorded answer for this number, or None if it is the next one.

        Raises SequenceConflict if another request used the number, if it is too old, or if it skips ahead.
        """
        if number == self.last + 1:
            return None
        if number > self.last:
            raise SequenceConflict(f"sequence number {number} skips ahead; the next one is {self.last + 1}")
        entry = self._entries.get(number)
        if entry is None:
            raise SequenceConflict(f"sequence number {number} is too old; its answer is no longer recorded")
        if entry.digest != digest:
            raise SequenceConflict(f"sequence number {number} was used for another request")
        return entry.answer

    def connects(self, attempt: int) -> None:
        """Note a connection of the sender's stream. Raises SequenceConflict if the sender has made a later one."""
        if attempt < self._attempt:
            raise SequenceConflict(f"attempt {attempt} to connect is an old one; the newest was {self._attempt}")
        self._attempt = attempt

    def progress_of(self, number: int) -> Progress:
        """The progress of the message with this number."""
        if self._begun is None or self._begun[0] != number:
            self._begun = number, Progress()
        return self._begun[1]

    def record(self, number: int, digest: bytes, answer: StreamAnswer | Response, failed: bool) -> None:
        """Record the answer to the next number, and drop old answers beyond the limits, but never this one."""
        self.last = number
        self._begun = None
        if failed:
            self.failed = number
        self._entries[number] = entry = _Entry(digest, answer)
        self._bytes += entry.size
        while len(self._entries) > MAX_ANSWERS or (self._bytes > MAX_BYTES and len(self._entries) > 1):
            self._drop()
        self._account()

    def dump(self, number: int) -> list[Any] | None:
        """The record of this number as plain data; None if there is none."""
        if (entry := self._entries.get(number)) is None:
            return None
        digest, answer = entry
        if isinstance(answer, StreamAnswer):
            error = answer.error
            problem = None if error is None else [error.slug, error.detail, error.context]
            return [
                "stream",
                digest,
                self.failed == number,
                answer.number,
                bytes(in_one_buffer(answer.answer)),
                problem,
            ]
        headers = [list(header) for header in answer.raw_headers]
        return ["response", digest, self.failed == number, answer.status_code, headers, answer.body]

    def load(self, number: int, data: Sequence[Any]) -> None:
        """Add the record of a number from plain data."""
        kind, digest, failed, *rest = data
        answer: StreamAnswer | Response
        if kind == "stream":
            own, content, problem = rest
            answer = StreamAnswer(own, content, None if problem is None else from_slug(*problem))
        else:
            status, headers, body = rest
            answer = Response(body, status)
            answer.raw_headers = [(name, value) for name, value in headers]
        self.record(number, digest, answer, failed)

    def dump_all(self) -> list[Any]:
        """All records as plain data, with the number of the last request and of the last one that failed."""
        return [self.last, self.failed, [[number, self.dump(number)] for number in self._entries]]

    def forget(self, seen: int) -> None:
        """Drop the answers up to this number, because the client has them."""
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

    def restart(self, accounts: Accounts) -> None:
        """Start again at the first number, because the session is loaded again."""
        self.clear()
        self._accounts, self._counted = accounts, 0
        self.last = self.failed = 0
        self._begun = None

    def _account(self) -> None:
        """Update the size of the recorded answers in the session's accounts."""
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
        """The session's memory accounts, which include the recorded answers."""

    def of(self, sender: str) -> SequenceRecord:
        """The record of a sender. A new record replaces the oldest idle one if there are more than ``MAX_SENDERS``."""
        record = self._records.get(sender)
        if record is None:
            record = self._records[sender] = SequenceRecord(self.accounts)
            idle = (name for name, other in self._records.items() if not other.turn.locked() and other is not record)
            if len(self._records) > MAX_SENDERS and (oldest := next(idle, None)) is not None:
                self._records.pop(oldest).clear()
        self._records.move_to_end(sender)
        return record

    def restart(self, accounts: Accounts) -> None:
        """Start every sender again at its first number, because the session is loaded again."""
        self.accounts = accounts
        for record in self._records.values():
            record.restart(accounts)

    def dump(self) -> list[Any]:
        """The records of all senders as plain data; the sender that was inactive for longest comes first."""
        return [[name, *record.dump_all()] for name, record in self._records.items()]

    def load(self, data: Sequence[Any]) -> None:
        """Set the records of senders from plain data."""
        for name, last, failed, entries in data:
            record = self.of(name)
            for number, entry in entries:
                record.load(number, entry)
            record.last, record.failed = last, failed

    @property
    def anonymous(self) -> int:
        """The last number that was used without a sender's name; 0 before the first."""
        record = self._records.get(ANONYMOUS)
        return 0 if record is None else record.last


class HostedSession(Session):
    """A session of a host, with the records of its senders."""

    is_durable = False
    """Whether the commands of the session are written to a journal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.senders = SequenceRecords()
        self.senders.accounts = self.accounts

    @property
    def session(self) -> HostedSession:
        """This session, for the interface of :class:`Durable`."""
        return self


def parse_number(text: str, name: str = HEADER, least: int = 1) -> int:
    """Parse the number in a header or in metadata. Raises InvalidArgument."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) >= least):
        raise InvalidArgument(f"{name} is a whole number from {least} to {MAX_NUMBER}, not {text!r:.40}")
    return int(text)


def parse_sender(name: str | None) -> str:
    """Parse the sender's name in a header or query parameter. Raises InvalidArgument."""
    if name is None:
        return ANONYMOUS
    if not re.fullmatch(SENDER_PATTERN[1:-1], name):
        raise InvalidArgument(f"a sender's name matches {SENDER_PATTERN}, unlike {name!r:.80}")
    return name


def digest_of(body: bytes | memoryview) -> bytes:
    """A fast 128-bit digest that distinguishes the bodies of one sender.

    It need not be cryptographic: a collision affects only the client that constructs it.
    """
    return xxh3_128_digest(body)
