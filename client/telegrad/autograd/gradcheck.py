"""``telegrad.autograd.gradcheck`` and ``gradgradcheck``: the engine's functions over this package's ``grad``."""

from __future__ import annotations

from telegrad_engine.autograd.gradcheck import Gradcheck

from .differentiation import grad

_OURS = Gradcheck(grad)
gradcheck, gradgradcheck = _OURS.gradcheck, _OURS.gradgradcheck

__all__ = ["gradcheck", "gradgradcheck"]
