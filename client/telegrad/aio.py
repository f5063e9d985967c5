"""asyncio support: a session that waits for the server in a worker thread, so that the event loop keeps running.

Recording an op is immediate and needs no ``await``; opening and closing a session and fetching a value do. A session
belongs to one task at a time: while it waits for an answer, another task that records into it waits as well.
"""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any

from .sessions.session import Session, enter, transport_to
from .tensor.handle import Tensor, recorder_of
from .tensor.host_values import in_worker_thread


class Connecting:
    """The return value of :func:`aconnect`: use it with ``async with``, or ``await`` it for a session.

    ``url`` and ``options`` are those of ``connect``.

    Examples:
        >>> type(tg.aconnect("local://")).__name__
        'Connecting'
    """

    def __init__(self, url: str | None, options: dict[str, Any]) -> None:
        self._url, self._options = url, options
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return self._open().__await__()

    async def _open(self) -> Session:
        session = Session(await in_worker_thread(transport_to, self._url, **self._options))
        return enter(session)

    async def __aenter__(self) -> Session:
        self._session = await self._open()
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await aclose(self._session)


def aconnect(
    url: str | None = None,
    *,
    device: str | None = None,
    seed: int | None = None,
    dtype: Any = None,
    stream: bool | None = None,
    **options: Any,
) -> Connecting:
    """Open a session like :func:`telegrad.connect`, for the task that awaits it, without blocking the event loop.

    ``async with tg.aconnect(url) as session: …`` closes it at the end; ``session = await tg.aconnect(url)`` does not.

    The other arguments are those of ``connect``.

    Examples:
        >>> import asyncio
        >>> async def total():
        ...     async with tg.aconnect("local://"):
        ...         return await tg.ones(3).sum().value()
        >>> float(asyncio.run(total()))
        3.0
    """
    return Connecting(url, {"device": device, "seed": seed, "dtype": dtype, "stream": stream, **options})


async def aclose(session: Session) -> None:
    """Close a session and free everything in it, like its ``close`` method.

    ``session`` is the session.

    Examples:
        >>> import asyncio
        >>> async def run():
        ...     session = await tg.aconnect("local://")
        ...     await tg.aio.aclose(session)
        >>> asyncio.run(run())
    """
    await in_worker_thread(session.recorder.close)
    session.close()  # the recorder is closed already; this deactivates the session in this task


async def values(*tensors: Tensor) -> tuple[Any, ...]:
    """Fetch the values of tensors of one session as NumPy arrays, with one message.

    ``tensors`` are the tensors.

    Examples:
        >>> import asyncio
        >>> async def both():
        ...     async with tg.aconnect("local://"):
        ...         x = tg.ones(3)
        ...         return await tg.aio.values(x.sum(), x.mean())
        >>> [float(value) for value in asyncio.run(both())]
        [3.0, 1.0]
    """
    if not tensors:
        return ()
    recorder = recorder_of(tensors)
    fetched = await in_worker_thread(recorder.fetch, [tensor._id for tensor in tensors])
    return tuple([fetched[tensor._id].array.copy() for tensor in tensors])


async def value(tensor: Tensor) -> Any:
    """The tensor's value as a NumPy array, whether or not it requires grad.

    Examples:
        >>> import asyncio
        >>> async def total():
        ...     async with tg.aconnect("local://"):
        ...         return await tg.aio.value(tg.ones(3).sum())
        >>> float(asyncio.run(total()))
        3.0
    """
    return (await values(tensor))[0]
