"""ASGI middleware of a worker: which requests it serves, and that nothing leaves it that it may not say any more.

A request needs a token for this worker. If it is for a session, the token says under which epoch this worker has it;
the worker takes the session over if it has an earlier one. The lease is checked when a request begins and again before
its answer leaves: between the two, this process may have stood still while others took its sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from telegrad_engine.errors import ServerBusy, SessionMoved, TelegradError, Unauthenticated

from .. import __version__
from ..hosting.session_handle import GOING_AWAY
from ..http.origins import refuse
from ..observability.request import REQUEST
from ..streaming.websocket import ANSWER_WITH, PROMPT
from .lease import Lease
from .tokens import FENCED, LOST, MOVED, REFUSED, Claims, session_in
from .verification import TokenAuthenticator, authorization_of
from .worker_host import CREATION_KEY, WorkerHost

OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are served without a token."""
LAPSED = "this worker has lost touch with the directory of sessions"
RETRY_AFTER_S = 1
Lasts = Callable[[], bool]
"""Whether the lease lasts with which a request began."""
STARTS = frozenset({"http.response.start", "websocket.http.response.start"})


class WorkerRole:
    """Passes to ``app`` what the worker may serve."""

    def __init__(self, app: ASGIApp, host: WorkerHost, authenticator: TokenAuthenticator, lease: Lease) -> None:
        self._app, self._host, self._authenticator, self._lease = app, host, authenticator, lease

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket") or (scope["type"] == "http" and scope["path"] in OPEN):
            await self._app(scope, receive, send)
            return
        session_id = session_in(scope["path"])
        try:
            claims = await self._authenticator.claims(authorization_of(scope))
            self._check(claims, session_id)
        except TelegradError as error:
            await _refuse(error, scope, receive, send)
            return
        _note_client(scope, claims)
        CREATION_KEY.set(claims.creation_key)  # each request has a task, and so a context, of its own
        if session_id is None or claims.session is None:
            await self._app(*self._guarded(scope, receive, send, claims.worker))
            return
        with self._host.serving(session_id):
            try:
                await self._host.take(session_id, claims.epoch, claims.durable)
            except TelegradError as error:
                await _refuse(error, scope, receive, send)
                return
            await self._app(*self._guarded(scope, receive, send, claims.worker))

    def _check(self, claims: Claims, session_id: str | None) -> None:
        """Raise unless this worker may serve a request with these claims."""
        if claims.worker != self._host.worker_id:
            raise SessionMoved("another worker has answered here until now")
        if not self._lease.lasts(claims.worker):
            raise SessionMoved(LAPSED)
        if claims.version != __version__:
            raise ServerBusy(f"this worker has version {__version__}, and the gateway {claims.version}")
        if claims.session not in (session_id, None) or (claims.direct and claims.session is None):
            raise Unauthenticated(REFUSED + "for another session")

    # What leaves ---------------------------------------------------------------------------------

    def _guarded(self, scope: Scope, receive: Receive, send: Send, worker_id: str) -> tuple[Scope, Receive, Send]:
        """The same, but nothing is sent without the lease with which the request began."""
        lasts = partial(self._lease.lasts, worker_id)
        if scope["type"] == "http":
            return scope, receive, _guarded_answer(lasts, scope, receive, send)
        extension = scope.get("extensions", {}).get(PROMPT)
        if extension is not None:
            prompts = {**extension, ANSWER_WITH: _guarded_prompts(lasts, extension[ANSWER_WITH])}
            scope = {**scope, "extensions": {**scope["extensions"], PROMPT: prompts}}
        return scope, receive, _guarded_stream(lasts, send)


def _guarded_answer(lasts: Lasts, scope: Scope, receive: Receive, send: Send) -> Send:
    ended = endless = False

    async def guarded(message: Message) -> None:
        nonlocal ended, endless
        if ended:
            return
        if message["type"] in STARTS:
            if not lasts():
                ended = True
                await refuse(ServerBusy(LAPSED, retry_after_s=RETRY_AFTER_S), {FENCED: LOST})(scope, receive, send)
                return
            _mark_moved(message)
            endless = all(name != b"content-length" for name, _ in message.get("headers", ()))
        elif endless and not lasts():
            ended, message = True, {"type": message["type"], "body": b"", "more_body": False}
        await send(message)

    return guarded


def _guarded_stream(lasts: Lasts, send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "websocket.send" and not lasts():
            message = {"type": "websocket.close", "code": GOING_AWAY, "reason": LAPSED}
        elif message["type"] in STARTS:
            _mark_moved(message)
        await send(message)

    return guarded


def _guarded_prompts(lasts: Lasts, answer_with: Callable[..., None]) -> Callable[..., None]:
    """Answer messages at once only while the lease lasts. The application gets the others, and those that were
    run when it ended; their answers are then in the record."""

    def guarded(prompt: Callable[[memoryview], Any], *rest: Any) -> None:
        def answered(message: memoryview) -> Any:
            answer = prompt(message) if lasts() else None
            return answer if lasts() else None

        answer_with(answered, *rest)

    return guarded


async def _refuse(error: TelegradError, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {FENCED: MOVED} if isinstance(error, SessionMoved) else {}
    await refuse(error, headers)(scope, receive, send)


def _mark_moved(start: Message) -> None:
    """Tell the gateway, without the body, if the answer is that the session has moved.

    Without Retry-After, the new owner may have found what the request did in the journal.
    """
    request = REQUEST.get()
    if request is None or request.slug != SessionMoved.slug:
        return
    headers = [*start.get("headers", ())]
    known = MOVED if any(name == b"retry-after" for name, _ in headers) else LOST
    start["headers"] = [*headers, (FENCED.encode(), known.encode())]


def _note_client(scope: Scope, claims: Claims) -> None:
    """Set the client's address, which the gateway says."""
    if claims.direct:
        return
    for name, value in scope["headers"]:
        if name == b"x-forwarded-for":
            scope["client"] = value.decode("latin-1"), 0
