"""The principal of a request: its tenant, its API key and the key's scopes; API keys as text.

A key is ``tg_``, a public id, ``_``, a random secret, and a checksum: ``tg_0a1B2c3D4e5F_`` is followed by 43 letters
and digits of the secret (256 random bits) and 6 of the checksum. The prefix lets secret scanners recognise a key. The
checksum tells a mistyped key from an unknown one without the database.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from starlette.requests import HTTPConnection
from starlette.types import Scope as Connection

from telegrad_engine.errors import MissingScope, Unauthenticated

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


# API keys as text ---------------------------------------------------------------------------------

PREFIX = "tg_"
DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
ID_LENGTH, SECRET_LENGTH, CHECKSUM_LENGTH = 12, 43, 6
ID_PATTERN = rf"^[0-9A-Za-z]{{{ID_LENGTH}}}$"
_KEY = re.compile(
    rf"(?P<body>{PREFIX}(?P<id>[0-9A-Za-z]{{{ID_LENGTH}}})_[0-9A-Za-z]{{{SECRET_LENGTH}}})"
    rf"(?P<checksum>[0-9A-Za-z]{{{CHECKSUM_LENGTH}}})",
    re.ASCII,
)


class NewKey(NamedTuple):
    """A key that was just made. Only its digest is stored."""

    id: str
    text: str

    def __repr__(self) -> str:
        return f"NewKey(id={self.id!r})"


def new_key() -> NewKey:
    """Make a random key."""
    key_id = _base62(secrets.randbits(71), ID_LENGTH)
    body = f"{PREFIX}{key_id}_{_base62(secrets.randbits(256), SECRET_LENGTH)}"
    return NewKey(key_id, body + _checksum(body))


def key_id_of(text: str) -> str:
    """Return the public id of a key. Raises Unauthenticated if it is no key, or mistyped."""
    found = _KEY.fullmatch(text)
    if found is None:
        raise Unauthenticated("this is not an API key of Telegrad: one has 65 characters and starts with tg_")
    if _checksum(found["body"]) != found["checksum"]:
        raise Unauthenticated("the API key is mistyped: its checksum does not match")
    return found["id"]


def key_digest(text: str) -> bytes:
    """Return the digest that is stored. A random secret of 256 bits needs no slower one."""
    return hashlib.sha256(text.encode("ascii")).digest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode("ascii")), CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    """A number in base 62, with leading zeros."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits))
