"""Content negotiation: the media types of request bodies and of responses."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from starlette.requests import Request

from telegrad_engine.errors import NotAcceptable, UnsupportedMediaType
from telegrad_engine.program.wire import JSON, SAFETENSORS

NPY = "application/x-npy"
__all__ = ["JSON", "NPY", "SAFETENSORS", "accept", "content_type"]

HEADERS = "telegrad.headers"
"""The key of a request's headers by name in its ASGI scope; of several with one name, the first."""


def header(request: Request, name: bytes) -> str | None:
    """The value of a request's header, by its name in lower case."""
    value = request.scope[HEADERS].get(name)
    return None if value is None else value.decode("latin-1")


@lru_cache(maxsize=1024)
def content_type(header: str | None, known: tuple[str, ...]) -> str:
    """The media type that a Content-Type header names. Raises UnsupportedMediaType if it is not known."""
    name = "" if header is None else header.partition(";")[0].strip().lower()
    if name in known:
        return name
    given = f"not {header!r:.80}" if header else "and the request names none"
    raise UnsupportedMediaType(f"the Content-Type of a body here is {' or '.join(known)}, {given}")


@lru_cache(maxsize=1024)
def accept(header: str | None, offered: tuple[str, ...]) -> str:
    """The best of the ``offered`` media types for an Accept header (RFC 9110, 12.5.1).

    The most specific range that matches a type determines its quality; among equals, the first type wins. Raises
    NotAcceptable if no type is acceptable.
    """
    if not header or header == "*/*":
        return offered[0]
    asked = ranges(header)
    best, best_quality = "", 0.0
    for media_type in offered:
        quality = max(((r.rank, r.quality) for r in asked if r.matches(media_type)), default=(0, 0.0))[1]
        if quality > best_quality:
            best, best_quality = media_type, quality
    if not best:
        raise NotAcceptable(f"can be served as {', '.join(offered)}, not as Accept asks: {header!r:.80}")
    return best


def ranges(header: str) -> list[_Range]:
    """The ranges that a header such as Accept or Accept-Encoding lists."""
    return [_range(part) for part in header.split(",") if part.strip()]


class _Range(NamedTuple):
    pattern: str
    quality: float

    @property
    def rank(self) -> int:
        return 1 if self.pattern == "*/*" else 2 if self.pattern.endswith("/*") else 3

    def matches(self, media_type: str) -> bool:
        if self.rank == 3:
            return self.pattern == media_type
        return self.rank == 1 or media_type.startswith(self.pattern[:-1])


def _range(text: str) -> _Range:
    pattern, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                quality = min(1.0, max(0.0, float(value)))
            except ValueError:
                quality = 0.0
    return _Range(pattern, quality if quality == quality else 0.0)
