"""The former name of :mod:`.http_fallback`, until its last importer uses the new one."""

from __future__ import annotations

from .http_fallback import HttpFallback as Posts

__all__ = ["Posts"]
