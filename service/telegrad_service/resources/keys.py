"""``/v1/keys``: the API keys of the tenant of the key that a request has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Path, Response
from fastapi import Request as HTTPRequest
from pydantic import Field, StringConstraints
from typing_extensions import TypeAliasType

from telegrad_engine.errors import MissingScope, ServerBusy, UnknownResource

from ..routing.dependencies import CurrentPrincipal
from ..routing.route import Route, route_options
from ..routing.schemas import Answer, Page, Paged, Request
from ..tenants.principal import ID_PATTERN, Scope

if TYPE_CHECKING:
    from ..tenants.store import ApiKey, KeyStore

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=Route)
KeyInPath = Annotated[str, Path(description="The key's public id.", examples=["0a1B2c3D4e5F"])]
T = TypeVar("T")
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


def _described(key: ApiKey) -> dict[str, Any]:
    """The members of :class:`Key`."""
    same = {name: getattr(key, name) for name in Key.model_fields.keys() - {"scopes"}}
    return {**same, "scopes": key.scope_list}


@router.post("", status_code=201, summary="Create an API key")
@route_options(scope="admin")
async def create_key(
    request: HTTPRequest, response: Response, principal: CurrentPrincipal, body: KeyCreate
) -> KeyCreated:
    """A key of the same tenant. The response has the key itself, which is shown only once.

    A server without keys refuses: its operator creates the first one with `telegrad keys create`.
    """

    def create(store: KeyStore | None) -> tuple[ApiKey, str]:
        if store is None or principal.key is None:
            raise MissingScope("this server has no keys; its operator creates the first with `telegrad keys create`")
        return store.create(principal.tenant, body.scopes, body.expires_days, body.name)

    key, text = await _ask(request, create)
    response.headers["location"] = f"/v1/keys/{key.id}"
    response.headers["cache-control"] = "no-store"
    return KeyCreated(**_described(key), key=text)


@router.get("", summary="List the API keys")
@route_options(scope="admin")
async def list_keys(request: HTTPRequest, principal: CurrentPrincipal, page: Paged) -> KeyPage:
    """The tenant's keys, oldest first, without their secrets."""
    every = await _ask(request, lambda store: [] if store is None else store.list(principal.tenant))
    found, following = page.of("keys", every, attrgetter("number"))
    return KeyPage(items=[Key(**_described(key)) for key in found], next_cursor=following)


@router.get("/{key}", summary="Read an API key")
@route_options(scope="admin")
async def get_key(request: HTTPRequest, principal: CurrentPrincipal, key: KeyInPath) -> Key:
    """What the server knows of a key of the tenant; never its secret. A revoked key is in the list only."""
    found = await _ask(request, lambda store: None if store is None else store.find(key, principal.tenant))
    if found is None or found.revoked_at is not None:
        raise _unknown(key)
    return Key(**_described(found))


@router.delete("/{key}", status_code=204, summary="Revoke an API key")
@route_options(scope="admin")
async def revoke_key(request: HTTPRequest, principal: CurrentPrincipal, key: KeyInPath) -> None:
    """For good, within a few seconds on all servers of the database; streams of the key are closed."""
    if not await _ask(request, lambda store: store is not None and store.revoke(key, principal.tenant)):
        raise _unknown(key)
    request.app.state.authenticator.forget()


def _unknown(key_id: str) -> UnknownResource:
    return UnknownResource(f"no API key of this id: {key_id!r:.40}")


async def _ask(request: HTTPRequest, ask: Callable[[KeyStore | None], T]) -> T:
    """Ask the store of keys, if there is one, on a thread. Raises ServerBusy if the database cannot be used."""
    from ..database import DatabaseUnavailable

    try:
        return await asyncio.to_thread(lambda: ask(request.app.state.authenticator.open_store()))
    except DatabaseUnavailable as error:
        raise ServerBusy("the database of keys cannot be used now; the server's log says why") from error
