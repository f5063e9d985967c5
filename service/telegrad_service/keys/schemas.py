"""Schemas of API keys."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints
from typing_extensions import TypeAliasType

from ..routing.pages import Page
from ..routing.schemas import Answer, Request
from ..tenants.keys import ID_PATTERN
from ..tenants.principal import Scope

if TYPE_CHECKING:
    from ..tenants.store import ApiKey

KeyScope = TypeAliasType("KeyScope", Scope)
KeyId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
NAME = "A name for people; need not be unique."


class KeyCreate(Request):
    """A new key."""

    name: Annotated[str, StringConstraints(max_length=200)] | None = Field(default=None, description=NAME)
    scopes: list[KeyScope] = Field(
        min_length=1,
        max_length=16,
        description="What it allows: `read` (to read), `sessions` (to create and use sessions; includes `read`), "
        "`functions` (to register functions of sessions), `admin` (functions of the server, and the tenant's keys).",
    )
    expires_days: float | None = Field(
        default=None, gt=0, le=36_500, allow_inf_nan=False, description="Days until it expires; null is never."
    )


class Key(Answer):
    """A key without its secret."""

    id: KeyId = Field(description="The public part of the key.", examples=["0a1B2c3D4e5F"])
    tenant: str = Field(description="Whose sessions it gives access to.", examples=["research"])
    name: str | None = Field(description=NAME, examples=["trainer"])
    scopes: list[KeyScope] = Field(description="What it allows.", examples=[["sessions"]])
    status: Literal["active", "expired", "revoked"] = Field(examples=["active"])
    created_at: datetime = Field(examples=["2026-01-01T12:00:00Z"])
    expires_at: datetime | None = Field(examples=[None])
    revoked_at: datetime | None = Field(examples=[None])
    last_used_at: datetime | None = Field(description="Within a minute or so.", examples=[None])


class KeyCreated(Key):
    """A new key, with its secret."""

    key: str = Field(description="The key itself. It is not stored, and not shown again.", examples=["tg_…"])


class KeyPage(Page[Key]):
    """Keys, oldest first."""


def described(key: ApiKey) -> dict[str, Any]:
    """The fields of a key's description."""
    same = ("id", "tenant", "name", "status", "created_at", "expires_at", "revoked_at", "last_used_at")
    return {**{name: getattr(key, name) for name in same}, "scopes": key.scope_list}
