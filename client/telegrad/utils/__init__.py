"""What goes around a model, data and checkpoints, as ``torch.utils``."""

from __future__ import annotations

from ..exclusions import attribute_of
from . import _pytree, checkpoint, data

__getattr__ = attribute_of("utils")

__all__ = ["_pytree", "checkpoint", "data"]
