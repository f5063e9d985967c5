"""One table of errors: each class travels under its slug and status, and nothing leaks.

Internals: every error is made into a problem, also those that no request causes.
"""

from __future__ import annotations

import gc
import logging
from typing import Any

import httpx
import pytest

from telegrad_engine.errors import ERRORS, ShapeMismatch, TelegradError, from_slug
from telegrad_service import problems
from telegrad_service.app import create_app
from telegrad_service.settings import Settings


@pytest.mark.parametrize("slug", sorted(ERRORS))
def test_every_error_travels(slug: str) -> None:
    cls = ERRORS[slug]
    error = cls("words", ids=["x"], shapes={"x": [2]}, op="add", instruction=3)
    response = problems.problem(error)
    assert response.status_code == cls.status
    assert response.headers["content-type"] == "application/problem+json"
    assert ("retry-after" in response.headers) == (cls.status in (429, 503))
    members = httpx.Response(response.status_code, content=bytes(response.body)).json()
    assert members["type"] == f"urn:telegrad:problem:{slug}"
    assert members["title"] == cls.title and members["status"] == cls.status
    context = {name: members[name] for name in ("ids", "shapes", "op", "instruction")}
    back = from_slug(slug, members["detail"], context)
    assert type(back) is cls and str(back) == "words" and back.context == error.context


def test_no_error_shares_a_slug() -> None:
    def classes(cls: type[TelegradError]) -> list[type[TelegradError]]:
        return [found for sub in cls.__subclasses__() for found in [sub, *classes(sub)]]

    assert {cls.slug: cls for cls in classes(TelegradError)} == ERRORS


def test_a_users_own_error_class_takes_no_slug() -> None:
    before = dict(ERRORS)
    own: Any = type("Own", (ShapeMismatch,), {})
    assert (own.slug, own.status, own.title) == ("shape-mismatch", 422, "Shapes do not fit")
    assert before == ERRORS
    del own
    gc.collect()  # other tests list all classes


async def ask(path: str, error: Exception) -> httpx.Response:
    app = create_app(Settings())

    @app.get("/fails")
    async def fails() -> None:
        raise error

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(path)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_an_unforeseen_error_says_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await ask("/fails", ValueError("secret /path"))
    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:telegrad:problem:internal-error"
    assert "secret" not in answer.text and "ValueError" not in answer.text


@pytest.mark.anyio
async def test_context_stands_beside_the_text() -> None:
    answer = await ask("/fails", ShapeMismatch("words", op="add", extra=[1]))
    assert (answer.status_code, answer.json()["op"], answer.json()["extra"]) == (422, "add", [1])
    assert answer.json()["instruction"] is None
