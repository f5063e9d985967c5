"""ASGI middleware that finds the route of a request in one look-up, ahead of FastAPI's routers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from .route import Route

PARAMETER = "/"
"""The key of a parameter among the segments of paths, which have no slashes; a method's is one with its name."""


class RouteTable:
    """Passes requests to their routes; a route that serves GET also serves HEAD.

    FastAPI tries its routes one after the other, those of each router twice. ``app``, which gets all other requests,
    answers for paths and methods that no route has, and serves streams.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[Route]) -> None:
        self._app = app
        self._root: dict[str, Any] = {}
        """The tree of the segments of paths, whose leaves are routes with the names of their parameters."""
        for route in routes:
            node = self._root
            segments = route.path.split("/")
            for segment in segments:
                node = node.setdefault(PARAMETER if segment.startswith("{") else segment, {})
            names = [segment.strip("{}") for segment in segments if segment.startswith("{")]
            node |= {PARAMETER + method: (route, names) for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        found = self._find(scope) if scope["type"] == "http" and not scope.get("root_path") else None
        await (self._app if found is None else found.handle)(scope, receive, send)

    def _find(self, scope: Scope) -> Route | None:
        """The route of a request, or None; sets the parameters of its path."""
        node, values, method = self._root, [], scope["method"]
        for segment in scope["path"].split("/"):
            following = node.get(segment)
            if following is None:
                following = node.get(PARAMETER)
                if following is None or not segment:
                    return None
                values.append(segment)
            node = following
        route, names = node.get(PARAMETER + ("GET" if method == "HEAD" else method), (None, ()))
        scope["path_params"] = dict(zip(names, values, strict=False))
        found: Route | None = route
        return found
