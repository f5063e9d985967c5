"""A worker: the application of a server whose sessions are in the directory of a cluster.

A worker renews its lease every second. Until its end, the directory does not give the worker's sessions to others. A
worker that could not renew its lease in time, because its process was paused for example, answers nothing until it has
renewed it. If the worker was declared dead meanwhile, other workers may have its sessions, and it joins again under a
new id.

The middleware serves only requests with a token for this worker, and drops answers once the lease has ended. The token
of a request for a session has the session's epoch; a worker that has an earlier epoch takes the session over. The lease
is checked when a request begins and again before its answer is sent, because the process may be paused in between,
while other workers take its sessions.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from telegrad_engine.arrays import ANY_GPU, available
from telegrad_engine.errors import ServerBusy, SessionMoved, TelegradError, Unauthenticated

from .. import __version__
from ..app import create_app
from ..database import Database, DatabaseUnavailable
from ..hosting.session_handle import GOING_AWAY
from ..http.origins import refuse
from ..observability import logs
from ..observability.request import REQUEST
from ..server import NotServed, serve
from ..settings import WorkerSettings
from ..streaming.websocket import ANSWER_WITH, PROMPT
from ..tenants.authentication import authorization_of
from ..tenants.principal import set_principal
from .directory import RENEW_S, Directory, Member, WorkerState
from .tokens import FENCED, LOST, MOVED, REFUSED, Claims, Secrets, TokenReader, session_in
from .worker_host import CREATION_KEY, WorkerHost

logger = logging.getLogger(__name__)
OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are served without a token."""
LAPSED = "this worker has lost touch with the directory of sessions"
RETRY_AFTER_S = 1
Lasts = Callable[[], bool]
"""Whether the lease that was valid when a request began is still valid."""
STARTS = frozenset({"http.response.start", "websocket.http.response.start"})


class Lease:
    """Adds a host to the directory and renews its lease, on a thread that a busy event loop does not delay.

    When the worker drains, its running programs get ``drain_s`` seconds to finish.
    """

    def __init__(self, directory: Directory, host: WorkerHost, seconds: float, drain_s: float) -> None:
        self._directory, self._host, self._seconds, self._drain_s = directory, host, seconds, drain_s
        self._member: Member | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._until = 0.0
        """The end of the lease, in monotonic time."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telegrad-lease", daemon=True)

    def lasts(self, worker_id: str) -> bool:
        """Whether this is the worker's id and its lease is valid, so that nobody has declared it dead."""
        return time.monotonic() < self._until and worker_id == self._host.worker_id

    def start(self, member: Member) -> None:
        """Join, and start renewing. Called on the host's event loop. Raises DatabaseUnavailable."""
        self._member, self._loop = member, asyncio.get_running_loop()
        self._join(member)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing, and mark the worker as dead in the directory."""
        if self._member is None:
            return
        self._stopped.set()
        self._thread.join()
        self._until = 0.0
        try:
            self._directory.leave(self._host.worker_id)
        except DatabaseUnavailable as error:
            logger.warning("the directory was not told that this worker ends: %s", error)

    def _join(self, member: Member) -> None:
        begun = time.monotonic()
        self._host.worker_id = secrets.token_urlsafe(12)
        self._directory.join(self._host.worker_id, member, self._seconds, self._host.report())
        self._until = begun + self._seconds

    def _run(self) -> None:
        while not self._stopped.wait(RENEW_S):
            try:
                self._renew()
            except DatabaseUnavailable as error:
                logger.warning("the worker's lease could not be renewed: %s", error)
            except Exception:
                logger.exception("the worker's lease could not be renewed")

    def _renew(self) -> None:
        assert self._loop is not None and self._member is not None
        begun = time.monotonic()  # before the database reads its clock, so that the lease ends here first
        state = self._directory.renew(self._host.worker_id, self._seconds, self._host.report())
        if state is WorkerState.DEAD:
            self._until = 0.0
            logger.warning("this worker was declared dead; it drops its sessions and joins again")
            asyncio.run_coroutine_threadsafe(self._host.drop_all(), self._loop).result()
            self._join(self._member)
            return
        self._until = begun + self._seconds
        self._host.library.refresh()
        if state is WorkerState.DRAINING:
            self._loop.call_soon_threadsafe(self._host.begin_handover, self._drain_s)


class LeaseGuard:
    """ASGI middleware: refuses requests that the worker may not serve, and drops answers after the lease has ended."""

    def __init__(self, app: ASGIApp, host: WorkerHost, tokens: TokenReader, lease: Lease) -> None:
        self._app, self._host, self._tokens, self._lease = app, host, tokens, lease

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket") or (scope["type"] == "http" and scope["path"] in OPEN):
            await self._app(scope, receive, send)
            return
        session_id = session_in(scope["path"])
        try:
            claims = await self._tokens.claims(authorization_of(scope))
            self._check(claims, session_id)
        except TelegradError as error:
            await _refuse(error, scope, receive, send)
            return
        if not claims.direct:
            for name, value in scope["headers"]:
                if name == b"x-forwarded-for":  # the gateway sets it
                    scope["client"] = value.decode("latin-1"), 0
        set_principal(scope, claims.principal)
        CREATION_KEY.set(claims.creation_key)  # each request has a task, and so a context, of its own
        with nullcontext() if claims.session is None else self._host.serving(claims.session):
            if claims.session is not None:
                try:
                    await self._host.take(claims.session, claims.epoch, claims.durable)
                except TelegradError as error:
                    await _refuse(error, scope, receive, send)
                    return
            await self._app(*self._guarded(scope, receive, send, claims.worker))

    def _check(self, claims: Claims, session_id: str | None) -> None:
        """Raise an error unless this worker may serve a request with these claims."""
        if claims.worker != self._host.worker_id:
            raise SessionMoved("another worker has answered here until now")
        if not self._lease.lasts(claims.worker):
            raise SessionMoved(LAPSED)
        if claims.version != __version__:
            raise ServerBusy(f"this worker has version {__version__}, and the gateway {claims.version}")
        if claims.session not in (session_id, None) or (claims.direct and claims.session is None):
            raise Unauthenticated(REFUSED + "for another session")

    def _guarded(self, scope: Scope, receive: Receive, send: Send, worker_id: str) -> tuple[Scope, Receive, Send]:
        """Wrap ``send`` and the stream extension, so that they drop answers if the lease has ended."""
        lasts = partial(self._lease.lasts, worker_id)
        prompt = scope.get("extensions", {}).get(PROMPT)
        if prompt is not None:
            guarded = {**prompt, ANSWER_WITH: _guarded_prompts(lasts, prompt[ANSWER_WITH])}
            scope = {**scope, "extensions": {**scope["extensions"], PROMPT: guarded}}
        return scope, receive, _guarded_answer(lasts, scope, receive, send)


def _guarded_answer(lasts: Lasts, scope: Scope, receive: Receive, send: Send) -> Send:
    ended = endless = False

    async def guarded(message: Message) -> None:
        nonlocal ended, endless
        kind = message["type"]
        if ended:
            return
        if kind in STARTS:
            if scope["type"] == "http" and not lasts():
                ended = True
                await refuse(ServerBusy(LAPSED, retry_after_s=RETRY_AFTER_S), {FENCED: LOST})(scope, receive, send)
                return
            _mark_moved(message)
            endless = all(name != b"content-length" for name, _ in message.get("headers", ()))
        elif kind == "websocket.send" and not lasts():
            message = {"type": "websocket.close", "code": GOING_AWAY, "reason": LAPSED}
        elif kind == "http.response.body" and endless and not lasts():
            ended, message = True, {"type": kind, "body": b"", "more_body": False}
        await send(message)

    return guarded


def _guarded_prompts(lasts: Lasts, answer_with: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``answer_with``, so that messages are answered on the event loop only while the lease is valid.

    The application gets the other messages. A message during which the lease ends is answered from the record there.
    """

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
    """Set the header that tells the gateway that the session has moved, if that is the answer.

    Without Retry-After, the request may have had an effect that the new owner has read from the journal.
    """
    request = REQUEST.get()
    if request is None or request.slug != SessionMoved.slug:
        return
    headers = [*start.get("headers", ())]
    known = MOVED if any(name == b"retry-after" for name, _ in headers) else LOST
    start["headers"] = [*headers, (FENCED.encode(), known.encode())]


def device_names() -> list[str]:
    """The names of devices that sessions may use here, with "cuda" and "gpu" if CuPy finds a GPU.

    This imports the libraries of all devices, which takes seconds.
    """
    here = available()
    names = {info.name for info in here} | {info.name.partition(":")[0] for info in here}
    return sorted(names | ({ANY_GPU} if any(info.is_gpu for info in here) else set()))


def run_worker(settings: WorkerSettings) -> None:
    """Serve as a worker until SIGINT or SIGTERM, then hand its sessions over to other workers.

    Raises CommandFailed if the settings or the database do not allow that, and TelegradError if the data folder cannot
    be used.
    """
    database = Database(settings.database_url.get_secret_value())
    directory = Directory(database)
    secrets = Secrets(database, settings.cluster_secret.get_secret_value())
    if settings.advertise is not None:
        parts = urlsplit(settings.advertise)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise NotServed(f"--advertise is an address such as http://10.0.0.7:8000, not {settings.advertise!r:.80}")
        settings = settings.model_copy(update={"allowed_host": [*settings.allowed_host, parts.hostname]})
    database.open()
    host = WorkerHost(settings, directory, secrets)
    host.discover()
    lease = Lease(directory, host, settings.worker_timeout_s, settings.drain_s)
    app = create_app(settings, host)
    app.add_middleware(LeaseGuard, host=host, tokens=TokenReader(secrets), lease=lease)
    devices = device_names()

    def announce(url: str) -> None:
        address = settings.advertise or url
        host.url = address
        lease.start(Member(address, __version__, devices, settings.data_dir is not None))
        logs.announce(f"Telegrad {__version__} is worker {host.worker_id} at {address}")

    try:
        serve(app, settings, announce)
    finally:
        lease.stop()
        database.close()
