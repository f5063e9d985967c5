"""``telegrad.autograd.functional``: products with Jacobians and Hessians of functions of a session's tensors.

The engine's functions over this package's ``grad``: the ops are recorded, and sent when a value is needed.
"""

from __future__ import annotations

from telegrad_engine.autograd.functional import Functional

from .differentiation import grad

_OURS = Functional(grad)
vjp, jvp, vhp, hvp = _OURS.vjp, _OURS.jvp, _OURS.vhp, _OURS.hvp
jacobian, hessian = _OURS.jacobian, _OURS.hessian

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
