"""The authenticator of a worker: who makes a request is what the gateway's token says."""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from typing import NamedTuple

from starlette.types import Scope
from typing_extensions import override

from telegrad_engine.errors import MalformedRequest, Unauthenticated
from telegrad_engine.lru import LRU

from ..settings import NetworkSettings
from ..tenants.authenticator import SCHEME, Authenticator
from ..tenants.principal import Principal
from . import tokens
from .directory import guarded
from .tokens import Claims, Secrets

MAX_KNOWN = 4096
"""The number of verified tokens that are remembered."""
MISSING = "a worker serves what a gateway sends it, and direct requests with a session's token"
CLOCK_SKEW_S = 30.0
"""Seconds by which the clock of a gateway may differ from this machine's."""


class _Known(NamedTuple):
    claims: Claims
    until: float
    """The time at which the token expires."""


def authorization_of(scope: Scope) -> bytes | None:
    """The Authorization header of a request. Raises MalformedRequest if it has several."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) > 1:
        raise MalformedRequest("a request has one Authorization header")
    return found[0] if found else None


class TokenAuthenticator(Authenticator):
    """Takes tokens of gateways, and API keys for what a worker serves without a token."""

    def __init__(self, settings: NetworkSettings, secrets: Secrets) -> None:
        super().__init__(settings)
        self._secrets = secrets
        self._tokens: LRU[bytes, _Known] = LRU(MAX_KNOWN)

    async def claims(self, header: bytes | None) -> Claims:
        """The claims of the token in an Authorization header. Raises Unauthenticated, and ServerBusy if the database
        cannot be read."""
        known = self._remembered(header)
        if known is not None:
            return known.claims
        if header is None or header[: len(SCHEME)].lower() != SCHEME:
            raise Unauthenticated(MISSING)
        token = header[len(SCHEME) :].strip().decode("latin-1")
        secret_id = tokens.secret_id_of(token)
        secret = self._secrets.known(secret_id) or await guarded(self._secrets.find, secret_id)
        if secret is None:
            raise Unauthenticated(tokens.REFUSED + "signed by nobody that is known here")
        claims, expires = await asyncio.to_thread(tokens.read, token, secret, CLOCK_SKEW_S)
        self._tokens[sha256(header).digest()] = _Known(claims, expires + CLOCK_SKEW_S)
        return claims

    def _remembered(self, header: bytes | None) -> _Known | None:
        known: _Known | None = None if header is None else self._tokens.get(sha256(header).digest())
        return known if known is not None and time.time() < known.until else None

    @override
    def remembered(self, header: bytes | None) -> Principal | None:
        known = self._remembered(header)
        return super().remembered(header) if known is None else known.claims.principal
