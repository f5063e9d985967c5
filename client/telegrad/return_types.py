"""``telegrad.return_types``: the named tuples that ops with several outputs return."""

from __future__ import annotations

from typing import Any

from telegrad_engine.schema.op import CATALOGUE

from .exclusions import missing_attribute

_TYPES = {
    op.named_tuple.__name__: op.named_tuple
    for op in CATALOGUE
    if op.has_names and not op.internal and not op.lists_outputs
}


def __getattr__(name: str) -> Any:
    if name not in _TYPES:
        raise missing_attribute("telegrad.return_types", "return_types", name)
    return _TYPES[name]


def __dir__() -> list[str]:
    return sorted(_TYPES)
