"""The fast path of the backward pass: raw arrays, all leaves accumulated, no hooks and no observer.

It does what ``_Pass`` does, spelled out in one loop, because over small arrays the calls would take longer than the
arithmetic. A node that is not plain (hooks, a user's backward) is left to ``_Pass``, as is the whole pass where only
some gradients are wanted, or where a subclass looks on.
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
        """Run the pass; what it captures is for ``_Pass``."""
        if self.wanted is not None or type(self) is not ArrayPass:
            return super().run()
        for target, slot, grad in self.roots:
            self.send(target, slot, grad, private=False)
        pending, owned, keep = self.pending, self.owned, self.keep_graph
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
            targets = node.next
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
                    slot = node.slots[edge] if node.slots else 0
                    grads = pending.get(target)
                    if grads is None:
                        grads = pending[target] = [None] * target.width
                    if grads[slot] is None and (result.shape, result.dtype) == target.specs[slot]:
                        grads[slot] = result
                    else:
                        self.send(target, slot, result, result is not grad)
                elif (
                    target in owned
                    and type(present := pending.get(target)) is ndarray
                    and present.base is None
                    and result.shape == present.shape
                ):
                    present += result
                    if type(target) is not Node:
                        self._done(target)
                else:
                    self.send(target, node.slots[edge] if node.slots else 0, result, result is not grad)
            if holds and not keep:
                node.saved = FREED
                node.versions = ()
        self.finish()
        return {}
