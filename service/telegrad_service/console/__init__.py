"""The console, a page on which people see what sessions do: ``/`` for a browser, and the page's files.

For other clients ``/`` is a list of links. The page uses the API only, so any tool can do the same. ``make console``
builds the files to ``static/``. They need no key: the page asks for one when the API wants it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from .. import __version__
from ..http.representations import JSON
from ..routing.dependencies import Accepted
from ..routing.route import Route, route_options

HTML = "text/html"
KINDS = {
    ".css": "text/css", ".html": HTML, ".ico": "image/x-icon", ".js": "text/javascript", ".json": JSON,
    ".map": JSON, ".png": "image/png", ".svg": "image/svg+xml", ".txt": "text/plain",
    ".webmanifest": "application/manifest+json", ".woff2": "font/woff2",
}  # fmt: skip
"""The media types of the console's files by suffix; files with another one are not served."""
STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
HASHED = "assets/"
"""The folder of the files whose names contain a hash of their content."""
IMMUTABLE, CHECKED = "public, max-age=31536000, immutable", "no-cache"
PROTECTED = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
POLICY = "default-src 'self'; img-src 'self' data: blob:; {}object-src 'none'; base-uri 'none'; form-action 'none'; "
POLICY += "frame-ancestors 'none'"
LINKS = {
    "docs": "/docs",
    "redoc": "/redoc",
    "openapi": "/openapi.json",
    "asyncapi": "/asyncapi.json",
    "sessions": "/v1/sessions",
    "ops": "/v1/ops",
    "health": "/healthz",
}
NOT_BUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Telegrad</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body { font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }</style>
</head><body><main>
<h1>Telegrad</h1>
<p>The server runs, but was installed without its console. Run <code>make console</code> at the root of the
repository, which needs Node.js 20.19 or later. If you installed from the checkout without <code>--editable</code>,
then install its folder <code>service</code> again. Load this page again.</p>
<p>The API works without it: <a href="/docs">documentation to try</a>, <a href="/redoc">reference</a>,
<a href="/openapi.json">OpenAPI document</a>.</p>
</main></body></html>
"""
router = APIRouter(route_class=Route)


class File(NamedTuple):
    """A file of the console."""

    media_type: str
    content: bytes


class Files:
    """The built files in a folder by path. They are read once, and again after a new build."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, Lock()
        self._built_at = 0
        self._files: dict[str, File] = {}

    def current(self) -> dict[str, File]:
        """All files; none if the console is not built. Blocks."""
        try:
            built_at = (self._folder / INDEX).stat().st_mtime_ns
        except OSError:
            return {}
        with self._lock:
            if built_at != self._built_at:
                found = [path for path in self._folder.rglob("*") if path.is_file() and path.suffix in KINDS]
                self._files = {
                    path.relative_to(self._folder).as_posix(): File(KINDS[path.suffix], path.read_bytes())
                    for path in found
                }
                self._built_at = built_at
            return self._files


FILES = Files(STATIC)


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
@route_options(writes=(JSON, HTML))
async def land(request: Request, accepted: Accepted) -> Response:
    """The console for clients that prefer HTML; the links as JSON for others."""
    if accepted == JSON:
        root = request.scope.get("root_path", "").rstrip("/")
        links = {name: root + path for name, path in LINKS.items()}
        return JSONResponse({"name": "Telegrad", "version": __version__, **links}, headers={"vary": "accept"})
    index = (await asyncio.to_thread(FILES.current)).get(INDEX)
    if index is None:
        index, styles = File(HTML, NOT_BUILT.encode()), "style-src 'unsafe-inline'; "  # of a page without scripts
    else:
        styles = ""
    more = {"content-security-policy": POLICY.format(styles), "cache-control": CHECKED}
    return Response(
        index.content, headers={**PROTECTED, **more, "vary": "accept, accept-encoding"}, media_type=index.media_type
    )


@router.get("/console/{name}", include_in_schema=False)
@router.get("/console/{folder}/{name}", include_in_schema=False)
@route_options(writes=tuple(dict.fromkeys(KINDS.values())))
async def get_console_file(request: Request) -> Response:
    """A file of the console. Raises HTTPException if there is none of this name."""
    path = request.scope["path"].removeprefix("/console/")
    found = (await asyncio.to_thread(FILES.current)).get(path)
    if found is None:
        raise HTTPException(404)
    kept = IMMUTABLE if path.startswith(HASHED) else CHECKED
    return Response(found.content, headers={**PROTECTED, "cache-control": kept}, media_type=found.media_type)
