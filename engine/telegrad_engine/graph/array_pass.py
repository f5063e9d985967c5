"""The fast path of the backward pass: raw arrays, all leaves accumulated, no hooks and no observer.

It does the same as ``_Pass`` in one inlined loop, because for small arrays the calls would take longer than the
arithmetic. ``_Pass`` handles nodes that are not plain (with hooks or a custom backward), and the whole pass if only
some gradients are wanted or for a subclass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cancellation import running
from ..context import state
from ..errors import GraphFreed
from ..schema.memory_admission import LARGE
from .backward_pass import Target, _Pass
from .node import FREED, FREED_TEXT, MultiOutputNode, Node, modified_since

ndarray = np.ndarray


class ArrayPass(_Pass):
    """A pass over raw NumPy arrays."""

    def run(self) -> dict[tuple[Target, int], Any]:
        """Run the pass; ``_Pass.run`` handles it if only some gradients are wanted."""
        if self.wanted is not None or type(self) is not ArrayPass:
            return super().run()
        for target, output_nr, grad in self.roots:
            self.send(target, output_nr, grad, may_mutate=False)
        pending, may_mutate, keep = self.pending, self.may_mutate, self.keep_graph
        F, take, token, memory = self.values.F, pending.pop, running.token, state.memory
        for node in self.order:
            if token is not None:
                token.check()
            grad = take(node, None)
            plan = node.plan
            if grad is None or plan.direct is None or not node.plain or node.evaluate is not None:
                self.visit(node, grad)
                continue
            if node.many:
                grad = tuple(grad)
            elif memory is not None and grad.nbytes > LARGE:
                self.visit(node, grad)
                continue
            holds = plan.holds_tensors
            if holds:
                if node.saved is FREED:
                    raise GraphFreed(FREED_TEXT)
                for _, cell, version in node.versions:
                    if cell[0] != version:
                        raise modified_since(node)
            targets = node.next_edges
            for edge, rule, arguments in plan.direct:
                if not arguments:
                    result = rule(F, grad)
                elif len(arguments) == 1:
                    result = rule(F, grad, node.saved[arguments[0]])
                else:
                    saved = node.saved
                    result = rule(F, grad, *[saved[i] for i in arguments])
                target = targets[edge]
                if (
                    type(target) is Node
                    and target not in pending
                    and result.dtype is target.dtype
                    and result.shape == target.shape
                ):
                    pending[target] = result
                elif type(target) is MultiOutputNode:
                    output_nr = node.output_nrs[edge] if node.output_nrs else 0
                    grads = pending.get(target)
                    if grads is None:
                        grads = pending[target] = [None] * target.width
                    if grads[output_nr] is None and (result.shape, result.dtype) == target.specs[output_nr]:
                        grads[output_nr] = result
                    else:
                        self.send(target, output_nr, result, result is not grad)
                elif (
                    target in may_mutate
                    and type(present := pending.get(target)) is ndarray
                    and present.base is None
                    and result.shape == present.shape
                ):
                    present += result
                    if type(target) is not Node:
                        self._done(target)
                else:
                    self.send(target, node.output_nrs[edge] if node.output_nrs else 0, result, result is not grad)
            if holds and not keep:
                node.saved = FREED
                node.versions = ()
        self.finish()
        return {}
