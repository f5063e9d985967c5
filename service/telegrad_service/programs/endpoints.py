"""``POST /v1/sessions/{session}/programs``: the path that every training step takes.

Nothing here is parsed by pydantic or before the session's thread has it.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.routing import WebSocketRoute

from .. import work
from ..media import JSON, SAFETENSORS, speaks
from ..routing import Route
from . import schemas
from .stream import PATH, stream

router = APIRouter(prefix="/v1/sessions/{session}", tags=["programs"], route_class=Route)
router.routes.append(WebSocketRoute(PATH, stream))


@router.post(
    "/programs",
    operation_id="run_program",
    summary="Run a program",
    response_model=schemas.ProgramAnswer,
    responses={200: {"description": "What it fetched", "content": {SAFETENSORS: schemas.CONTAINER}}},
    openapi_extra=schemas.RUN_PROGRAM,
)
@speaks(reads=(JSON, SAFETENSORS), writes=(JSON, SAFETENSORS), raw=True, echo=True)
async def run_program(request: Request) -> Response:
    """Instructions run in order; the answer has what they fetched.

    Where `pending` is not null a gradient needs the client's own code first: those behind it did not run either.
    If one fails, those before it stand and those after it did not run; the problem says which it was.
    As safetensors, the program is JSON in the metadata's `program` and uploads are the container's
    tensors; the answer is in `answer`, and fetched values are its tensors. Without `Accept` the answer
    has the program's media type.
    """
    scope = request.scope
    state = scope["app"].state
    handle = state.host.find(scope["path_params"]["session"])
    accept = scope["telegrad.accept"]
    settings = state.settings
    content = await handle.call(
        work.run_encoded,
        scope["telegrad.body"],
        scope["telegrad.content_type"],
        accept,
        settings.max_json_depth,
        settings.max_json_elements,
    )
    return Response(content, media_type=accept)
