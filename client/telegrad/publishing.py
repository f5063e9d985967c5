"""Functions of the catalogue as attributes of the SDK's modules."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def publish(namespace: dict[str, Any], name: str, function: Any) -> Any:
    """Make a function an attribute of the module with these globals, and pickle it by that name."""
    with suppress(AttributeError):  # functools.partial has no qualified name
        function.__qualname__, function.__module__ = name, namespace["__name__"]
    namespace[name] = function
    return function
