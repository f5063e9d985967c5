"""``telegrad.autograd.gradcheck`` and ``gradgradcheck``: the engine's functions over this package's ``grad``."""

from __future__ import annotations

from typing import Any

from telegrad_engine.autograd.gradcheck import Gradcheck

from .differentiation import grad


def _forward_ad() -> Any:
    from . import forward_ad  # few programs use it

    return forward_ad


_OURS = Gradcheck(grad, _forward_ad)
gradcheck, gradgradcheck = _OURS.gradcheck, _OURS.gradgradcheck

__all__ = ["gradcheck", "gradgradcheck"]
