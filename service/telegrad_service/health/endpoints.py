"""``/healthz`` and ``/readyz``."""

from __future__ import annotations

from fastapi import APIRouter

from telegrad_engine.errors import ServerBusy

from .. import __version__
from ..routing.dependencies import Host, ServerSettings
from ..routing.route import Route
from .schemas import Health, Readiness

router = APIRouter(tags=["health"], route_class=Route)


@router.get("/healthz", operation_id="get_health", summary="Is the server alive?")
async def get_health() -> Health:
    """Answers as long as the process does, also while sessions compute."""
    return Health(status="ok", version=__version__)


@router.get("/readyz", operation_id="get_readiness", summary="Does the server take work?")
async def get_readiness(host: Host, settings: ServerSettings) -> Readiness:
    """503 while the server drains before it stops, and while long programs have taken all of its threads."""
    if host.draining:
        raise ServerBusy("the server is about to stop and takes no more work")
    if host.is_occupied():
        raise ServerBusy("long programs have taken all of the server's threads")
    return Readiness(status="ready", sessions=len(host.sessions()), max_sessions=settings.max_sessions)
