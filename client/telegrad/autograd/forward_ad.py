"""``telegrad.autograd.forward_ad``: forward-mode differentiation, as in torch.

Within a level a tensor may have a tangent. An op on such a tensor is recorded together with its Jacobian-vector
product: the op's derivative, which is linear in the gradient, is differentiated by the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.context import enable_grad
from telegrad_engine.schema.op import Op
from telegrad_engine.transforms.forward_ad import (
    UnpackedDualTensor,
    dual_level,
    enter_dual_level,
    exit_dual_level,
    make_dual,
    unpack_dual,
)
from telegrad_engine.transforms.forward_ad import _is_fwd_grad_enabled as _is_fwd_grad_enabled
from telegrad_engine.transforms.forward_ad import _set_fwd_grad_enabled as _set_fwd_grad_enabled
from telegrad_engine.transforms.tangents import Execute, as_tuple, moving, replaced

from .pullback import Arguments, Outputs, Pullback


def push_tangents(
    execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tangents: Sequence[Any]
) -> tuple[Sequence[Any], Any]:
    """Return the results' tangents and the results, from one execution of the op in the session."""
    pairs = moving(inputs, tangents)
    arguments = Arguments([x for x, _ in pairs])
    with enable_grad():
        result = execute(op, replaced(inputs, tangents, iter(arguments.tensors)), attrs)
        outputs = Outputs(arguments, as_tuple(result))
    found = Pullback(outputs).push([tangent for _, tangent in pairs], False)
    shown = [outputs.outward(output) for output in outputs.tensors]
    return [t if raw.requires_grad else None for t, raw in zip(found, outputs.raws, strict=True)], op.bundle(shown)


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
