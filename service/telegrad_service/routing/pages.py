"""Pages of lists, which all have one shape: ``items`` and ``next_cursor``.

A cursor names the list that it belongs to and the key of the last item, so a page is not affected by items that come or
go meanwhile. Its text is opaque to clients.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from fastapi import Depends, Query
from pydantic import Field

from telegrad_engine.errors import InvalidValue, MalformedRequest
from telegrad_engine.program import json_codec

from .schemas import Answer

MAX_CURSOR = 1024
CURSOR_PATTERN = rf"^[A-Za-z0-9_-]{{1,{MAX_CURSOR}}}$"
Limit = Annotated[int, Query(ge=1, le=1000, description="The most items that a page has.")]
Cursor = Annotated[
    str | None,
    Query(
        description="`next_cursor` of the previous page; absent for the first page.",
        json_schema_extra={"pattern": CURSOR_PATTERN},
    ),
]
_CURSOR = re.compile(CURSOR_PATTERN[1:-1])
T = TypeVar("T")


class Page(Answer, Generic[T]):
    """A page of a list."""

    items: list[T]
    next_cursor: str | None = Field(
        description="`cursor` of the next page; null on the last page.",
        examples=[None],
        json_schema_extra={"maxLength": MAX_CURSOR},
    )


class PageRequest(NamedTuple):
    """Which page of a list a request asks for."""

    limit: int
    cursor: str | None

    def of(self, name: str, items: Iterable[T], key: Callable[[T], Any]) -> tuple[list[T], str | None]:
        """The page of the list ``name``, and the next cursor.

        ``items`` must be ordered by ``key``, which is a string, a number, or a list of these, and is unique. Raises
        InvalidValue if the cursor is not of this list.
        """
        if self.cursor is not None:
            after = _key_in(self.cursor, name)
            try:
                items = [item for item in items if key(item) > after]
            except TypeError:
                raise _not_a_cursor(self.cursor) from None
        rest = iter(items)
        found = list(islice(rest, self.limit))
        more = bool(found) and next(rest, None) is not None
        if not more:
            return found, None
        return found, urlsafe_b64encode(json_codec.dumps([name, key(found[-1])])).rstrip(b"=").decode()


def get_page(limit: Limit = 100, cursor: Cursor = None) -> PageRequest:
    """The page that the query asks for."""
    return PageRequest(limit, cursor)


Paged = Annotated[PageRequest, Depends(get_page)]


def _key_in(cursor: str, name: str) -> Any:
    """The key in a cursor of the list ``name``. Raises InvalidValue."""
    try:
        if _CURSOR.fullmatch(cursor) is None:
            raise ValueError
        found = json_codec.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, MalformedRequest):
        raise _not_a_cursor(cursor) from None
    if not isinstance(found, list) or len(found) != 2 or found[0] != name:
        raise _not_a_cursor(cursor)
    return found[1]


def _not_a_cursor(cursor: str) -> InvalidValue:
    return InvalidValue(f"not a cursor of this list: {cursor!r:.40}")
