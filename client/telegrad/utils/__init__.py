"""``telegrad.utils``: data loading, checkpoints and nested containers, as ``torch.utils``."""

from __future__ import annotations

from .. import pytree as _pytree
from . import checkpoint, data

__all__ = ["_pytree", "checkpoint", "data"]
