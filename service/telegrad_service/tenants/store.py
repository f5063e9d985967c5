"""The table of API keys. Its functions block, so they must not run on the event loop."""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import ForeignKey, LargeBinary, String, insert, select, update
from sqlalchemy.orm import Mapped, mapped_column

from telegrad_engine.errors import InvalidValue

from ..database import Base, Database, DatabaseUnavailable, execute_unless_taken
from .principal import ANYONE, ID_PATTERN, SCOPES, Principal, Scope, key_digest, new_key, with_implied

logger = logging.getLogger(__name__)
TENANT_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_TENANT = re.compile(TENANT_PATTERN, re.ASCII)
_ID = re.compile(ID_PATTERN, re.ASCII)
MAX_EXPIRES_DAYS = 36_500
USE_NOTED_S = 60
"""Seconds between two updates of a key's last use, each of which is a write."""


class Tenant(Base):
    """A tenant, which owns sessions."""

    __tablename__ = "tenants"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    created_at: Mapped[datetime]


class ApiKey(Base):
    """A key without its secret."""

    __tablename__ = "api_keys"

    number: Mapped[int] = mapped_column(primary_key=True)
    """Keys are numbered in the order of their creation."""
    id: Mapped[str] = mapped_column(String(12), unique=True)
    tenant: Mapped[str] = mapped_column(String(63), ForeignKey("tenants.name"), index=True)
    name: Mapped[str | None] = mapped_column(String(200))
    digest: Mapped[bytes] = mapped_column(LargeBinary(32))
    scopes: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]

    @property
    def scope_list(self) -> list[Scope]:
        """The scopes that it was created with, sorted."""
        return sorted(scope for scope in SCOPES if scope in self.scopes.split())

    @property
    def principal(self) -> Principal:
        """The principal of a request with this key."""
        return Principal(self.tenant, self.id, with_implied(self.scope_list))

    @property
    def status(self) -> str:
        """Whether it is "active", "revoked" or "expired"."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if self.expires_at is None or now() < self.expires_at else "expired"


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


class KeyStore:
    """The keys in a database. Methods raise DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __str__(self) -> str:
        return str(self._database)

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.close()

    def create(
        self, tenant: str, scopes: Iterable[str], expires_days: float | None = None, name: str | None = None
    ) -> tuple[ApiKey, str]:
        """Create a key, and its tenant if that is new. Return it and its text, which is not stored.

        Raises InvalidValue for a name, scopes or a time that are not possible.
        """
        granted = _checked(tenant, scopes, expires_days)
        if name is not None and not name.isprintable():
            raise InvalidValue("the name of a key has printable characters only")
        created, made = new_key(), now()
        key = ApiKey(
            id=created.id,
            tenant=tenant,
            name=name,
            digest=key_digest(created.text),
            scopes=" ".join(granted),
            created_at=made,
            expires_at=None if expires_days is None else made + timedelta(days=expires_days),
        )
        with self._database.transaction(writes=True) as session:
            if session.get(Tenant, tenant) is None:  # or another process adds it
                execute_unless_taken(session, insert(Tenant).values(name=tenant, created_at=made))
            session.add(key)
        return key, created.text

    def has_any(self) -> bool:
        """Whether there is any key, valid or not."""
        with self._database.transaction() as session:
            return session.scalar(select(ApiKey.number).limit(1)) is not None

    def list(self, tenant: str | None = None) -> Sequence[ApiKey]:
        """The keys of a tenant, by default of all tenants, in the order of their creation."""
        query = select(ApiKey).order_by(ApiKey.number)
        if tenant is not None:
            query = query.where(ApiKey.tenant == tenant)
        with self._database.transaction() as session:
            return session.scalars(query).all()

    def find(self, key_id: str, tenant: str | None = None) -> ApiKey | None:
        """The key with a public id, of the given tenant or by default of any tenant."""
        if not _ID.match(key_id):  # PostgreSQL does not accept every text
            return None
        with self._database.transaction() as session:
            key = session.scalar(select(ApiKey).where(ApiKey.id == key_id))
        return key if key is not None and tenant in (None, key.tenant) else None

    def verified(self, key_id: str, text: str) -> ApiKey | None:
        """The key with a public id, if this is its text. Updates its last use about once a minute."""
        key = self.find(key_id)
        if key is None or not hmac.compare_digest(key.digest, key_digest(text)):
            return None
        if key.status == "active" and (
            key.last_used_at is None or now() - key.last_used_at > timedelta(seconds=USE_NOTED_S)
        ):
            try:
                with self._database.transaction(writes=True) as session:
                    session.execute(update(ApiKey).where(ApiKey.id == key_id).values(last_used_at=now()))
            except DatabaseUnavailable as error:  # it may be possible to read the database, but not to write to it
                logger.warning("the use of key %s could not be noted: %s", key_id, error)
        return key

    def revoke(self, key_id: str, tenant: str | None = None) -> bool:
        """Revoke a key for good. Return whether there is a key with this id, in the given tenant."""
        if self.find(key_id, tenant) is None:
            return False
        valid = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
        with self._database.transaction(writes=True) as session:
            session.execute(valid.values(revoked_at=now()))
        return True


def _checked(tenant: str, scopes: Iterable[str], expires_days: float | None) -> list[str]:
    """The scopes, sorted. Raises InvalidValue."""
    if not _TENANT.fullmatch(tenant):
        raise InvalidValue(
            f"not a tenant's name: {tenant!r:.70}; one has at most 63 lower-case letters, digits and . _ -"
        )
    if tenant == ANYONE.tenant:
        raise InvalidValue(f"{tenant!r} is the tenant of servers without keys; choose another name")
    granted = sorted(set(scopes))
    unknown = [scope for scope in granted if scope not in SCOPES]
    if unknown or not granted:
        given = f"unknown scope {unknown[0]!r:.40}" if unknown else "a key needs a scope"
        raise InvalidValue(f"{given}; the scopes are {', '.join(sorted(SCOPES))}")
    if expires_days is not None and not 0 < expires_days <= MAX_EXPIRES_DAYS:
        raise InvalidValue(f"a key expires after more than 0 and at most {MAX_EXPIRES_DAYS} days, not {expires_days:g}")
    return granted
