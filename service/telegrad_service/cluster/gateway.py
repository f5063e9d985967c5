"""A gateway: finds the worker that has the session of a request, and forwards the request. It hosts no sessions."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from telegrad_engine.errors import ConnectionFailed, ServerBusy, SessionLost, TelegradError
from telegrad_engine.lru import LRU
from telegrad_engine.program import json_codec
from telegrad_engine.session.memory_accounting import Accounts

from .. import __version__
from ..http.origins import refuse
from ..observability.metrics import Ledger
from ..observability.request import note_route
from ..tenants.principal import Principal, principal_of
from . import placement, tokens
from .connection import Lost, Unreachable
from .directory import FIRST_EPOCH, Directory, Placement, Worker, guarded
from .placement import Members
from .proxy import Moved, Proxy, Refused, Request, Stopped
from .tokens import Claims, Secrets, session_in

logger = logging.getLogger(__name__)
MAX_SESSIONS = 100_000
"""The number of sessions whose placement is cached."""
MAX_TOKENS = 10_000
RENEWED_S = tokens.TOKEN_S / 2
"""The age in seconds at which a token is replaced."""
MAX_REPEATED = 2**16
"""The largest body, in bytes, that is read before it is forwarded, so that it can be sent again to another worker."""
MAX_BODY_BYTES = 2**28
"""The bytes that all bodies together take that a gateway reads before it forwards them."""
POLL_S = 0.02
PATIENCE_S = 5.0
"""How long a request without effect is retried, in seconds, on the session's current worker."""
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.5)
RETRY_AFTER_S = 1
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods that may be repeated (RFC 9110, 9.2.2)."""
NUMBERED = frozenset({b"telegrad-sequence", b"idempotency-key"})
"""A request with one of these headers may be repeated, whatever its method."""
CREATING = frozenset({"/v1/sessions", "/v1/sessions/import"})
KEY = re.compile(rb'"?([!-~]{1,255}?)"?')


class Destination(NamedTuple):
    """The worker that gets a request."""

    worker: Worker
    placed: Placement | None
    """The session's placement; None if the request names no session or an unknown one."""


class Creation(NamedTuple):
    """What a request for a new session asks for, as far as it matters for the choice of a worker."""

    device: str | None = None
    """None if any worker will do, because the request has no valid device and the worker will refuse it."""
    durable: bool = False
    key: str | None = None
    """The digest of the request's Idempotency-Key."""


class Gateway:
    """Forwards requests to workers. An ASGI application for everything that a gateway does not serve itself."""

    def __init__(self, directory: Directory, secrets: Secrets, lease_s: float, tls: ssl.SSLContext) -> None:
        """``tls`` is used for workers whose address begins with https."""
        self.directory, self.proxy = directory, Proxy(tls)
        self.members = Members(directory, lease_s, self.proxy.cut)
        self.ledger = Ledger()
        self._bodies = Accounts(MAX_BODY_BYTES)
        self._secrets = secrets
        self._places: LRU[str, Placement] = LRU(MAX_SESSIONS)
        self._tokens: LRU[Claims, tuple[str, float]] = LRU(MAX_TOKENS)
        self.draining = False
        """Whether the gateway is about to stop and refuses requests."""
        self.repeats = 0
        """How many requests were sent again, because a worker could not be reached or no longer had the session."""
        self.moves = 0
        """How many sessions this gateway has assigned to another worker."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or answer with a problem document."""
        principal, path = principal_of(scope), scope["path"]
        session_id = session_in(path)
        route = "/v1/sessions" if path in CREATING else "/v1/sessions/{session}" if session_id else ""
        if route:
            note_route(route, principal.tenant)
        try:
            if self.draining:
                raise _busy("the gateway is about to stop")
            await self._forward(scope, receive, send, principal, session_id)
        except TelegradError as error:
            await refuse(error)(scope, receive, send)
        except ClientDisconnect:
            pass

    # The interface of a session host, as far as a server needs it --------------------------------

    def bodies(self, tenant: str) -> Accounts:
        """The memory account of the bodies that the gateway reads itself."""
        return self._bodies

    async def drain(self, seconds: float) -> bool:
        """Refuse new requests, and wait at most ``seconds`` seconds until workers have answered the others.

        Streams end with the server, and their clients reconnect.
        """
        self.draining = True
        deadline = time.monotonic() + seconds
        while self.proxy.waiting:
            if time.monotonic() > deadline:
                self.proxy.give_up()
                return False
            await asyncio.sleep(POLL_S)
        return True

    def ended(self, seconds: float) -> bool:
        """Whether all computing threads have ended; a gateway has none."""
        return True

    # Requests ------------------------------------------------------------------------------------

    async def _forward(
        self, scope: Scope, receive: Receive, send: Send, principal: Principal, session_id: str | None
    ) -> None:
        """Forward a request. If its worker does not answer, retry for ``PATIENCE_S`` seconds, if that is safe."""
        body = await _body(scope, receive)
        request, method = Request(scope, receive, send, body), scope.get("method", "GET")
        creates = method == "POST" and scope["path"] in CREATING
        asked = _creation(scope, body, principal.tenant) if creates else None
        # Whether the request may be repeated even if it already had its effect.
        is_safe = method in SAFE or any(name in NUMBERED for name, _ in scope["headers"])
        deadline, tries = time.monotonic() + PATIENCE_S, 0
        while True:
            if asked is not None:
                place, forwarded = await self._place_of_new(principal, asked, request)
            else:
                place, forwarded = await self._place(principal, session_id), request
            try:
                await self.proxy.forward(forwarded, place.worker, await self._token(principal, place, asked))
                return
            except Stopped:
                text = "the gateway stops, and the worker has not answered; nobody knows what the request did"
                raise ServerBusy(text, retry_after_s=RETRY_AFTER_S if is_safe else None) from None
            except Refused as error:
                logger.error("a worker does not accept this gateway's token: %s", error)
                raise _busy(
                    "the worker does not accept the gateway's token; do their clocks differ, or their cluster secrets?"
                ) from None
            except (Unreachable, Moved, Lost) as error:
                if place.placed is not None:  # look it up in the directory the next time
                    self._places.pop(place.placed.id, None)
                failure = self._failure(error, is_safe)
                # The body must be unread, or kept here.
                again = isinstance(error, Unreachable) or (body is not None and isinstance(failure, ServerBusy))
                if not again or time.monotonic() > deadline:
                    if isinstance(error, Unreachable):
                        logger.warning("%s", error)  # the client does not get the worker's address
                    raise failure from None
            self.repeats += 1
            await asyncio.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            tries += 1
            await self.members.look()

    def _failure(self, error: Unreachable | Moved | Lost, is_safe: bool) -> TelegradError:
        """The error for the client of a request that no worker has answered and that is not retried."""
        if isinstance(error, Unreachable):
            if error.refused:
                self.members.refuses(error.worker)
            return _busy(f"worker {error.worker.id} cannot be reached")
        if isinstance(error, Moved):
            return _busy("the session moves to another worker")
        logger.info("a worker was lost: %s", error)
        if is_safe:
            return _busy("the worker was lost before it answered")
        return ConnectionFailed(
            "the worker was lost before it answered, and nobody knows what the request did; requests with a "
            "Telegrad-Sequence or an Idempotency-Key can be repeated safely"
        )

    # Placement --------------------------------------------------------------------------------------

    async def _place(self, principal: Principal, session_id: str | None) -> Destination:
        """The worker for a request. A session whose worker is dead, or has handed it over, gets another worker.

        Raises SessionLost for a session that was lost with its worker, and ServerBusy if there is no worker.
        """
        placed = None if session_id is None else await self._placed(session_id)
        if placed is None or placed.tenant != principal.tenant:
            # Any worker gives the answer of a server that has no such session.
            return Destination(self._any_worker(), None)
        for _ in PAUSES_S:
            worker = self.members.alive(placed.worker)
            if worker is None and placed.worker is not None and not self.members.knows(placed.worker):
                await self.members.look()  # it may have just joined
                worker = self.members.alive(placed.worker)
            if worker is not None:
                if worker.version != __version__:
                    raise _busy(f"the session's worker has version {worker.version}, and this gateway {__version__}")
                return Destination(worker, placed)
            moved = await self._move(placed)
            if moved is None:
                return Destination(self._any_worker(), None)  # the session has ended
            placed = moved
        raise _busy("the session moves from worker to worker")

    async def _placed(self, session_id: str) -> Placement | None:
        placed: Placement | None = self._places.get(session_id)
        if placed is None:
            placed = await guarded(self.directory.find, session_id)
            if placed is not None:
                self._places[session_id] = placed
        return placed

    async def _move(self, known: Placement) -> Placement | None:
        """Assign a session to another worker, unless another gateway did; None if it ended. Raises SessionLost."""
        placed: Placement | None = await guarded(self.directory.find, known.id)
        if placed == known:
            if not known.durable and known.worker is not None:  # else its last worker handed it over
                raise SessionLost(
                    "the session has ended with the worker that had it, and it was not durable, so its tensors are "
                    "gone; a session that is created with `durable` survives its worker"
                )
            found = placement.candidates(self.members.all, __version__, known.device, durable=True, moves=True)
            counts = await guarded(self.directory.counts, known.tenant)
            worker = placement.choose(found, counts, self.members.placed, None)
            placed = await guarded(self.directory.assign, known, worker.id)
            if placed is None:
                placed = await guarded(self.directory.find, known.id)
            else:
                self.moves += 1
                self.members.placed[worker.id] += 1
                logger.info("session %.6s… moves to worker %s", known.id, worker.id)
        if placed is not None:
            self._places[known.id] = placed
        return placed

    def _any_worker(self) -> Worker:
        found = placement.candidates(self.members.all, __version__, None, durable=False)
        return min(found, key=lambda worker: (worker.report.load, worker.id))

    async def _place_of_new(
        self, principal: Principal, asked: Creation, request: Request
    ) -> tuple[Destination, Request]:
        """The worker for a request that creates a session, and the request to forward to it."""
        if asked.key is not None:
            found = await guarded(self.directory.created_with, principal.tenant, asked.key)
            if found is not None:
                return await self._place_of_repeated(principal, found, request)
        workers = placement.candidates(self.members.all, __version__, asked.device, asked.durable)
        counts = await guarded(self.directory.counts, principal.tenant)
        worker = placement.choose(workers, counts, self.members.placed, asked.key)
        self.members.placed[worker.id] += 1
        return Destination(worker, None), request

    async def _place_of_repeated(
        self, principal: Principal, found: Placement, request: Request
    ) -> tuple[Destination, Request]:
        """The same for a request whose Idempotency-Key has already created a session.

        The worker that created the session has recorded the answer. Without that worker, the request becomes a GET of
        the session.
        """
        creator = self.members.alive(found.worker)
        if creator is not None and found.epoch == FIRST_EPOCH:
            return Destination(creator, None), request
        path = f"/v1/sessions/{found.id}"
        scope = {**request.scope, "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope["headers"] = [pair for pair in scope["headers"] if not pair[0].startswith(b"content-")]
        send = request.send

        async def as_created(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                headers = [*message["headers"], (b"location", path.encode())]
                message = {**message, "status": 201, "headers": headers}
            await send(message)

        return await self._place(principal, found.id), Request(scope, request.receive, as_created, b"")

    # Workers ------------------------------------------------------------------------------------

    async def ask(self, principal: Principal, target: str, workers: Iterable[str] | None = None) -> list[Any]:
        """The JSON answers of all workers, or of the given ones, to a GET; without those that do not answer."""

        async def answer(worker: Worker) -> Any:
            return await self.proxy.ask(worker, await self._token(principal, Destination(worker, None)), target)

        asked = [each for each in self.members.all if workers is None or each.id in workers]
        answers = await asyncio.gather(*map(answer, asked))
        return [each for each in answers if each is not None]

    # Tokens --------------------------------------------------------------------------------------

    async def _token(self, principal: Principal, place: Destination, asked: Creation | None = None) -> str:
        """A token with which a worker accepts a request of this principal."""
        placed = place.placed
        claims = Claims(principal, place.worker.id, __version__)
        if placed is not None:
            claims = claims._replace(session=placed.id, epoch=placed.epoch, durable=placed.durable)
        elif asked is not None:
            claims = claims._replace(creation_key=asked.key)
        known: tuple[str, float] | None = self._tokens.get(claims)
        now = time.monotonic()
        if known is None or now - known[1] > RENEWED_S:
            secret_id, secret = await guarded(self._secrets.newest)
            known = self._tokens[claims] = tokens.sign(claims, secret_id, secret), now
        return known[0]


def _busy(text: str) -> ServerBusy:
    return ServerBusy(text, retry_after_s=RETRY_AFTER_S)


async def _body(scope: Scope, receive: Receive) -> bytes | None:
    """The body of a request if it is short; None if it will be forwarded as it arrives."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"")
    if scope["type"] == "websocket" or (b"transfer-encoding" not in headers and not length):
        return b""
    if not length.isdigit() or int(length) > MAX_REPEATED:
        return None
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _creation(scope: Scope, body: bytes | None, tenant: str) -> Creation:
    """Parse a request for a new session as far as the choice of a worker needs it. The worker checks it."""
    headers = dict(scope["headers"])
    found = KEY.fullmatch(headers.get(b"idempotency-key", b""))
    key = None if found is None else sha256(b"\0".join([tenant.encode(), scope["path"].encode(), found[1]])).hexdigest()
    if scope["path"] != "/v1/sessions":
        return Creation(key=key, durable=b"durable=true" in scope["query_string"])
    asked: Any = {}
    if body and b"content-encoding" not in headers:
        try:
            asked = json_codec.loads(body)
        except TelegradError:
            asked = None
    if not isinstance(asked, dict):
        return Creation(key=key)
    device = asked.get("device", placement.CPU)
    known = isinstance(device, str) and placement.NAMES.fullmatch(device)
    return Creation(device if known else None, asked.get("durable") is True, key)
