"""``telegrad.autograd.functional``: products with Jacobians and Hessians of functions of a session's tensors.

The engine's functions, for tensors of any kind: the ops are recorded, and sent when a value is needed.
"""

from telegrad_engine.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
