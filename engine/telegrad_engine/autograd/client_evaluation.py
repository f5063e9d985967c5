"""Backward passes that wait for Python code that only the client has: a Function's backward or a hook.

A pass is a loop over a sorted list, so a waiting pass is an object that stops, and continues with the results from the
client. The session keeps the waiting passes. The SDK runs the same pass on its shadow graph, so that it knows where the
session stops, and both run in lockstep.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from typing import Any

from ..context import state
from ..errors import NotSupported
from ..graph import node_evaluation
from ..graph.backward_pass import observed
from ..graph.differentiation import Derivation
from ..graph.hooks import Hooks
from ..graph.node import Node
from ..graph.node_evaluation import Steps
from .anomaly import watchful
from .custom_function.function import FunctionNode

BACKWARD, HOOK, POST_ACCUMULATE = "backward", "hook", "post_accumulate_grad_hook"
"""The kinds of stops: a Function's backward, a tensor's hooks, a leaf's hooks after its gradient is accumulated."""
NODE_PREHOOK, NODE_HOOK = "node_prehook", "node_hook"
"""More kinds of stops: a node's hooks before its derivatives, and after."""
CANNOT_WAIT = "is evaluated by the client, for which only backward and grad can wait"
AT_THE_END = f"{CANNOT_WAIT}, but not at a node where backward(inputs=...) ends; register it on the tensor instead"


class Stop:
    """A point at which a pass waits for the client. Set its ``results`` before the pass is advanced."""

    def __init__(
        self, source: ClientNode | ClientHook, grads: Sequence[Any], specs: Sequence[Any], replaced: int
    ) -> None:
        self.source = source
        self.kind = source.kind
        self.grads = grads
        """The gradients that have arrived, in the form that the pass uses; None for those that have not."""
        self.specs = specs
        """The shape and dtype of each gradient."""
        self.replaced = replaced
        """The number of gradients, counted from the first, that hooks may replace."""
        self.results: Sequence[Any] = ()
        """The client's results, each a tensor or None."""


class ClientNode(FunctionNode):
    """The node of a Function that the client evaluates: the pass stops at it."""

    kind = BACKWARD
    client_id = ""
    """The client's identifier of the node."""

    def evaluate(self, run: Any, grads: Sequence[Any]) -> None:
        """Make the pass stop here before it visits another node. Raises NotSupported if it cannot stop."""
        wanted = self._wanted(run)
        if wanted is not None:
            if getattr(run, "due", None) is None:
                raise NotSupported(f"{self.name()} {CANNOT_WAIT}")
            run.due.append(self._answered(run, wanted, grads))

    def _answered(self, run: Any, wanted: Sequence[bool], grads: Sequence[Any]) -> Steps:
        stop = Stop(self, list(grads), self.specs, len(grads))
        yield stop
        self._pass_on(run, wanted, stop.results)


class ClientHook:
    """A placeholder among the hooks of a tensor or a node for the client's hooks."""

    def __init__(self, client_id: str, kind: str) -> None:
        self.client_id = self.__name__ = client_id
        """The client's identifier of the hook."""
        self.kind = kind

    def __call__(self, *grads: Any) -> None:
        """Raise NotSupported, because no pass stops here; a hook on an accumulated gradient does nothing."""
        if self.kind != POST_ACCUMULATE:
            raise NotSupported(f"hook {self.client_id} {CANNOT_WAIT if self.kind == HOOK else AT_THE_END}")


@cache
def suspendable(kind: Any) -> Any:
    """Return a subclass of the pass class ``kind`` that stops at the nodes and hooks that the client evaluates.

    ``begin()`` and ``advance()`` run the pass to the next Stop and return it, or None at the end, when ``captured`` is
    complete. Set the Stop's ``results`` before the next ``advance()``. After an error the pass must not be advanced.
    """

    class Suspendable(kind):  # type: ignore[misc]
        @property
        def may_stop(self) -> bool:
            """Whether it meets hooks or Functions, which may be the client's."""
            nodes = self.order if self.needed is None else filter(self.needed.__contains__, self.order)
            leaves = self.waiting if self.wanted is None else [target for target, _ in self.wanted]
            return any(not node.plain or node.evaluate is not None for node in nodes) or any(
                target.leaf is not None and target.leaf._hooks is not None for target in leaves
            )

        def begin(self) -> Stop | None:
            if not self.may_stop:
                self.__class__ = kind  # nothing else in the session matters to it
                self.captured = self.run()
                return None
            self.due: deque[Steps] = deque()
            self.left: Iterator[Node] | None = iter(self.order)
            for target, output_nr, grad in self.roots:
                self.send(target, output_nr, grad, may_mutate=False)
            return self.advance()

        def advance(self) -> Stop | None:
            while True:
                while self.due:
                    stop: Stop | None = next(self.due[0], None)
                    if stop is not None:
                        return stop
                    self.due.popleft()
                if self.left is None:
                    return None
                node = next(self.left, None)
                if node is not None:
                    self.visit(node, self.pending.pop(node, None))
                else:
                    self.left = None
                    self.finish()

        def _run_steps(self, steps: Steps) -> None:
            """Schedule steps: a leaf's come after those of the node that completed its gradient, as in torch."""
            self.due.append(steps)

        def _evaluate(self, node: Node, grad: Any) -> None:
            if isinstance(node, ClientNode):
                self._run_steps(node_evaluation.evaluate(self, node, tuple(grad)))
            else:
                super()._evaluate(node, grad)

        def results(self, node: Node, grads: tuple[Any, ...]) -> Steps:
            if isinstance(node, ClientNode):  # also in a shadow graph, which evaluates no other nodes
                return node_evaluation.results(self, node, grads)
            found: Steps = super().results(node, grads)
            return found

        def wait(self, hooks: Hooks | None, grads: tuple[Any, ...], outer: tuple[Any, ...] = ()) -> Steps:
            awaited = next((hook for hook in (hooks or {}).values() if isinstance(hook, ClientHook)), None)
            if hooks is None or awaited is None:
                return hooks, grads
            given = [*grads, *outer]
            data = [None if grad is None else self.values.data(grad) for grad in given]
            specs = [None if found is None else (found.shape, found.dtype) for found in data]
            stop = Stop(awaited, given, specs, len(grads))
            yield stop
            others = copy(hooks)
            for key in [key for key, hook in hooks.items() if isinstance(hook, ClientHook)]:
                del others[key]
            found = [None if t is None else self.values.from_tensor(t) for t in stop.results[: len(grads)]]
            return others, (*found, *grads[len(found) :])

    return Suspendable


def new_pass(derivation: Derivation) -> Any:
    """Return a new pass for a call of ``backward`` or ``grad`` that can stop and continue."""
    values, accumulate = observed(derivation.values, derivation.values.accumulate)
    kind = values.Pass if state.anomaly is None else watchful(values.Pass)
    found = suspendable(kind)(derivation.roots, values, derivation.keep_graph, derivation.wanted, accumulate)
    found.stores = derivation.stores
    return found
