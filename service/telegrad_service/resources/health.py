"""``/healthz``, ``/readyz`` and ``/``, which leads browsers to the documentation and other clients to the main URLs."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field
from starlette.responses import JSONResponse, RedirectResponse

from telegrad_engine.errors import ServerBusy

from .. import __version__
from ..routing.dependencies import Host, ServerSettings
from ..routing.route import Route
from ..routing.schemas import Answer

OCCUPIED_S = 5.0
"""The server is not ready if every thread has run the same work for this many seconds."""
router = APIRouter(tags=["health"], route_class=Route)
LINKS = {
    "docs": "/docs",
    "redoc": "/redoc",
    "openapi": "/openapi.json",
    "asyncapi": "/asyncapi.json",
    "sessions": "/v1/sessions",
    "ops": "/v1/ops",
    "health": "/healthz",
}


class Health(Answer):
    """The server answers."""

    status: Literal["ok"]
    version: str = Field(description="The server's version.", examples=["0.1.0"])


class Readiness(Answer):
    """The server accepts work."""

    status: Literal["ready"]
    sessions: int = Field(description="The number of sessions.", examples=[1])
    max_sessions: int = Field(description="The most sessions that it holds.", examples=[256])


@router.get("/healthz", summary="Is the server alive?")
async def get_health() -> Health:
    """Answers as long as the process does, also while sessions compute."""
    return Health(status="ok", version=__version__)


@router.get("/readyz", summary="Does the server take work?")
async def get_readiness(host: Host, settings: ServerSettings) -> Readiness:
    """503 while the server drains before it stops, and while long programs have taken all of its threads."""
    if host.draining:
        raise ServerBusy("the server is about to stop and takes no more work")
    if host.workers.occupied(OCCUPIED_S):
        raise ServerBusy("long programs have taken all of the server's threads")
    return Readiness(status="ready", sessions=len(host.sessions()), max_sessions=settings.max_sessions)


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def land(request: Request) -> Response:
    """Redirect to ``/docs`` if the client accepts HTML, else answer with the links as JSON."""
    root = request.scope.get("root_path", "").rstrip("/")
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(root + LINKS["docs"])
    links = {name: root + path for name, path in LINKS.items()}
    return JSONResponse({"name": "Telegrad", "version": __version__, **links}, headers={"vary": "accept"})
