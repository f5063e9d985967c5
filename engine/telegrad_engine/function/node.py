"""The node of one call of a Function, which runs the user's ``backward``, or ``jvp`` in forward mode."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOperation, ShapeMismatch
from ..functions import Functions
from ..graph import ManyNode, next_sequence
from ..modes import state
from ..plans import Plan, Step
from ..registry import NO_ATTRS
from .ctx import FunctionCtx, is_tensor

if TYPE_CHECKING:
    from ..backward import _Pass


@functools.cache
def _plan(edges: int) -> Plan:
    """A plan that only says that there may be a gradient at every edge."""
    steps = (Step(tuple(range(edges)), _no_rule, (), True),) if edges else ()
    return Plan((), steps, holds_tensors=False, saves_self=False, takes=None, direct=None)


def _no_rule(*_: Any) -> Any:
    raise TypeError("a Function has no rule: its node evaluates itself")


class FunctionNode(ManyNode):
    """The node of one call of a Function. Attributes that a node does not have itself are the ctx's."""

    def __init__(self, ctx: FunctionCtx, outputs: Sequence[Any]) -> None:
        self.ctx = ctx
        self.op = ctx._op  # type: ignore[assignment]
        self.attrs = NO_ATTRS
        self.plan = _plan(len(ctx._next))
        self.sequence = next_sequence()
        self.next, self.slots = ctx._next, ctx._slots
        self.width = len(outputs)
        self.specs = [(o._data.shape, o._data.dtype) if is_tensor(o) else None for o in outputs]
        self.shape, self.dtype = next((spec for spec in self.specs if spec is not None), ((), None))

    def name(self) -> str:
        """The Function's name and ``Backward``."""
        return self.ctx.name()

    def __getattr__(self, name: str) -> Any:
        if name == "ctx":
            raise AttributeError(name)
        return getattr(self.ctx, name)

    # Backward ----------------------------------------------------------------------------

    def evaluate(self, run: _Pass, grads: Sequence[Any]) -> None:
        """Run the user's backward on the outputs' gradients (None where there is none) and pass on what it gives."""
        needed = run.needed
        wanted = [target is not None and (needed is None or target in needed) for target in self.next]
        if not any(wanted):
            for target in self.next:
                run._done(target)
            return
        values = run.values
        enabled, state.grad_enabled = state.grad_enabled, values.recording
        try:
            results = self._backward(
                [self._given(values, grad, spec) for grad, spec in zip(grads, self.specs, strict=True)]
            )
        finally:
            state.grad_enabled = enabled
        for edge, target in enumerate(self.next):
            if wanted[edge]:
                grad = results[edge]
                run.send(target, self._slot(edge), None if grad is None else values.from_tensor(grad), False)
            else:
                run._done(target)
        if not run.keep_graph:
            self.ctx._free()

    def _slot(self, edge: int) -> int:
        return self.slots[edge] if self.slots else 0

    def _given(self, values: Any, grad: Any, spec: Any) -> Any:
        """The gradient of one output as the user's backward takes it."""
        if grad is not None:
            return values.to_tensor(grad)
        return values.zeros(*spec) if spec is not None and self.ctx.materialize_grads else None

    def _backward(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients that the user's backward returns, one per tensor among forward's arguments."""
        results = self.ctx._forward_cls._choose_backward()(self.ctx, *grads)
        results = list(results) if isinstance(results, tuple) else [results]
        expected = len(self.ctx._specs)
        if len(results) > expected and all(result is None for result in results[expected:]):
            del results[expected:]
        if len(results) != expected:
            raise InvalidOperation(
                f"function {self.name()} returned an incorrect number of gradients "
                f"(expected {expected}, got {len(results)})"
            )
        checked: list[Any] = []
        for position, (result, spec) in enumerate(zip(results, self.ctx._specs, strict=True)):
            if spec is not None:
                self._check(result, len(checked))
                checked.append(result)
            elif result is not None:
                raise InvalidOperation(
                    f"function {self.name()} returned a gradient different than None at position {position + 1}, "
                    "but the corresponding forward input was not a Variable"
                )
        return checked

    def _check(self, grad: Any, edge: int) -> None:
        """Whether the gradient can be summed to the shape of the tensor that it belongs to."""
        if grad is not None and not is_tensor(grad):
            raise InvalidOperation(f"expected Variable or None (got {type(grad).__name__})")
        target = self.next[edge]
        if grad is None or target is None:
            return
        shape = target._data.shape if target.is_sink else target.shape
        if self._slot(edge):
            shape = target.specs[self._slot(edge)][0]
        given = grad._data.shape
        lead = len(given) - len(shape)
        if lead < 0 or any(n != 1 and n != m for n, m in zip(shape, given[lead:], strict=True)):
            raise ShapeMismatch(
                f"Function {self.name()} returned an invalid gradient at index {edge} - got {list(given)} "
                f"but expected shape compatible with {list(shape)}"
            )

    # Forward mode ------------------------------------------------------------------------

    def push_forward(self, tangents: Sequence[Any]) -> list[Any]:
        """The outputs' tangents from the inputs': the user's ``jvp``, for whoever differentiates in forward mode.

        ``tangents`` has one tensor or None per edge in ``next``, at least one of them a tensor; the result one
        tensor or None per output. In jvp, ``ctx.saved_tensors`` is what ``save_for_forward`` was given.
        """
        ctx = self.ctx
        zeros = Functions(type(next(t for t in tangents if t is not None))._apply).zeros
        given = iter(tangents)
        arguments = [None if spec is None else next(given) for spec in ctx._specs]
        if ctx.materialize_grads:
            arguments = [
                zeros(spec.shape, dtype=spec.dtype) if spec is not None and argument is None else argument
                for argument, spec in zip(arguments, ctx._specs, strict=True)
            ]
        saved, ctx._saved = ctx._saved, ctx._saved_for_forward
        try:
            result = ctx._forward_cls.jvp(ctx, *arguments)
        finally:
            ctx._saved = saved
        results = list(result) if isinstance(result, tuple) else [result]
        if len(results) != self.width:
            raise InvalidOperation(
                "Function's jvp returned an invalid number of forward gradients "
                f"(expected {self.width} but got {len(results)})"
            )
        for index, tangent in enumerate(results):
            if tangent is not None and not is_tensor(tangent):
                raise InvalidOperation(
                    f"expected Variable or None (got {type(tangent).__name__}) for grad output {index}."
                )
        return results
