"""``telegrad.autograd.forward_ad``: forward-mode differentiation, as in torch.

Within a level a tensor may have a tangent. An op on such a tensor is recorded together with its Jacobian-vector
product: the op's derivative, which is linear in the gradient, is differentiated by the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telegrad_engine.context import below, enable_grad
from telegrad_engine.graph.differentiation import listed
from telegrad_engine.instrumentation import Run
from telegrad_engine.schema.op import Op
from telegrad_engine.transforms import forward_ad as engine_forward_ad
from telegrad_engine.transforms.forward_ad import UnpackedDualTensor, exit_dual_level, make_dual, unpack_dual
from telegrad_engine.transforms.forward_ad import _is_fwd_grad_enabled as _is_fwd_grad_enabled
from telegrad_engine.transforms.forward_ad import _set_fwd_grad_enabled as _set_fwd_grad_enabled
from telegrad_engine.transforms.tangents import Execute, Level, as_tuple, moving, replaced

from .pullback import Arguments, Outputs, Pullback


class DualLevel(Level):
    """The level that pushes tangents through the operations that are recorded."""

    def pushed(
        self, execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tangents: Sequence[Any]
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

    def _remember(self, outputs: Sequence[Any], tangents: Sequence[Any], results: Sequence[Any]) -> None:
        """Do nothing: the session has the saved tensors."""

    def grad(self, run: Run, outputs: Any, inputs: Any, grad_outputs: Any, options: Mapping[str, Any]) -> Any:
        """``autograd.grad`` for outputs or ``grad_outputs`` with tangents: the results have tangents, too."""
        grad = super().grad
        if not self.enabled:
            return grad(run, outputs, inputs, grad_outputs, options)
        seeds = [None] * len(outputs) if grad_outputs is None else listed(grad_outputs)
        given = list(zip(outputs, seeds, strict=False))
        pairs = [(self.of(output), seed) for output, seed in given]
        pairs += [(output, t) for output, seed in given if seed is not None and (t := self.of(seed)) is not None]
        pairs = [(root, seed) for root, seed in pairs if root is not None and root.requires_grad]
        if not pairs:
            return grad(run, outputs, inputs, grad_outputs, options)
        with below(self):
            found = grad(run, outputs, inputs, grad_outputs, {**options, "retain_graph": True})
            options = {**options, "allow_unused": True, "materialize_grads": False}
            pushed = grad(run, [root for root, _ in pairs], inputs, [seed for _, seed in pairs], options)
        for result, tangent in zip(found, pushed, strict=True):
            if result is not None and tangent is not None:
                self.give(result, tangent)
        return found


def enter_dual_level() -> int:
    """Begin forward mode on this thread, and return the level, which is 0.

    Raises InvalidOperation inside a level.
    """
    return engine_forward_ad.enter_dual_level(DualLevel)


class dual_level(engine_forward_ad.dual_level):
    """Forward mode inside a ``with`` block or a decorated function; the context value is the level."""

    _kind = DualLevel


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
