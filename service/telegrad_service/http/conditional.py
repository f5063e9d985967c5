"""Conditional requests (RFC 9110, 13): entity tags, ``If-None-Match`` and ``If-Match``.

A tag is ``"{state}.{media}"``, with ``.zstd`` appended by the content coding. The state identifies what the response
represents, so ``If-Match`` accepts the tag of any representation; ``If-None-Match`` needs the one that would be sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from starlette.responses import Response
from xxhash import xxh3_128

from telegrad_engine.errors import PreconditionFailed
from telegrad_engine.program.compression import ENCODING

ETAG, IF_MATCH, IF_NONE_MATCH = "etag", "if-match", "if-none-match"
NAMES = {"application/vnd.safetensors": "safetensors", "application/x-npy": "npy"}
"""The names of media types in tags; any other is ``json``."""
_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


def state_of(text: bytes, array: Any = None) -> str:
    """The state of a response with this content, or of a tensor with this description and these values."""
    digest = xxh3_128(text)
    if array is not None:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def tag(state: str, media_type: str) -> str:
    """The strong tag of a representation."""
    return f'"{state}.{NAMES.get(media_type, "json")}"'


def unchanged(header: str | None, current: str) -> str | None:
    """The tag in an If-None-Match header that means the current one, in any content coding; None if there is none."""
    if header is None:
        return None
    if header.strip() == "*":
        return current
    coded = f'{current[:-1]}.{ENCODING}"'
    return next((f'"{text}"' for _, text in _tags(header) if f'"{text}"' in (current, coded)), None)


def check_match(header: str | None, state: Callable[[], str]) -> None:
    """Raise PreconditionFailed if there is an If-Match header, and it has no strong tag of the current state."""
    if header is None or header.strip() == "*":
        return
    current = state()
    if not any(not weak and text.partition(".")[0] == current for weak, text in _tags(header)):
        raise PreconditionFailed("it has changed since: If-Match names none of its current tags")


def not_modified(matching: str) -> Response:
    """The response to a request whose If-None-Match has the current tag."""
    return Response(status_code=304, headers={ETAG: matching})


def with_tag(response: Response, if_none_match: str | None) -> Response:
    """The response with a tag of its content, or 304 if the client has that content."""
    current = tag(state_of(bytes(response.body)), response.media_type or "")
    matching = unchanged(if_none_match, current)
    if matching is not None:
        return not_modified(matching)
    response.headers[ETAG] = current
    return response


def _tags(header: str) -> Iterator[tuple[bool, str]]:
    """The tags that a header lists: whether each is weak, and its text."""
    for match in _TAG.finditer(header):
        yield match[1] is not None, match[2]
