"""The principal of a request: its tenant, its key and the key's scopes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from starlette.requests import HTTPConnection
from starlette.types import Scope as Connection

from telegrad_engine.errors import MissingScope

Scope = Literal["read", "sessions", "functions", "admin"]
"""What a key may allow: to read, to use sessions, to register functions in them, to administer the server."""
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
IMPLIED: Mapping[Scope, Scope] = {"sessions": "read"}
"""For a scope, another one that it includes."""
FUNCTION_SCOPES: Mapping[str, Scope] = {"session": "functions", "server": "admin"}
"""The scope that a program needs to register or remove functions of a session, or of the server."""
SCOPE_KEY = "telegrad.principal"
"""The principal's key in the ASGI scope of a request."""


class Principal(NamedTuple):
    """Who makes a request."""

    tenant: str
    """The tenant whose sessions, functions and cached programs it may use."""
    key: str | None
    """The public id of its API key; None on a server without keys."""
    scopes: frozenset[Scope]

    def require(self, scope: Scope) -> None:
        """Raise MissingScope unless the principal has this scope."""
        if scope not in self.scopes:
            raise MissingScope(_lacking(scope))


ANYONE = Principal("local", None, SCOPES)
"""Every client of a server without keys."""
NOBODY = Principal("", None, frozenset())
"""The principal of work that no client has asked for."""
PRINCIPAL: ContextVar[Principal] = ContextVar("principal", default=NOBODY)
"""The principal of the request that the current task serves."""


def principal_of(connection: HTTPConnection | Connection) -> Principal:
    """The principal of an HTTP request or a WebSocket."""
    found: Principal = connection[SCOPE_KEY]
    return found


def set_principal(scope: Connection, principal: Principal) -> None:
    """Note who makes a request, for its routes and for the task that serves it."""
    scope[SCOPE_KEY] = principal
    PRINCIPAL.set(principal)  # each request has a task, and so a context, of its own


def with_implied(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Return scopes with those that they include."""
    found = frozenset(scopes)
    return found | {IMPLIED[scope] for scope in found & IMPLIED.keys()}


@lru_cache
def refusals(scopes: frozenset[Scope]) -> Mapping[str, str]:
    """Why a program of a principal with these scopes must not change functions, by the functions' scope."""
    return {where: _lacking(scope) for where, scope in FUNCTION_SCOPES.items() if scope not in scopes}


def _lacking(scope: Scope) -> str:
    return f"the API key lacks the scope {scope!r}, which this needs"
