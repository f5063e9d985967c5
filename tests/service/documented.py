"""The OpenAPI document: an operation answers only with what it says; and its examples of requests.

Internals: the model of problems, which the document describes.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from telegrad_service.cli import DOCUMENT
from telegrad_service.problems import MEDIA_TYPE, Problem

Operations = dict[str, dict[str, Any]]


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document in the repository."""
    found: dict[str, Any] = json.loads((Path(__file__).parents[2] / DOCUMENT).read_text(encoding="utf-8"))
    return found


@cache
def _paths() -> list[tuple[re.Pattern[str], Operations]]:
    # A path without parameters is tried first.
    paths = sorted(document()["paths"].items(), key=lambda item: item[0].count("{"))
    return [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), operations) for path, operations in paths]


def request_examples(operation_id: str) -> dict[str, Any]:
    """The bodies that the document shows as examples of a request, by name."""
    operations = [each for path in document()["paths"].values() for each in path.values()]
    [operation] = [each for each in operations if each["operationId"] == operation_id]
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    return {name: each["value"] for name, each in examples.items()}


def operation_of(method: str, path: str) -> dict[str, Any] | None:
    """The operation that serves a request; None if the document has none."""
    found = next((operations for pattern, operations in _paths() if pattern.fullmatch(path)), {})
    return found.get("get" if method == "HEAD" else method.lower())


def check(response: httpx.Response) -> None:
    """Assert that the document has the status, the media type and the required headers of a response.

    The body of a problem has the members that every problem has.
    """
    request = response.request
    operation = operation_of(request.method, request.url.raw_path.decode().partition("?")[0])
    if operation is None or response.status_code == 405:
        return
    name, status = operation["operationId"], str(response.status_code)
    assert status in operation["responses"], f"{name} answered {status}, which is not documented"
    documented = operation["responses"][status]
    if "$ref" in documented:
        documented = document()["components"]["responses"][documented["$ref"].rpartition("/")[2]]
    media_type = response.headers.get("content-type", "").partition(";")[0]
    assert media_type in (documented.get("content") or {"": None}), f"{name} answered {status} as {media_type!r}"
    if media_type == MEDIA_TYPE and request.method != "HEAD":
        Problem.model_validate_json(response.read(), strict=True)
    for header, described in documented.get("headers", {}).items():
        assert not described.get("required") or header in response.headers, f"{name} answered {status} without {header}"
