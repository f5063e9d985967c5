"""Requests whose client goes away: what they run is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from telegrad_engine.cancellation import CancellationToken

from ..hosting.host import CLIENT_GONE, TOKEN
from ..hosting.sequence import HEADER, SENDER_HEADER, SequenceRecord, parse_sender

LONG_S = 1.0
"""Seconds after which it is looked whether the client of a request is still there: most are answered by then."""


@contextmanager
def cancelled_on_disconnect(request: Request) -> Iterator[None]:
    """Within, calls of sessions are cancelled once the client of the request, whose body was read, is gone.

    A numbered request may be repeated on another connection: it goes on for a while, and for as long as a repetition
    waits for it.
    """
    token = CancellationToken()
    previous = TOKEN.set(token)
    watch = _Watch(request, token)
    timer = asyncio.get_running_loop().call_later(LONG_S, watch.start)
    try:
        yield
    finally:
        timer.cancel()
        watch.stop()
        TOKEN.reset(previous)


class _Watch:
    """Waits for a client to go away."""

    def __init__(self, request: Request, token: CancellationToken) -> None:
        self._request, self._token = request, token
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._wait())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _wait(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        if self._request.headers.get(HEADER) is not None:
            await self._for_repetitions()
        self._token.cancel(CLIENT_GONE)

    async def _for_repetitions(self) -> None:
        """Wait until no request of the session waits for its turn, but at least for as long as a client may need."""
        state = self._request.app.state
        handle = state.host.find(self._request.path_params["session"])
        record: SequenceRecord = handle.senders.of(parse_sender(self._request.headers.get(SENDER_HEADER)))
        while True:
            await asyncio.sleep(max(state.settings.reconnect_s, 0.1))
            if not record.waiting:
                return
