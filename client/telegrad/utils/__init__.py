"""``telegrad.utils``: data loading, checkpoints and nested containers, as ``torch.utils``."""

from __future__ import annotations

from .. import pytree as _pytree
from ..exclusions import attribute_of
from . import checkpoint, data

__getattr__ = attribute_of("utils")

__all__ = ["_pytree", "checkpoint", "data"]
