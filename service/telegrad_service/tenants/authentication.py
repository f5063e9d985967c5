"""Authenticates HTTP requests and WebSockets before any of the body is read.

Each route checks the principal's scopes (``routing/route.py``), also before it reads the body.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from telegrad_engine.errors import MalformedRequest, ServerBusy, TelegradError, Unauthenticated
from telegrad_engine.lru import LRU

from ..http.origins import refuse
from ..settings import NetworkSettings, default_database_path, sqlite_file
from .principal import ANYONE, NOBODY, SCOPE_KEY, Principal, key_id_of, set_principal

if TYPE_CHECKING:
    from .store import ApiKey, KeyStore  # a server without keys does not import the database's libraries

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
TTL_S = 2.0
"""Seconds for which a look-up is valid, so that a revoked key stops working soon."""
RENEWAL_S = 1.0
"""Seconds before the end of its validity at which a look-up is renewed, so that no request waits for that."""
MAX_KNOWN = 4096
"""The number of keys whose look-ups are cached."""
MAX_LOOKUPS = 4
"""The number of simultaneous look-ups: invalid keys must not occupy all threads."""
BEARER, BASIC = b"bearer ", b"basic "
MISSING = "this server needs an API key: send it in the header `Authorization: Bearer tg_…`"
UNKNOWN = "the API key is unknown here; is it a key of another server?"
PUBLIC = frozenset({"/", "/healthz", "/readyz", "/docs", "/redoc", "/openapi.json", "/asyncapi.json"})
"""Paths that need no key."""
ASSETS = ("/docs/", "/redoc/", "/console/")
"""The prefixes of the paths of files that pages consist of, which need no key."""
CHALLENGE = {"www-authenticate": 'Bearer realm="telegrad"'}
ORIGIN_OF_KEYS = (
    "The server's operator makes keys with `telegrad keys create --tenant NAME`; the SDK takes one as api_key=…, or as "
    "TELEGRAD_API_KEY"
)


class _Known(NamedTuple):
    """The result of a look-up."""

    until: float
    """The monotonic time until which the result is valid."""
    principal: Principal | None = None
    expires_at: float | None = None
    """The time at which the key expires."""
    refusal: str = ""
    """Why there is no principal."""


class Authenticator:
    """Authenticates by API keys. Unless flags say otherwise, no request needs a key until the database has one."""

    def __init__(self, settings: NetworkSettings) -> None:
        self._settings = settings
        self.required = settings.require_keys is True
        """Whether every request needs a key. It never becomes false again."""
        self._store: KeyStore | None = None
        self._database = ""
        """The database's URL without its password, once it was opened; empty for the default database."""
        self._checked_at = -TTL_S
        """When the database was last checked for a first key."""
        self._known: LRU[bytes, _Known] = LRU(MAX_KNOWN)
        self._lookups: dict[bytes, asyncio.Task[_Known]] = {}
        self._room = asyncio.Semaphore(MAX_LOOKUPS)
        self._watched: dict[object, tuple[Principal, Callable[[], None]]] = {}

    def look_for_keys(self) -> bool:
        """Return whether keys are required, by the flags or by the keys in the database, if it exists.

        Blocks. Raises DatabaseUnavailable.
        """
        if not self._settings.serves_anyone:
            store, was_required = self.open_store(), self.required
            self.required = was_required or (store is not None and store.has_any())
            if self.required and not was_required and self._checked_at > 0:
                logger.warning("there is a first key. %s", self.policy)
        self._checked_at = monotonic()
        return self.required

    @property
    def policy(self) -> str:
        """Tells the operator whether requests need a key, and why."""
        if self._settings.serves_anyone:
            flag = "--insecure" if self._settings.insecure else "--no-require-keys"
            return (
                f"No API key is required, whatever the database holds ({flag}): anyone who gets here may use the server"
            )
        where = f"the database {self._database or default_database_path()}"
        if self.required:
            return f"An API key is required, from {where}; `telegrad keys` makes and lists them"
        return f"No API key is required while {where} holds none"

    def open_store(self) -> KeyStore | None:
        """The store of keys, or None if the database does not exist yet. Blocks. Raises DatabaseUnavailable."""
        if self._store is None:
            url = self._settings.database_url.get_secret_value()
            if (file := sqlite_file(url)) is not None and not file.exists():
                self._database = url
                return None  # without SQLAlchemy, which takes as long to import as the engine
            from ..database import Database
            from .store import KeyStore

            database = Database(url)
            self._database = str(database)
            database.open()
            self._store = KeyStore(database)
        return self._store

    def close(self) -> None:
        """Close the connections to the database. Blocks."""
        if self._store is not None:
            self._store.close()

    def remembered(self, header: bytes | None) -> Principal | None:
        """The principal for an Authorization header, if it is known without a look-up."""
        if not self.required:
            return ANYONE if monotonic() - self._checked_at < 2 * TTL_S else None  # watch_forever looks every TTL_S
        if header is None:
            return None
        digest = sha256(header).digest()
        known: _Known | None = self._known.get(digest)
        if known is None or known.principal is None or not _is_current(known):
            return None
        if known.until - monotonic() < RENEWAL_S and digest not in self._lookups:
            text = key_in(header)
            self._begin_look_up(digest, key_id_of(text), text)
        return known.principal

    async def principal(self, header: bytes | None) -> Principal:
        """The principal for an Authorization header.

        Raises Unauthenticated, and ServerBusy if the database cannot be read.
        """
        if not self.required:
            await self._guarded(self.look_for_keys)
            if not self.required:
                return ANYONE
        text = key_in(header)
        key_id = key_id_of(text)
        digest = sha256(header or b"").digest()
        known: _Known | None = self._known.get(digest)
        if known is None or not _is_current(known):
            known = await asyncio.shield(self._lookups.get(digest) or self._begin_look_up(digest, key_id, text))
        if known.principal is None:
            raise Unauthenticated(known.refusal)
        return known.principal

    def _begin_look_up(self, digest: bytes, key_id: str, text: str) -> asyncio.Task[_Known]:
        """Look a key up in the background, and cache the result."""
        task = self._lookups[digest] = asyncio.create_task(self._look_up(key_id, text))
        known, lookups = self._known, self._lookups  # forget() replaces these

        def finish(task: asyncio.Task[_Known]) -> None:
            lookups.pop(digest, None)
            if not task.cancelled() and task.exception() is None:  # an exception is in the log
                known[digest] = task.result()

        task.add_done_callback(finish)
        return task

    async def _look_up(self, key_id: str, text: str) -> _Known:
        until = monotonic() + TTL_S
        key = await self._guarded(self._key, key_id, text)
        if key is None:
            return _Known(until, refusal=UNKNOWN)
        if key.status != "active":
            return _Known(until, refusal=f"the API key {key_id} is {key.status}")
        return _Known(until, key.principal, None if key.expires_at is None else key.expires_at.timestamp())

    def _key(self, key_id: str, text: str | None = None) -> ApiKey | None:
        """The key with this id, if there is one and, where ``text`` is given, this is its text."""
        store = self.open_store()
        if store is None:
            return None
        return store.find(key_id) if text is None else store.verified(key_id, text)

    async def _guarded(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the store on a thread. Raises ServerBusy if the database cannot be used."""
        async with self._room:
            try:
                return await asyncio.to_thread(function, *args, **kwargs)
            except TelegradError:
                raise
            except Exception as error:
                logger.error("API keys cannot be looked up: %s: %s", type(error).__name__, error)
                raise ServerBusy("API keys cannot be looked up now; the server's log says why") from error

    def forget(self) -> None:
        """Drop all look-ups, including those in progress, because keys have changed."""
        self._known, self._lookups = LRU(MAX_KNOWN), {}

    # Streams and other long responses -------------------------------------------------------

    @contextmanager
    def watching(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Within the block, call ``end`` once if the principal's key is no longer valid."""
        mark = object()
        self._watched[mark] = principal, end
        try:
            yield
        finally:
            self._watched.pop(mark, None)

    async def watch_forever(self) -> None:
        """Every ``TTL_S`` seconds, end what is watched and has no valid key any more."""
        while True:
            await asyncio.sleep(TTL_S)
            try:
                if not self.required:
                    await self._guarded(self.look_for_keys)
                await self._end_invalid()
            except ServerBusy:
                pass  # it is in the log; streams stay open while the database is out of reach
            except Exception:
                logger.exception("looking for revoked keys failed")

    async def _end_invalid(self) -> None:
        for key_id in {principal.key for principal, _ in self._watched.values()}:
            if await self._is_valid(key_id):
                continue
            for mark, (principal, end) in list(self._watched.items()):
                if principal.key == key_id and self._watched.pop(mark, None) is not None:
                    end()

    async def _is_valid(self, key_id: str | None) -> bool:
        if key_id is None:
            return not self.required
        key = await self._guarded(self._key, key_id)
        return key is not None and key.status == "active"


def _is_current(known: _Known) -> bool:
    return monotonic() < known.until and (known.expires_at is None or time.time() < known.expires_at)


def key_in(header: bytes | None) -> str:
    """The key in an Authorization header. Raises Unauthenticated.

    It is also taken as the password of any user, because clients that can set no header send what is in their URL.
    """
    if header is None or header[: len(BASIC)].lower() != BASIC:
        return bearer_in(header, MISSING)
    try:
        _, colon, password = b64decode(header[len(BASIC) :].strip(), validate=True).partition(b":")
    except binascii.Error:
        raise Unauthenticated(MISSING) from None
    if not colon:
        raise Unauthenticated(MISSING)
    return password.decode("latin-1")


def bearer_in(header: bytes | None, missing: str) -> str:
    """The key or the token in an Authorization header. Raises Unauthenticated with the text ``missing``."""
    if header is None or header[: len(BEARER)].lower() != BEARER:
        raise Unauthenticated(missing)
    return header[len(BEARER) :].strip().decode("latin-1")


def authorization_of(scope: Scope) -> bytes | None:
    """The Authorization header of a request. Raises MalformedRequest if it has several."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) > 1:
        raise MalformedRequest("a request has one Authorization header")
    return found[0] if found else None


def is_public(path: str) -> bool:
    """Whether requests for a path need no key."""
    return path in PUBLIC or path.startswith(ASSETS)


class Authentication:
    """ASGI middleware that sets the principal of requests, and refuses those without a valid key if they need one.

    A request that already has a principal passes.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket") or SCOPE_KEY in scope:
            await self._app(scope, receive, send)
            return
        try:
            principal = await self._principal(scope)
        except Unauthenticated as error:
            await refuse(Unauthenticated(f"{error}. {ORIGIN_OF_KEYS}"), CHALLENGE)(scope, receive, send)
            return
        except TelegradError as error:
            await refuse(error)(scope, receive, send)
            return
        set_principal(scope, principal)
        await self._app(scope, receive, send)

    async def _principal(self, scope: Scope) -> Principal:
        header = authorization_of(scope)
        known = self._authenticator.remembered(header)
        if known is not None:
            return known
        if scope["type"] == "http" and is_public(scope["path"]):
            return NOBODY
        return await self._authenticator.principal(header)
