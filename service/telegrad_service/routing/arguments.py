"""Finds the arguments of endpoints in requests."""

from __future__ import annotations

from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from starlette.requests import Request
from starlette.responses import Response

NO_BODY = object()
"""The body of a request without JSON."""


class Arguments:
    """The arguments that an endpoint, or a dependency, declares.

    FastAPI finds them anew for every request, dependency by dependency, which takes longer than all else in a small
    request. This class does the same for what our endpoints declare: plain functions as dependencies, parameters of
    path and query, one JSON body, the request and the response.
    """

    def __init__(self, dependant: Dependant) -> None:
        """Raises TypeError if something else is declared."""
        self._call: Any = dependant.call
        self._dependencies = [(each.name, Arguments(each)) for each in dependant.dependencies]
        self._path, self._query, self._body = dependant.path_params, dependant.query_params, dependant.body_params
        self._defaults = {field.name: field.default for field in self._query if not field.field_info.is_required()}
        self.query: frozenset[str] = frozenset([field.alias for field in self._query]).union(
            *[each.query for _, each in self._dependencies]
        )
        """The names of all query parameters."""
        self._request, self._response = dependant.request_param_name, dependant.response_param_name
        inner = any(each.takes_response for _, each in self._dependencies)
        self.takes_response: bool = inner or self._response is not None
        """Whether a response is declared, to which headers can be added."""
        others = [*dependant.header_params, *dependant.cookie_params, *self._body[1:]]
        others += [field for field in self._path if field.field_info.annotation is not str or field.field_info.metadata]
        if others:
            raise TypeError(f"{self._call} declares what is not supported: {', '.join(field.name for field in others)}")

    def find(self, request: Request, body: Any, response: Response | None, errors: list[Any]) -> dict[str, Any]:
        """Return the arguments by name, and add to ``errors`` what is wrong with the request, as pydantic describes it.

        ``body`` is the parsed body, or ``NO_BODY``.
        """
        values: dict[str, Any] = {}
        for name, dependency in self._dependencies:
            before = len(errors)
            arguments = dependency.find(request, body, response, errors)
            if len(errors) == before and name is not None:
                values[name] = dependency._call(**arguments)
        for field in self._path:
            values[field.name] = request.scope["path_params"][field.alias]
        if self._query:
            if request.scope["query_string"] or len(self._defaults) < len(self._query):
                found, wrong = request_params_to_args(self._query, request.query_params)
                values |= found
                errors += wrong
            else:
                values |= self._defaults
        for field in self._body:
            if body is not NO_BODY:
                values[field.name], wrong = field.validate(body, {}, loc=("body",))
                errors += wrong
            elif field.field_info.is_required():
                errors.append({"type": "missing", "loc": ("body",), "msg": "Field required"})
            else:
                values[field.name] = field.default
        if self._request is not None:
            values[self._request] = request
        if self._response is not None:
            values[self._response] = response
        return values
