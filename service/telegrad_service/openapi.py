"""The OpenAPI document, and ``python -m telegrad_service.openapi [--check]`` to write or compare it."""

from __future__ import annotations

from fastapi import FastAPI

DESCRIPTION = ""
TAGS = [{"name": "sessions", "description": "x"}]


def install(app: FastAPI) -> None:
    """x"""
