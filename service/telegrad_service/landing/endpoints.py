"""``GET /``: a browser is redirected to the API's pages; other clients get the server's main addresses."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse, RedirectResponse

from .. import __version__

router = APIRouter()
LINKS = {
    "docs": "/docs",
    "redoc": "/redoc",
    "openapi": "/openapi.json",
    "sessions": "/v1/sessions",
    "ops": "/v1/ops",
    "health": "/healthz",
}


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def land(request: Request) -> Response:
    """Redirect to ``/docs`` if the client accepts HTML, else answer with the links as JSON."""
    root = request.scope.get("root_path", "").rstrip("/")
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(root + LINKS["docs"])
    links = {name: root + path for name, path in LINKS.items()}
    return JSONResponse({"name": "Telegrad", "version": __version__, **links}, headers={"vary": "accept"})
