"""``/v1/keys``: the API keys of the tenant of the key that a request has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import APIRouter, Depends, Path, Request, Response

from telegrad_engine.errors import MissingScope, ServerBusy, UnknownResource

from ..routing.dependencies import CurrentPrincipal
from ..routing.pages import Paged
from ..routing.route import Route, route_options
from ..tenants.authentication import Authenticator
from .schemas import Key, KeyCreate, KeyCreated, KeyPage, described

if TYPE_CHECKING:
    from ..tenants.store import ApiKey, KeyStore

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=Route)
KeyId = Annotated[str, Path(description="The key's public id.", examples=["0a1B2c3D4e5F"])]
T = TypeVar("T")


def get_authenticator(request: Request) -> Authenticator:
    """The app's authenticator."""
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


CurrentAuthenticator = Annotated[Authenticator, Depends(get_authenticator)]


@router.post("", status_code=201, summary="Create an API key")
@route_options(scope="admin")
async def create_key(
    keys: CurrentAuthenticator, response: Response, principal: CurrentPrincipal, body: KeyCreate
) -> KeyCreated:
    """A key of the same tenant. The response has the key itself, which is shown only once.

    A server without keys refuses: its operator creates the first one with `telegrad keys create`.
    """

    def create(store: KeyStore | None) -> tuple[ApiKey, str]:
        if store is None or principal.key is None:
            raise MissingScope("this server has no keys; its operator creates the first with `telegrad keys create`")
        return store.create(principal.tenant, body.scopes, body.expires_days, body.name)

    key, text = await _ask(keys, create)
    response.headers["location"] = f"/v1/keys/{key.id}"
    response.headers["cache-control"] = "no-store"
    return KeyCreated(**described(key), key=text)


@router.get("", summary="List the API keys")
@route_options(scope="admin")
async def list_keys(keys: CurrentAuthenticator, principal: CurrentPrincipal, page: Paged) -> KeyPage:
    """The tenant's keys, oldest first, without their secrets."""
    every = await _ask(keys, lambda store: [] if store is None else store.list(principal.tenant))
    found, following = page.of("keys", every, attrgetter("number"))
    return KeyPage(items=[Key(**described(key)) for key in found], next_cursor=following)


@router.get("/{key}", summary="Read an API key")
@route_options(scope="admin")
async def get_key(keys: CurrentAuthenticator, principal: CurrentPrincipal, key: KeyId) -> Key:
    """What the server knows of a key of the tenant; never its secret. A revoked key is in the list only."""
    found = await _ask(keys, lambda store: None if store is None else store.find(key, principal.tenant))
    if found is None or found.revoked_at is not None:
        raise _unknown(key)
    return Key(**described(found))


@router.delete("/{key}", status_code=204, summary="Revoke an API key")
@route_options(scope="admin")
async def revoke_key(keys: CurrentAuthenticator, principal: CurrentPrincipal, key: KeyId) -> None:
    """For good, within a few seconds on all servers of the database; streams of the key are closed."""
    if not await _ask(keys, lambda store: store is not None and store.revoke(key, principal.tenant)):
        raise _unknown(key)
    keys.forget()


def _unknown(key_id: str) -> UnknownResource:
    return UnknownResource(f"no API key of this id: {key_id!r:.40}")


async def _ask(keys: Authenticator, ask: Callable[[KeyStore | None], T]) -> T:
    """Ask the store of keys, if there is one, on a thread. Raises ServerBusy if the database cannot be used."""
    from ..database.database import DatabaseUnavailable

    try:
        return await asyncio.to_thread(lambda: ask(keys.open_store()))
    except DatabaseUnavailable as error:
        raise ServerBusy("the database of keys cannot be used now; the server's log says why") from error
