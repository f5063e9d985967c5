"""Cancels the work of requests whose client disconnects."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from telegrad_engine.cancellation import CancellationToken

from ..hosting.sequence import HEADER, SENDER_HEADER, SequenceRecord, parse_sender
from ..hosting.session_handle import CLIENT_GONE, TOKEN
from ..tenants.principal import principal_of

LONG_S = 1.0
"""Seconds until a request's client is watched for a disconnect: most requests are answered earlier."""


class CancelledOnDisconnect:
    """Cancels session calls within the block when the client of the request disconnects. The body must have been read.

    A numbered request may be repeated on another connection, so it continues for a while, and for as long as a
    repetition waits for it.
    """

    __slots__ = ("_previous", "_request", "_task", "_timer", "_token")

    def __init__(self, request: Request) -> None:
        self._request, self._token = request, CancellationToken()
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._previous = TOKEN.set(self._token)
        self._timer = asyncio.get_running_loop().call_later(LONG_S, self._start)

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        TOKEN.reset(self._previous)

    def _start(self) -> None:
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        if self._request.headers.get(HEADER) is not None:
            await self._for_repetitions()
        self._token.cancel(CLIENT_GONE)

    async def _for_repetitions(self) -> None:
        """Wait at least the time a client has to reconnect, and until no request of the sender waits for its turn."""
        state = self._request.app.state
        handle = state.host.find(principal_of(self._request), self._request.path_params["session"])
        record: SequenceRecord = handle.senders.of(parse_sender(self._request.headers.get(SENDER_HEADER)))
        while True:
            await asyncio.sleep(max(state.settings.reconnect_s, 0.1))
            if not record.waiting:
                return
