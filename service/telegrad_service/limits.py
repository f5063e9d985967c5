"""Bodies are read here and nowhere else, and never past their limit."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

from telegrad_engine.errors import MalformedRequest, TooLarge

from .media import JSON
from .settings import Settings


async def read_body(request: Request, media_type: str, settings: Settings) -> bytes:
    """The body, counted while it arrives. Raises TooLarge as soon as it is certain to pass the limit."""
    limit = settings.max_body_bytes
    if media_type == JSON:
        limit = min(limit, settings.max_json_bytes)
    declared = request.headers.get("content-length")
    if declared is not None and (not declared.isdecimal() or int(declared) > limit):
        raise _too_large(limit, media_type)
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise _too_large(limit, media_type)
            chunks.append(chunk)
    except ClientDisconnect:
        raise MalformedRequest("the client went away before the end of the body") from None
    if declared is not None and size != int(declared):
        raise MalformedRequest(f"the body ended after {size} of {declared} bytes")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int, media_type: str) -> TooLarge:
    hint = "; the binary media types may be larger" if media_type == JSON else ""
    return TooLarge(f"a body of {media_type} has at most {limit} bytes here{hint}")
