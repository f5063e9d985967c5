"""Short-lived signed tokens (JWT), in which gateways tell workers what they may serve.

A token says who makes the request, for which session and epoch, and which worker may serve it. Its secret is the one of
the settings, or one in the database: every process of a cluster uses the same ones."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

import jwt
from sqlalchemy import String, delete, select
from sqlalchemy.orm import Mapped, mapped_column

from telegrad_engine.errors import InvalidValue, Unauthenticated
from telegrad_engine.lru import LRU

from ..database import Base, Database
from ..tenants.authentication import bearer_in
from ..tenants.principal import SCOPES, Principal
from .directory import guarded

ALGORITHM = "HS256"
TOKEN_S = 300
"""Seconds for which a token is valid."""
ROTATION = timedelta(days=1)
"""The age at which a secret signs no more. It verifies tokens for as long again."""
MIN_SECRET = 32
"""The fewest characters of a secret in the settings."""
OPERATOR = "operator"
"""The id of the secret of the settings."""
FENCED, MOVED, LOST = "telegrad-fenced", "moved", "lost"
"""The header by which a worker tells the gateway that it may not serve a request, and its values: the session is at
another worker, and the request had no effect, or had one that is there, too; or it is unknown what became of it."""
MAX_KNOWN = 4096
"""The number of verified tokens that are remembered."""
MISSING = "a worker serves what a gateway sends it, and direct requests with a session's token"
CLOCK_SKEW_S = 30.0
"""Seconds by which the clock of a gateway may differ from this machine's."""
SESSION = re.compile(r"/v1/sessions/([^/]+)")
NOT_SESSIONS = frozenset({"import"})
REFUSED = "a worker serves what a gateway sends it; this request's token is "


class ClusterSecret(Base):
    """A secret that signs"""

    __tablename__ = "cluster_secrets"

    number: Mapped[int] = mapped_column(primary_key=True)
    secret: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime]


class Claims(NamedTuple):
    """What a token says."""

    principal: Principal
    worker: str
    """The id of the worker that may serve the request."""
    version: str
    """The version of who made the token."""
    session: str | None = None
    """The id of the session that the request is for; None if it is for none."""
    epoch: int = 0
    """The epoch under which the worker has that session."""
    durable: bool = False
    """Whether the session can be loaded from the data folder."""
    creation_key: str | None = None
    """The digest of the Idempotency-Key with which a session is created."""
    direct: bool = False
    """Whether a client has the token itself, and so may say nothing about where the request comes from."""


class Secrets:
    """The secrets of a cluster: the newest signs, and older ones still verify. Raises DatabaseUnavailable."""

    def __init__(self, database: Database, own: str = "") -> None:
        """``own`` is the secret of the settings, if there is one. Raises InvalidValue if it is too short."""
        if 0 < len(own) < MIN_SECRET:
            raise InvalidValue(f"the cluster's secret has at least {MIN_SECRET} characters")
        self._database = database
        self._own = own
        self._known: dict[str, str] = {OPERATOR: own} if own else {}

    def newest(self) -> tuple[str, str]:
        """The id and the text of the secret that signs. A new one is made if there is none, or it is too old."""
        if self._own:
            return OPERATOR, self._own
        now = datetime.now(UTC)
        with self._database.transaction() as session:
            found = session.scalar(select(ClusterSecret).order_by(ClusterSecret.number.desc()).limit(1))
        if found is None or found.created_at < now - ROTATION:
            found = ClusterSecret(secret=secrets.token_urlsafe(48), created_at=now)
            with self._database.transaction(writes=True) as session:
                session.add(found)
                session.execute(delete(ClusterSecret).where(ClusterSecret.created_at < now - 2 * ROTATION))
        self._known[str(found.number)] = found.secret
        return str(found.number), found.secret

    def find(self, secret_id: str) -> str | None:
        """The secret of this id; None if there is none any more."""
        if secret_id in self._known or self._own or not secret_id.isdecimal() or len(secret_id) > 9:
            return self._known.get(secret_id)
        with self._database.transaction() as session:
            found = session.get(ClusterSecret, int(secret_id))
        if found is not None:
            self._known[secret_id] = found.secret
        return None if found is None else found.secret


def sign(claims: Claims, secret_id: str, secret: str, seconds: float = TOKEN_S) -> str:
    """A token that is valid from now on for some seconds."""
    now, (tenant, key, scopes) = time.time(), claims.principal
    payload = {**claims._asdict(), "principal": [tenant, key, sorted(scopes)]}
    payload |= {"iat": int(now), "exp": int(now + seconds)}
    return jwt.encode(payload, secret, ALGORITHM, headers={"kid": secret_id})


def session_in(path: str) -> str | None:
    """The id of the session that a path is about."""
    found = SESSION.match(path)
    return None if found is None or found[1] in NOT_SESSIONS else found[1]


class TokenReader:
    """Reads the tokens of requests to a worker, and remembers those that it has verified."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._known: LRU[bytes, tuple[Claims, float]] = LRU(MAX_KNOWN)
        """The claims of tokens, and the times at which they expire, by the digests of the headers."""

    async def claims(self, header: bytes | None) -> Claims:
        """The claims of the token in an Authorization header. Raises Unauthenticated, and ServerBusy if the database
        cannot be read."""
        token = bearer_in(header, MISSING)
        digest = sha256(token.encode()).digest()
        known: tuple[Claims, float] | None = self._known.get(digest)
        if known is None or time.time() > known[1]:
            known = self._known[digest] = await guarded(self._verified, token)
        return known[0]

    def _verified(self, token: str) -> tuple[Claims, float]:
        """The claims of a token, and the time at which it expires. Raises Unauthenticated."""
        try:
            secret = self._secrets.find(str(jwt.get_unverified_header(token).get("kid", "")))
        except jwt.InvalidTokenError:
            raise Unauthenticated(REFUSED + "none") from None
        if secret is None:
            raise Unauthenticated(REFUSED + "signed by nobody that is known here")
        try:
            found: Mapping[str, Any] = jwt.decode(
                token, secret, [ALGORITHM], options={"require": ["exp"]}, leeway=CLOCK_SKEW_S
            )
            tenant, key, scopes = found["principal"]
            claims = Claims(**{name: found[name] for name in Claims._fields})
            principal = Principal(tenant, key, SCOPES & frozenset(scopes))
            return claims._replace(principal=principal), float(found["exp"]) + CLOCK_SKEW_S
        except jwt.ExpiredSignatureError:
            text = "expired, or the gateway's clock is minutes behind this machine's"
        except jwt.ImmatureSignatureError:
            text = f"of a time to come: the gateway's clock is more than {CLOCK_SKEW_S:.0f} s ahead of this machine's"
        except (jwt.InvalidTokenError, KeyError, TypeError, ValueError):
            text = "not valid"
        raise Unauthenticated(REFUSED + text)
