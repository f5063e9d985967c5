"""Representations in HTTP: the media types, the codings and the entity tags of bodies; NumPy's ``.npy`` format.

A content coding (RFC 9110, 8.4) compresses bodies with zstd. Limits, sequence numbers and recorded answers use the
uncompressed bytes.

A tag for conditional requests (RFC 9110, 13) is ``"{state}.{media}"``, with ``.zstd`` appended by the content coding.
The state identifies what the response represents, so ``If-Match`` accepts the tag of any representation;
``If-None-Match`` needs the one that would be sent.
"""

from __future__ import annotations

import asyncio
import io
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from xxhash import xxh3_128

from telegrad_engine import dtypes
from telegrad_engine.errors import (
    DTypeMismatch,
    InvalidValue,
    MalformedRequest,
    NotAcceptable,
    PreconditionFailed,
    UnsupportedMediaType,
)
from telegrad_engine.program import compression
from telegrad_engine.program.compression import ENCODING, LEAST, Body
from telegrad_engine.program.wire import JSON, SAFETENSORS

NPY = "application/x-npy"
__all__ = ["JSON", "NPY", "SAFETENSORS", "accept", "media_type_of"]

HEADERS = "telegrad.headers"
"""The key of a request's headers by name in its ASGI scope; of several with one name, the first."""


def header_of(request: Request, name: bytes) -> str | None:
    """The value of a request's header, by its name in lower case."""
    value = request.scope[HEADERS].get(name)
    return None if value is None else value.decode("latin-1")


@lru_cache(maxsize=1024)
def media_type_of(header: str | None, known: tuple[str, ...]) -> str:
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


def is_coded(header: str | None) -> bool:
    """Whether Content-Encoding says that a body is a zstd frame. Raises UnsupportedMediaType for other codings."""
    name = "" if header is None else header.strip().lower()
    if name in ("", "identity"):
        return False
    if name != ENCODING:
        raise UnsupportedMediaType(f"the Content-Encoding of a body here is {ENCODING}, or none, not {header!r:.80}")
    check_zstd()
    return True


def asks_for_compression(parameter: str | None) -> bool:
    """Whether the query of a stream asks for compressed answers. Raises InvalidValue, UnsupportedMediaType."""
    if parameter is None:
        return False
    if parameter != ENCODING:
        raise InvalidValue(f"compress is {ENCODING}, or is not there; it is not {parameter!r:.80}")
    check_zstd()
    return True


def check_zstd() -> None:
    """Raise UnsupportedMediaType unless the zstd library is installed."""
    if not compression.available():
        raise UnsupportedMediaType(
            f"this server knows no {ENCODING}: send plain bodies, or have its operator install telegrad-engine[zstd]"
        )


def decompressed(body: Body, most: int) -> Body:
    """Decompress a body that is a zstd frame. Raises TooLarge, MalformedRequest, UnsupportedMediaType."""
    check_zstd()
    return compression.decompress(body, most)


@lru_cache(maxsize=1024)
def accepts_zstd(header: str | None) -> bool:
    """Whether an Accept-Encoding header names zstd with a quality above 0; ``*`` does not count."""
    return header is not None and any(each.pattern == ENCODING and each.quality > 0 for each in ranges(header))


async def with_coding(response: Response, accept_encoding: str | None) -> Response:
    """The response in the coding that the client accepts. The original is not compressed, since it may be recorded."""
    if isinstance(response, StreamingResponse) or len(response.body) < LEAST:
        return response
    response.headers.setdefault("vary", "accept-encoding")
    if not accepts_zstd(accept_encoding) or not compression.available():
        return response
    body = await asyncio.to_thread(compression.compress, response.body)
    if body is response.body:
        return response
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    if "etag" in headers:  # tags of different codings differ (RFC 9110, 8.8.3.3)
        headers["etag"] = f'{headers["etag"][:-1]}.{ENCODING}"'
    return Response(body, response.status_code, {**headers, "content-encoding": ENCODING})


ETAG = "etag"
TAG_NAMES = {SAFETENSORS: "safetensors", NPY: "npy"}
"""The names of media types in tags; any other is ``json``."""
TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
"""A tag in a header: ``W/`` if it is weak, and its text."""


def state_of(text: bytes, array: Any = None) -> str:
    """The state of a response with this content, or of a tensor with this description and these values."""
    digest = xxh3_128(text)
    if array is not None:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def entity_tag(state: str, media_type: str) -> str:
    """The strong tag of a representation."""
    return f'"{state}.{TAG_NAMES.get(media_type, "json")}"'


def matching_tag(header: str | None, current: str) -> str | None:
    """The tag in an If-None-Match header that means the current one, in any content coding; None if there is none."""
    if header is None:
        return None
    if header.strip() == "*":
        return current
    coded = f'{current[:-1]}.{ENCODING}"'
    return next((f'"{text}"' for _, text in TAG.findall(header) if f'"{text}"' in (current, coded)), None)


def check_match(header: str | None, state: Callable[[], str]) -> None:
    """Raise PreconditionFailed if there is an If-Match header, and it has no strong tag of the current state."""
    if header is None or header.strip() == "*":
        return
    current = state()
    if not any(not weak and text.partition(".")[0] == current for weak, text in TAG.findall(header)):
        raise PreconditionFailed("it has changed since: If-Match names none of its current tags")


def not_modified(matching: str) -> Response:
    """The response to a request whose If-None-Match has the current tag."""
    return Response(status_code=304, headers={ETAG: matching})


def with_tag(response: Response, if_none_match: str | None) -> Response:
    """The response with a tag of its content, or 304 if the client has that content."""
    current = entity_tag(state_of(bytes(response.body)), response.media_type or "")
    matching = matching_tag(if_none_match, current)
    if matching is not None:
        return not_modified(matching)
    response.headers[ETAG] = current
    return response


_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


def decode_npy(body: Body) -> Any:
    """Decode the array in a ``.npy`` body, strictly: objects, archives and wrong sizes are refused.

    Raises MalformedRequest, or DTypeMismatch if tensors do not support the array's dtype. The format:
    https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
    """
    stream = io.BytesIO(body)
    try:
        reader = _READERS[npy_format.read_magic(stream)]
        shape, fortran, dtype = reader(stream)
    except Exception as error:  # the header is a Python literal, and parsing it can raise many errors
        raise MalformedRequest(f"npy: the header cannot be read: {error!s:.120}") from None
    if dtype.hasobject:
        raise DTypeMismatch("npy: arrays of objects are not read")
    dtypes.from_numpy(dtype.newbyteorder("="))
    start = stream.tell()
    count = math.prod(shape)
    if count * dtype.itemsize != len(body) - start or min(shape, default=0) < 0:
        raise MalformedRequest(f"npy: {len(body) - start} bytes do not hold shape {list(shape)} of {dtype}")
    flat = np.frombuffer(body, dtype, count, start) if count else np.empty(0, dtype)
    array = flat.reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def encode_npy(array: Any) -> bytes:
    """Encode an array as a ``.npy`` file."""
    if array.dtype.kind == "V":
        raise NotAcceptable("npy has no bfloat16; ask for application/vnd.safetensors or application/json")
    stream = io.BytesIO()
    npy_format.write_array(stream, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return stream.getvalue()
