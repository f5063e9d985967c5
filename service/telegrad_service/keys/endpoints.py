"""``/v1/keys``: the API keys of the tenant of the key that a request has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, ParamSpec, TypeVar

from fastapi import APIRouter, Body, Path, Request, Response

from telegrad_engine.errors import MissingScope, ServerBusy, UnknownResource

from ..routing.dependencies import CurrentPrincipal
from ..routing.pages import Paged
from ..routing.route import Route, needs
from ..tenants.authenticator import Authenticator
from .schemas import Key, KeyCreate, KeyCreated, KeyPage, described

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=Route)
KeyId = Annotated[str, Path(description="The key's public id.", examples=["0a1B2c3D4e5F"])]
CREATE = {
    "example": {
        "summary": "A key for a training job",
        "value": {"name": "trainer", "scopes": ["sessions", "functions"], "expires_days": 30},
    }
}
P = ParamSpec("P")
T = TypeVar("T")


@router.post("", status_code=201, operation_id="create_key", summary="Create an API key")
@needs("admin")
async def create_key(
    request: Request,
    response: Response,
    principal: CurrentPrincipal,
    body: Annotated[KeyCreate, Body(openapi_examples=CREATE)],
) -> KeyCreated:
    """A key of the same tenant. The response has the key itself, which is shown only once.

    A server without keys refuses: its operator creates the first one with `telegrad keys create`.
    """
    authenticator = _authenticator(request)
    store = await _off_loop(authenticator.open_store)
    if store is None or principal.key is None:
        raise MissingScope("this server has no keys; its operator creates the first with `telegrad keys create`")
    key, text = await _off_loop(store.create, principal.tenant, body.scopes, body.expires_days, body.name)
    response.headers["location"] = f"/v1/keys/{key.id}"
    response.headers["cache-control"] = "no-store"
    return KeyCreated(**described(key), key=text)


@router.get("", operation_id="list_keys", summary="List the API keys")
@needs("admin")
async def list_keys(request: Request, principal: CurrentPrincipal, page: Paged) -> KeyPage:
    """The tenant's keys, oldest first, without their secrets."""
    store = await _off_loop(_authenticator(request).open_store)
    every = [] if store is None else await _off_loop(store.list, principal.tenant)
    found, following = page.of("keys", every, attrgetter("number"))
    return KeyPage(items=[Key(**described(key)) for key in found], next_cursor=following)


@router.get("/{key}", operation_id="get_key", summary="Read an API key")
@needs("admin")
async def get_key(request: Request, principal: CurrentPrincipal, key: KeyId) -> Key:
    """What the server knows of a key of the tenant; never its secret. A revoked key is in the list only."""
    store = await _off_loop(_authenticator(request).open_store)
    found = None if store is None else await _off_loop(store.find, key, principal.tenant)
    if found is None or found.revoked_at is not None:
        raise _unknown(key)
    return Key(**described(found))


@router.delete("/{key}", status_code=204, operation_id="revoke_key", summary="Revoke an API key")
@needs("admin")
async def revoke_key(request: Request, principal: CurrentPrincipal, key: KeyId) -> None:
    """For good, within a few seconds on all servers of the database; streams of the key are closed."""
    authenticator = _authenticator(request)
    store = await _off_loop(authenticator.open_store)
    if store is None or not await _off_loop(store.revoke, key, principal.tenant):
        raise _unknown(key)
    authenticator.forget()


def _authenticator(request: Request) -> Authenticator:
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


def _unknown(key_id: str) -> UnknownResource:
    return UnknownResource(f"no API key of this id: {key_id!r:.40}")


async def _off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of the store on a thread. Raises ServerBusy if the database cannot be used."""
    from ..database.database import DatabaseUnavailable

    try:
        return await asyncio.to_thread(function, *args, **kwargs)
    except DatabaseUnavailable as error:
        raise ServerBusy("the database of keys cannot be used now; the server's log says why") from error
