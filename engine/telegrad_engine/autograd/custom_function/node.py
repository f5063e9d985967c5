"""The node of one call of a Function, which runs the user's ``backward``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...context import state
from ...errors import InvalidOperation, ShapeMismatch
from ...graph.backward_pass import _Pass
from ...graph.node import MultiOutputNode, next_sequence
from ...schema.derivative_plan import Plan, Step
from ...schema.op import NO_ATTRS
from .ctx import FunctionCtx, is_tensor


@functools.lru_cache(256)
def _plan(edges: int) -> Plan:
    """Return a plan with a gradient at every edge and no rule."""
    steps = (Step(tuple(range(edges)), _no_rule, (), True),) if edges else ()
    return Plan((), steps, holds_tensors=False, saves_self=False, takes=None, direct=None)


def _no_rule(*_: Any) -> Any:
    raise TypeError("a Function has no rule: its node evaluates itself")


class FunctionNode(MultiOutputNode):
    """The node of one call of a Function. Attributes that the node does not have are looked up on the ctx."""

    def __init__(self, ctx: FunctionCtx, outputs: Sequence[Any]) -> None:
        self.ctx = ctx
        self.op = ctx._op  # type: ignore[assignment]
        self.attrs = NO_ATTRS
        self.plan = _plan(len(ctx._next_edges))
        self.sequence = next_sequence()
        self.next_edges, self.output_nrs = ctx._next_edges, ctx._output_nrs
        self.width = len(outputs)
        self.specs = [(o._data.shape, o._data.dtype) if is_tensor(o) else None for o in outputs]
        self.shape, self.dtype = next((spec for spec in self.specs if spec is not None), ((), None))

    def name(self) -> str:
        """Return the Function's name with ``Backward`` appended."""
        return self.ctx.name()

    def __getattr__(self, name: str) -> Any:
        if name == "ctx":
            raise AttributeError(name)
        return getattr(self.ctx, name)

    # Backward ----------------------------------------------------------------------------

    def evaluate(self, run: _Pass, grads: Sequence[Any]) -> None:
        """Run the user's backward on the outputs' gradients (None if absent), and send its results along the edges."""
        wanted = self._wanted(run)
        if wanted is None:
            return
        values = run.values
        enabled = state.grad_enabled
        try:
            state.grad_enabled = values.recording
            results = self._backward(self._given(values, grads))
        finally:
            state.grad_enabled = enabled
        self._pass_on(run, wanted, results)

    def _wanted(self, run: _Pass) -> list[bool] | None:
        """Return whether each edge's gradient is needed; if none is, mark the targets as done and return None."""
        needed = run.needed
        wanted = [target is not None and (needed is None or target in needed) for target in self.next_edges]
        if any(wanted):
            return wanted
        for target in self.next_edges:
            run._done(target)
        return None

    def _pass_on(self, run: _Pass, wanted: Sequence[bool], results: Sequence[Any]) -> None:
        """Send the results of the user's backward, a tensor or None for each edge."""
        for edge, target in enumerate(self.next_edges):
            if wanted[edge]:
                grad = results[edge]
                run.send(target, self._output_nr(edge), None if grad is None else run.values.from_tensor(grad), False)
            else:
                run._done(target)
        if not run.keep_graph:
            self.ctx._free()

    def _output_nr(self, edge: int) -> int:
        return self.output_nrs[edge] if self.output_nrs else 0

    def _given(self, values: Any, grads: Sequence[Any]) -> list[Any]:
        """Return the outputs' gradients as tensors for the user's backward, with zeros or None for absent ones."""
        fill = self.ctx.materialize_grads
        return [
            values.to_tensor(grad) if grad is not None else values.zeros(*spec) if spec is not None and fill else None
            for grad, spec in zip(grads, self.specs, strict=True)
        ]

    def _backward(self, grads: Sequence[Any]) -> list[Any]:
        """Return the gradients from the user's backward, one for each tensor among forward's arguments."""
        if absent := self.ctx._without_gradient:
            grads = [None if i in absent else grad for i, grad in enumerate(grads)]
        results = self.ctx._forward_cls._choose_backward()(self.ctx, *grads)
        return self._checked(list(results) if isinstance(results, tuple) else [results])

    def _checked(self, results: list[Any]) -> list[Any]:
        """Check the results of a backward, and return those for the tensors among forward's arguments."""
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
        """Raise unless the gradient is None or a tensor that can be summed to the shape of its edge's target."""
        if grad is not None and not is_tensor(grad):
            raise InvalidOperation(f"expected Variable or None (got {type(grad).__name__})")
        target = self.next_edges[edge]
        if grad is None or target is None:
            return
        shape = target.shape
        if self._output_nr(edge):
            shape = target.specs[self._output_nr(edge)][0]
        given = grad._data.shape
        lead = len(given) - len(shape)
        if lead < 0 or any(n != 1 and n != m for n, m in zip(shape, given[lead:], strict=True)):
            raise ShapeMismatch(
                f"Function {self.name()} returned an invalid gradient at index {edge} - got {list(given)} "
                f"but expected shape compatible with {list(shape)}"
            )
