"""``telegrad.autograd.functional``: products with Jacobians and Hessians of functions of a session's tensors.

The engine's functions over this package's ``grad``: the ops are recorded, and sent when a value is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.autograd.functional import Functional

from ..tensor.handle import functions
from .differentiation import grad


def _rows(output: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """The gradients of every element of ``output`` for each input, by one instruction; None for an unused input."""
    count = output.numel()
    basis = functions.eye(count, dtype=output.dtype).reshape((count, *output.shape))
    found: Sequence[Any] = grad(
        (output,), inputs, (basis,), retain_graph=True, allow_unused=True, is_grads_batched=True
    )
    return found


_OURS = Functional(grad, _rows)
vjp, jvp, vhp, hvp = _OURS.vjp, _OURS.jvp, _OURS.vhp, _OURS.hvp
jacobian, hessian = _OURS.jacobian, _OURS.hessian

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
