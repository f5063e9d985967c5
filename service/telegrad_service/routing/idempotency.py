"""Idempotency keys, which make it safe to repeat the creation of something (draft-ietf-httpapi-idempotency-key-header).

A request that creates something may have the header ``Idempotency-Key``. If it is repeated with the same key, it gets
the first answer. Successful answers are kept in memory, by tenant and address, for ``KEPT_S`` seconds.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from telegrad_engine.errors import IdempotencyConflict, IdempotencyMismatch, InvalidArgument

from ..hosting.sequence import HEADER as SEQUENCE_HEADER
from ..hosting.sequence import SENDER_HEADER, digest_of
from ..http.limits import off_loop
from ..tenants.principal import principal_of

HEADER = "Idempotency-Key"
KEPT_S = 24 * 3600
MAX_ANSWERS = 1000
"""The number of answers that are kept for a tenant; the oldest are dropped."""
MAX_BYTES = 16 * 2**20
"""The bytes of these answers; the newest is always kept."""
MAX_TENANTS = 10_000
PATTERN = r"^[!-~]{1,255}$"
_KEY = re.compile(PATTERN[1:-1])
Key = tuple[str, str, str]


class _Entry(NamedTuple):
    digest: bytes
    since: float
    response: Response | None
    """None while the first request runs."""


class _Tenant:
    def __init__(self) -> None:
        self.entries: OrderedDict[Key, _Entry] = OrderedDict()
        self.bytes = 0


class IdempotencyKeys:
    """The answers to requests with a key."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()

    async def once(self, tenant: str, key: Key, digest: bytes, answer: Callable[[], Awaitable[Response]]) -> Response:
        """Return the kept answer to this key, or else call ``answer()`` and keep the result if it is a success.

        Raises IdempotencyMismatch if the key was used for another request, and IdempotencyConflict while the first one
        runs.
        """
        entries = self._of(tenant)
        self._drop_old(entries)
        found = entries.entries.get(key)
        if found is not None:
            if found.digest != digest:
                raise IdempotencyMismatch(f"{HEADER} {key[-1]!r:.60} was used for another request")
            if found.response is None:
                raise IdempotencyConflict(f"the first request with the {HEADER} {key[-1]!r:.60} has not been answered")
            return found.response
        entries.entries[key] = _Entry(digest, time.monotonic(), None)
        try:
            response = await answer()
        except BaseException:
            del entries.entries[key]
            raise
        if response.status_code >= 400:
            del entries.entries[key]
            return response
        entries.entries[key] = _Entry(digest, time.monotonic(), response)
        entries.bytes += len(response.body)
        return response

    def _of(self, tenant: str) -> _Tenant:
        entries = self._tenants.setdefault(tenant, _Tenant())
        self._tenants.move_to_end(tenant)
        if len(self._tenants) > MAX_TENANTS:
            self._tenants.popitem(last=False)
        return entries

    def _drop_old(self, tenant: _Tenant) -> None:
        """Drop answers that are too old, or too many; requests that run are not dropped."""
        oldest = time.monotonic() - KEPT_S
        for key, entry in list(tenant.entries.items()):
            full = len(tenant.entries) >= MAX_ANSWERS or tenant.bytes > MAX_BYTES
            if not full and entry.since > oldest:
                break
            if entry.response is not None:
                del tenant.entries[key]
                tenant.bytes -= len(entry.response.body)


async def once(request: Request, header: str, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Answer a request that has this Idempotency-Key."""
    key = _parsed(header)
    scope, principal = request.scope, principal_of(request)
    sequence = request.headers.get(SEQUENCE_HEADER), request.headers.get(SENDER_HEADER)
    kind = repr((request.url.query, scope.get("telegrad.content_type"), scope["telegrad.accept"], *sequence)).encode()
    body = scope.get("telegrad.body", b"")
    digest = digest_of(kind) + await off_loop(len(body), digest_of, body)
    keys: IdempotencyKeys = request.app.state.idempotency_keys
    address = request.method, request.url.path, key
    return await keys.once(principal.tenant, address, digest, lambda: answer(request))


def _parsed(header: str) -> str:
    """The key in a header, which may be in quotes (RFC 9651, 3.3.3). Raises InvalidArgument."""
    key = header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
    if _KEY.fullmatch(key) is None:
        raise InvalidArgument(f"an {HEADER} has 1 to 255 printable characters and no spaces, unlike {header!r:.80}")
    return key
