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
from telegrad_engine.lru import LRU

from ..hosting.sequence import HEADER as SEQUENCE_HEADER
from ..hosting.sequence import SENDER_HEADER, digest_of
from ..http.limits import off_loop
from ..tenants.principal import principal_of

HEADER = "Idempotency-Key"
KEPT_S = 24 * 3600
MAX_ANSWERS = 1000
"""The number of answers that are kept for a tenant; the oldest are dropped."""
MAX_BYTES = 16 * 2**20
"""The bytes of a tenant's answers that are kept. The newest answer is always kept."""
KEPT_TENANTS = 10_000
"""The minimum number of tenants whose answers are kept; the maximum is twice that."""
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
        self._tenants: LRU[str, _Tenant] = LRU(KEPT_TENANTS)

    async def once(self, request: Request, header: str, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        """Return the kept answer for an Idempotency-Key, or else ``answer(request)``, which is kept if it succeeds.

        Raises InvalidArgument for an invalid key, IdempotencyMismatch if the key was used for another request, and
        IdempotencyConflict while the first request runs.
        """
        # A key may be in quotes (RFC 9651, 3.3.3).
        text = header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
        if _KEY.fullmatch(text) is None:
            raise InvalidArgument(f"an {HEADER} has 1 to 255 printable characters and no spaces, unlike {header!r:.80}")
        scope, headers = request.scope, request.headers
        media_types = scope.get("telegrad.content_type"), scope["telegrad.accept"]
        kind = repr((request.url.query, *media_types, headers.get(SEQUENCE_HEADER), headers.get(SENDER_HEADER)))
        body = scope.get("telegrad.body", b"")
        digest = digest_of(kind.encode()) + await off_loop(len(body), digest_of, body)
        tenant = self._of(principal_of(request).tenant)
        key = request.method, request.url.path, text
        found = tenant.entries.get(key)
        if found is not None:
            if found.digest != digest:
                raise IdempotencyMismatch(f"{HEADER} {text!r:.60} was used for another request")
            if found.response is None:
                raise IdempotencyConflict(f"the first request with the {HEADER} {text!r:.60} has not been answered")
            return found.response
        tenant.entries[key] = _Entry(digest, time.monotonic(), None)
        try:
            response = await answer(request)
        except BaseException:
            del tenant.entries[key]
            raise
        if response.status_code >= 400:
            del tenant.entries[key]
            return response
        tenant.entries[key] = _Entry(digest, time.monotonic(), response)
        tenant.bytes += len(response.body)
        return response

    def _of(self, name: str) -> _Tenant:
        """The answers for a tenant, after old ones are dropped. Running requests are not dropped."""
        tenant: _Tenant | None = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant()
        oldest = time.monotonic() - KEPT_S
        for key, entry in list(tenant.entries.items()):
            full = len(tenant.entries) >= MAX_ANSWERS or tenant.bytes > MAX_BYTES
            if not full and entry.since > oldest:
                break
            if entry.response is not None:
                del tenant.entries[key]
                tenant.bytes -= len(entry.response.body)
        return tenant
