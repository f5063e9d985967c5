"""``POST /v1/sessions/{session}/programs``, the endpoint that a training step uses.

For speed, the body is parsed without pydantic, on the session's thread.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.routing import WebSocketRoute

from ..hosting import work
from ..http.media import JSON, SAFETENSORS
from ..routing.route import Route, route_options
from ..tenants.principal import principal_of
from . import schemas
from .stream import PATH, stream

router = APIRouter(prefix="/v1/sessions/{session}", tags=["programs"], route_class=Route)
router.routes.append(WebSocketRoute(PATH, stream))


@router.post(
    "/programs",
    summary="Run a program",
    response_model=schemas.ProgramResult,
    responses={200: {"description": "The fetched values.", "content": {SAFETENSORS: schemas.CONTAINER}}},
    openapi_extra=schemas.RUN_PROGRAM,
)
@route_options(reads=(JSON, SAFETENSORS), writes=(JSON, SAFETENSORS), raw=True, echo=True)
async def run_program(request: Request) -> Response:
    """Instructions run in order; the response has the values that they fetch.

    If an instruction fails, the effects of those before it stay, those after it do not run, and the problem document
    has its index, and in `progress` what has run. With `rollback`, nothing stays.

    If `pending` is not null, the client must evaluate a function or hook first, and the instructions after it did not
    run.

    As safetensors, the program is JSON in the metadata's `program`, and uploads are the container's tensors; the
    response is in the metadata's `answer`, and fetched values are the container's tensors. Without `Accept`, the
    response has the program's media type.
    """
    scope = request.scope
    state = scope["app"].state
    handle = state.host.find(principal_of(scope), scope["path_params"]["session"])
    accept = scope["telegrad.accept"]
    settings = state.settings
    most = settings.max_body_bytes
    if scope["telegrad.content_type"] == JSON:
        most = min(most, settings.max_json_bytes)
    content = await handle.call(
        work.run_encoded,
        scope["telegrad.body"],
        scope["telegrad.content_type"],
        accept,
        settings.max_json_depth,
        settings.max_json_elements,
        most if scope.get("telegrad.coded") else None,  # a zstd frame is decompressed there
    )
    return Response(content, media_type=accept)
