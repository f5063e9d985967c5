"""Schemas shared by requests and responses, and the pages of lists.

All lists have one shape: ``items`` and ``next_cursor``. A cursor names the list that it belongs to and the key of the
last item, so a page is not affected by items that come or go meanwhile. Its text is opaque to clients.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from fastapi import Depends, Query
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, WrapValidator
from typing_extensions import TypeAliasType

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidValue, MalformedRequest
from telegrad_engine.program import json_codec
from telegrad_engine.program.instructions import ID_PATTERN

# A type alias becomes a named component of the OpenAPI document, so generated clients have one enumeration for all
# uses. In Go, its values are package-level constants, so no two such enumerations may share a value.
DType = TypeAliasType(
    "DType",
    Annotated[
        str, Field(description="A dtype, by torch's name.", json_schema_extra={"enum": [d.name for d in dtypes.ALL]})
    ],
)
TensorId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
# Any JSON except an object. With a union of the possible types, generated clients would wrap every number.
NOT_AN_OBJECT: dict[str, Any] = {"not": {"type": "object"}}
Data = Annotated[
    Any,
    Field(
        description='A number or a boolean, or nested lists of them; "NaN", "Infinity" and "-Infinity" are strings.',
        json_schema_extra=NOT_AN_OBJECT,
    ),
]
LITERAL: dict[str, Any] = {"not": {"type": ["object", "array"]}}
Input = Annotated[Any, Field(json_schema_extra={**NOT_AN_OBJECT, "items": {**NOT_AN_OBJECT, "items": LITERAL}})]
SESSION_ID = "The session's id."
INPUTS = "Tensor ids, numbers, booleans, nulls, and lists of these, at most two deep, in the op's order."
Attrs = Annotated[dict[str, Any], Field(description="Attributes by name, as `GET /v1/ops/{op}` describes them.")]
BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
"""The content of a request or a response in a binary media type."""
OutputIds = Annotated[
    list[TensorId] | None, Field(description="Ids for the outputs; the server chooses them if this is absent.")
]
# For values that a model documents and the engine validates: they are passed on unchanged.
Unchecked = WrapValidator(lambda value, _: value)
also = AliasChoices
"""The validation alias of a member: its name, and a deprecated one that requests may have instead."""


class Request(BaseModel):
    """A request's body: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    """An answer: every field is always there."""

    model_config = ConfigDict(extra="forbid")


class Tensor(Answer):
    """A tensor's description, and its value where the request asks for it."""

    id: TensorId = Field(description="The tensor's id.", examples=["x"])
    shape: list[int] = Field(description="The size of each dimension; empty for a scalar.", examples=[[2]])
    dtype: DType = Field(examples=["float32"])
    device: str = Field(description="Where the tensor lives.", examples=["cpu"])
    requires_grad: bool = Field(description="Whether operations on it are recorded.", examples=[True])
    is_leaf: bool = Field(description="Whether no recorded operation made it.", examples=[True])
    grad_fn: str | None = Field(
        description="The operation that made it; null for a leaf.", examples=[None, "MulBackward0"]
    )
    version: int = Field(description="How often its memory was modified in place.", examples=[0])
    data: Data | None = Field(description="Its value; null if the request does not ask for it.", examples=[[1.0, 2.0]])


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
