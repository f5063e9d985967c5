"""Short-lived signed tokens (JWT) with which gateways authorize requests to workers.

A token has the principal of the request, the session and its epoch, and the worker that may serve it. It is signed with
the secret in the settings, or else with one in the database, which all processes of a cluster share.
"""

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
"""The age at which a secret is replaced. It still verifies tokens for the same time."""
MIN_SECRET = 32
"""The minimum length of a secret in the settings."""
OPERATOR = "operator"
"""The id of the secret in the settings."""
FENCED, MOVED, LOST = "telegrad-fenced", "moved", "lost"
"""The header of an answer that tells the gateway why the worker did not serve a request, and its values: another worker
has the session, and the effect of the request if it had one; or whether the request had an effect is unknown."""
MAX_KNOWN = 4096
"""The number of verified tokens that are cached."""
MISSING = "a worker serves what a gateway sends it, and direct requests with a session's token"
CLOCK_SKEW_S = 30.0
"""Seconds by which the clock of a gateway may differ from this machine's."""
SESSION = re.compile(r"/v1/sessions/([^/]+)")
NOT_SESSIONS = frozenset({"import"})
REFUSED = "a worker serves what a gateway sends it; this request's token is "


class ClusterSecret(Base):
    """A secret for signing tokens."""

    __tablename__ = "cluster_secrets"

    number: Mapped[int] = mapped_column(primary_key=True)
    secret: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime]


class Claims(NamedTuple):
    """The content of a token."""

    principal: Principal
    worker: str
    """The id of the worker that may serve the request."""
    version: str
    """The version of the process that made the token."""
    session: str | None = None
    """The id of the session that the request is for, if any."""
    epoch: int = 0
    """The epoch of the session on that worker."""
    durable: bool = False
    """Whether the session can be loaded from the data folder."""
    creation_key: str | None = None
    """The digest of the Idempotency-Key of a request that creates a session."""
    direct: bool = False
    """Whether a client uses the token itself, so that headers about the request's origin are not trusted."""


class Secrets:
    """The secrets of a cluster. The newest one signs tokens; older ones verify them. Raises DatabaseUnavailable."""

    def __init__(self, database: Database, own: str = "") -> None:
        """``own`` is the secret in the settings, if there is one. Raises InvalidValue if it is too short."""
        if 0 < len(own) < MIN_SECRET:
            raise InvalidValue(f"the cluster's secret has at least {MIN_SECRET} characters")
        self._database = database
        self._own = own
        self._known: dict[str, str] = {OPERATOR: own} if own else {}

    def newest(self) -> tuple[str, str]:
        """The id and the text of the secret that signs tokens. If it is missing or too old, a new one is made."""
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
        """The secret with this id; None if it is unknown or was deleted."""
        if secret_id in self._known or self._own or not secret_id.isdecimal() or len(secret_id) > 9:
            return self._known.get(secret_id)
        with self._database.transaction() as session:
            found = session.get(ClusterSecret, int(secret_id))
        if found is not None:
            self._known[secret_id] = found.secret
        return None if found is None else found.secret


def sign(claims: Claims, secret_id: str, secret: str, seconds: float = TOKEN_S) -> str:
    """A token that is valid for ``seconds`` seconds."""
    now, (tenant, key, scopes) = time.time(), claims.principal
    payload = {**claims._asdict(), "principal": [tenant, key, sorted(scopes)]}
    payload |= {"iat": int(now), "exp": int(now + seconds)}
    return jwt.encode(payload, secret, ALGORITHM, headers={"kid": secret_id})


def session_in(path: str) -> str | None:
    """The id of the session in a path, if there is one."""
    found = SESSION.match(path)
    return None if found is None or found[1] in NOT_SESSIONS else found[1]


class TokenReader:
    """Verifies the tokens of requests to a worker, and caches their claims."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._known: LRU[bytes, tuple[Claims, float]] = LRU(MAX_KNOWN)
        """The claims and the expiry times of tokens, by the tokens' digests."""

    async def claims(self, header: bytes | None) -> Claims:
        """The claims of the token in an Authorization header.

        Raises Unauthenticated, and ServerBusy if the database cannot be read.
        """
        token = bearer_in(header, MISSING)
        digest = sha256(token.encode()).digest()
        known: tuple[Claims, float] | None = self._known.get(digest)
        if known is None or time.time() > known[1]:
            known = self._known[digest] = await guarded(self._verified, token)
        return known[0]

    def _verified(self, token: str) -> tuple[Claims, float]:
        """The claims and the expiry time of a token. Raises Unauthenticated."""
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
