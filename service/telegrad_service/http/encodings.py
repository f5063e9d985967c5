"""Content codings (RFC 9110, 8.4): decompression of request bodies and compression of responses with zstd.

Limits, sequence numbers and recorded answers use the uncompressed bytes.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache

from starlette.responses import Response, StreamingResponse

from telegrad_engine.errors import InvalidValue, UnsupportedMediaType
from telegrad_engine.program import compression
from telegrad_engine.program.compression import ENCODING, LEAST, Body

from .media import ranges


def is_coded(header: str | None) -> bool:
    """Whether Content-Encoding says that a body is a zstd frame. Raises UnsupportedMediaType for other codings."""
    name = "" if header is None else header.strip().lower()
    if name in ("", "identity"):
        return False
    if name != ENCODING:
        raise UnsupportedMediaType(f"the Content-Encoding of a body here is {ENCODING}, or none, not {header!r:.80}")
    check_available()
    return True


def asks(parameter: str | None) -> bool:
    """Whether the query of a stream asks for compressed answers. Raises InvalidValue, UnsupportedMediaType."""
    if parameter is None:
        return False
    if parameter != ENCODING:
        raise InvalidValue(f"compress is {ENCODING}, or is not there; it is not {parameter!r:.80}")
    check_available()
    return True


def check_available() -> None:
    """Raise UnsupportedMediaType unless the zstd library is installed."""
    if not compression.available():
        raise UnsupportedMediaType(
            f"this server knows no {ENCODING}: send plain bodies, or have its operator install telegrad-engine[zstd]"
        )


def opened(body: Body, most: int) -> Body:
    """Decompress a body that is a zstd frame. Raises TooLarge, MalformedRequest, UnsupportedMediaType."""
    check_available()
    return compression.decompress(body, most)


@lru_cache(maxsize=1024)
def accepts(header: str | None) -> bool:
    """Whether an Accept-Encoding header names zstd with a quality above 0; ``*`` does not count."""
    return header is not None and any(each.pattern == ENCODING and each.quality > 0 for each in ranges(header))


async def encoded(response: Response, accept_encoding: str | None) -> Response:
    """The response in the coding that the client accepts. The original is not compressed, since it may be recorded."""
    if isinstance(response, StreamingResponse) or len(response.body) < LEAST:
        return response
    response.headers.setdefault("vary", "accept-encoding")
    if not accepts(accept_encoding) or not compression.available():
        return response
    body = await asyncio.to_thread(compression.compress, response.body)
    if body is response.body:
        return response
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    if "etag" in headers:  # tags of different codings differ (RFC 9110, 8.8.3.3)
        headers["etag"] = f'{headers["etag"][:-1]}.{ENCODING}"'
    return Response(body, response.status_code, {**headers, "content-encoding": ENCODING})
