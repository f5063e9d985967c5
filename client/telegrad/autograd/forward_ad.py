"""``telegrad.autograd.forward_ad``: forward-mode differentiation, as in torch.

Within a level a tensor may have a tangent. An op on such a tensor is recorded together with its Jacobian-vector
product: the op's derivative, which is linear in the gradient, is differentiated by the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from telegrad_engine.autograd.forward_ad.functions import EnterLevel, ForwardAD, SwitchForwardMode, UnpackedDualTensor
from telegrad_engine.autograd.forward_ad.level import Execute, Level
from telegrad_engine.autograd.forward_ad.push import as_tuple, moving, push, push_function, push_in_place, replaced
from telegrad_engine.context import enable_grad
from telegrad_engine.graph.differentiation import listed
from telegrad_engine.schema.op import NO_ATTRS, Op

from ..tape.transform_stack import Transform, active, below, entered
from ..tensor.handle import OPS
from .pullback import Arguments, Outputs, Pullback


class DualLevel(Level, Transform):
    """The transform that computes the tangents of results. Levels do not nest."""

    def activated(self) -> AbstractContextManager[None]:
        """Return a context manager in which this is the innermost transform."""
        return entered(self)

    def suspended(self) -> AbstractContextManager[None]:
        """Return a context manager in which tensors have no tangents."""
        return below(self)

    @property
    def is_suspended(self) -> bool:
        """Whether tensors currently have no tangents."""
        return self not in active.stack

    def concerns(self, op: Op, inputs: tuple[Any, ...]) -> bool:
        """Whether one of the inputs has a tangent."""
        return not op.composite and self.has_tangents(inputs)

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        """Apply an op and compute its results' tangents."""
        return push(self, OPS._apply, op, inputs, attrs)

    def apply_inplace(self, tensor: Any, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Any:
        """Change a tensor and its tangent in place, so that views see both."""
        return push_in_place(self, lambda changed, *call: changed._inplace(*call), tensor, op, inputs, attrs)

    def enter_function(self, enter: Any, args: tuple[Any, ...]) -> Any:
        """Run a Function's forward without tangents, and compute them with its ``jvp``."""
        return push_function(self, enter) if self.has_tangents(args) else NotImplemented

    def pushed(
        self, execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tangents: Sequence[Any]
    ) -> tuple[Sequence[Any], Any]:
        """Return the results' tangents and the results, from one execution of the op in the session."""
        pairs = list(moving(inputs, tangents))
        arguments = Arguments([x for x, _ in pairs])
        with enable_grad():
            result = execute(op, replaced(inputs, tangents, iter(arguments.tensors)), attrs)
            outputs = Outputs(arguments, as_tuple(result))
        found = Pullback(outputs).push([tangent for _, tangent in pairs], False)
        shown = [outputs.outward(output) for output in outputs.tensors]
        return [t if raw.requires_grad else None for t, raw in zip(found, outputs.raws, strict=True)], op.bundle(shown)

    def grad(self, grad: Any, outputs: Any, inputs: Any, grad_outputs: Any, options: Mapping[str, Any]) -> Any:
        """``autograd.grad`` for outputs or ``grad_outputs`` with tangents: the results have tangents, too."""
        if not self.enabled:
            return NotImplemented
        seeds = [None] * len(outputs) if grad_outputs is None else listed(grad_outputs)
        given = list(zip(outputs, seeds, strict=False))
        pairs = [(self.of(output), seed) for output, seed in given]
        pairs += [(output, t) for output, seed in given if seed is not None and (t := self.of(seed)) is not None]
        pairs = [(root, seed) for root, seed in pairs if root is not None and root.requires_grad]
        if not pairs:
            return NotImplemented
        with below(self):
            found = grad(outputs, inputs, grad_outputs, **{**options, "retain_graph": True})
            options = {**options, "allow_unused": True, "materialize_grads": False}
            pushed = grad([root for root, _ in pairs], inputs, [seed for _, seed in pairs], **options)
        for result, tangent in zip(found, pushed, strict=True):
            if result is not None and tangent is not None:
                self.give(result, tangent)
        return found


FORWARD_AD = ForwardAD(DualLevel)
enter_dual_level, exit_dual_level = FORWARD_AD.enter_dual_level, FORWARD_AD.exit_dual_level
make_dual, unpack_dual = FORWARD_AD.make_dual, FORWARD_AD.unpack_dual
_is_fwd_grad_enabled = FORWARD_AD.is_enabled


class dual_level(EnterLevel):
    """Forward mode inside a ``with`` block or a decorated function; the context value is the level."""

    functions = FORWARD_AD


class _set_fwd_grad_enabled(SwitchForwardMode):
    functions = FORWARD_AD


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
