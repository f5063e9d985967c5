"""The table of routes finds what FastAPI's routers find. Internals: from outside, one cannot see which of them did."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from telegrad_service.app import create_app
from telegrad_service.routing.route import Route, RouteTable

ROUTES: list[Route] = create_app().state.routes
ELSEWHERE = ["/v1/sessions/", "/v1/sessions//tensors", "/v1/sessions/import/tensors", "/v1/nothing", "", "//healthz"]


def found(method: str, path: str) -> tuple[Route | None, dict[str, str]]:
    """The route of the table, and the parameters of its path; without a route, FastAPI gets the request."""
    scope: Scope = {"type": "http", "method": method, "path": path}
    passed_on: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed_on.append(scope)

    nothing: Any = None
    route = RouteTable(app, ROUTES)._find(scope)
    if route is None:
        asyncio.run(RouteTable(app, ROUTES)(scope, nothing, nothing))
        assert passed_on == [scope]
    return route, scope["path_params"] if route else {}


def of_fastapi(method: str, path: str) -> tuple[Route | None, dict[str, str]]:
    """The first route that matches a request, as FastAPI tries them."""
    for route in ROUTES:
        match, child = route.matches({"type": "http", "method": method, "path": path})
        if match is Match.FULL:
            return route, child["path_params"]
    return None, {}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{min(route.methods)} {route.path}")
def test_each_route_is_found_with_the_parameters_of_its_path(route: Route) -> None:
    path = re.sub(r"{(\w+)}", r"a \1", route.path)
    for method in route.methods or ():
        assert found(method, path) == of_fastapi(method, path) == (route, of_fastapi(method, path)[1])


@pytest.mark.parametrize("path", ELSEWHERE)
def test_what_no_route_serves_is_left_to_fastapi(path: str) -> None:
    assert found("POST", path)[0] is None
    assert found("BREW", "/healthz")[0] is None
