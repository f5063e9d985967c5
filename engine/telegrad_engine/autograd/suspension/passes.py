"""The pass that can stop, and the nodes and hooks it stops at, whose Python code only the client has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from ...errors import NotSupported
from ...graph import node_evaluation
from ...graph.abstract_pass import AbstractPass
from ...graph.hooks import Hooks, NodeHooks, TensorHooks
from ...graph.node import Node
from ..custom_function.node import FunctionNode

BACKWARD, HOOK, POST_ACCUMULATE = "backward", "hook", "post_accumulate_grad_hook"
"""The kinds of stops: a Function's backward, a tensor's hooks, a leaf's hooks after its gradient is accumulated."""
NODE_PREHOOK, NODE_HOOK = "node_prehook", "node_hook"
"""More kinds of stops: a node's hooks before its derivatives, and after."""
CANNOT_WAIT = "is evaluated by the client, for which only backward and grad can wait"
Then = Callable[[Sequence[Any]], None]


class Stop:
    """A point at which a pass waits for the client, and the function that continues it."""

    def __init__(
        self,
        source: ClientNode | ClientHook,
        kind: str,
        grads: Sequence[Any],
        specs: Sequence[Any],
        then: Then,
        replaced: int | None = None,
    ) -> None:
        self.source = source
        self.kind = kind
        self.grads = grads
        """The gradients that have arrived, in the form that the pass uses; None for those that have not."""
        self.specs = specs
        """The shape and dtype of each gradient."""
        self.replaced = len(grads) if replaced is None else replaced
        """The number of gradients, counted from the first, that hooks may replace."""
        self.then = then
        """Takes the client's results, each a tensor or None; then the pass can be advanced."""


class ClientNode(FunctionNode):
    """The node of a Function that the client evaluates: the pass stops at it."""

    client_id = ""
    """The client's identifier of the node."""

    def evaluate(self, run: Any, grads: Sequence[Any]) -> None:
        """Make the pass stop here before it visits another node. Raises NotSupported if it cannot stop."""
        wanted = self._wanted(run)
        if wanted is None:
            return
        if not hasattr(run, "due"):
            raise NotSupported(f"{self.name()} {CANNOT_WAIT}")
        then = partial(self._pass_on, run, wanted)
        run.due.append(Stop(self, BACKWARD, list(grads), self.specs, then))


class ClientHook:
    """A placeholder among the hooks of a tensor or a node for the client's hooks."""

    def __init__(self, client_id: str, kind: str) -> None:
        self.client_id = self.__name__ = client_id
        """The client's identifier of the hook."""
        self.kind = kind

    def __call__(self, grad: Any) -> None:
        """Raise NotSupported for a tensor's hook, which only a pass that cannot stop calls; else do nothing."""
        if self.kind == HOOK:
            raise NotSupported(f"hook {self.client_id} {CANNOT_WAIT}")


def awaited(hooks: Hooks | None) -> ClientHook | None:
    """Return the ClientHook among the hooks, or None."""
    return next((hook for hook in (hooks or {}).values() if isinstance(hook, ClientHook)), None)


def awaited_around(hooks: NodeHooks | None) -> tuple[ClientHook | None, ClientHook | None]:
    """Return the ClientHooks before and after a node's derivatives, each or None."""
    return (None, None) if hooks is None else (awaited(hooks.before), awaited(hooks.after))


def _replacing(grads: list[Any], values: Any) -> Then:
    """Return a function that replaces gradients by the results of hooks."""

    def replace(results: Sequence[Any]) -> None:
        for output_nr in range(min(len(grads), len(results))):
            grads[output_nr] = None if results[output_nr] is None else values.from_tensor(results[output_nr])

    return replace


def _retaining(hooks: TensorHooks) -> TensorHooks:
    """Return a copy of a tensor's hooks with only the retained gradient."""
    kept = TensorHooks()
    kept.retain = hooks.retain
    return kept


@cache
def suspendable(kind: Any) -> Any:
    """Return a subclass of the pass class ``kind`` that stops at the nodes and hooks that the client evaluates.

    ``begin()`` and ``advance()`` run the pass to the next Stop and return it, or None at the end, when ``captured`` is
    complete. Call the Stop's ``then`` before the next ``advance()``. After an error the pass must not be advanced.
    """

    class Suspendable(kind):  # type: ignore[misc]
        stores = False
        """Whether gradients of the wanted leaves are accumulated instead of captured."""

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
            self.due: deque[Stop | Callable[[], None]] = deque()
            self.left: Iterator[Node] | None = iter(self.order)
            for target, output_nr, grad in self.roots:
                self.send(target, output_nr, grad, may_mutate=False)
            return self.advance()

        def advance(self) -> Stop | None:
            while True:
                while self.due:
                    step = self.due.popleft()
                    if isinstance(step, Stop):
                        return step
                    step()
                if self.left is None:
                    return None
                node = next(self.left, None)
                if node is not None:
                    self.visit(node, self.pending.pop(node, None))
                else:
                    self.left = None
                    self.finish()

        def _evaluate(self, node: Node, grad: Any) -> None:
            if isinstance(node, ClientNode):
                node.evaluate(self, grad)  # also in a shadow graph, which evaluates no other nodes
            else:
                super()._evaluate(node, grad)

        def _evaluate_hooked(self, node: Node, grad: Any) -> None:
            stops = [
                (output_nr, hook) for output_nr, own in sorted(node.hooks.items()) if (hook := awaited(own)) is not None
            ]
            if not stops and awaited_around(node.hooks) == (None, None):
                super()._evaluate_hooked(node, grad)
                return
            goes_on = node not in self.ends
            if self.wanted is not None and goes_on:
                self._capture(node, grad)
            grads = list(grad) if node.many else [grad]
            for output_nr, hook in stops:
                self._wait(hook, grads, output_nr, _specs(node)[output_nr])
            self.due.append(partial(self._after_hooks, node, grads, goes_on))

        def _wait(self, hook: ClientHook, grads: list[Any], output_nr: int, spec: Any) -> None:
            """Stop for a tensor's hooks; their result replaces the gradient in ``grads``."""

            def replace(results: Sequence[Any]) -> None:
                grads[output_nr] = None if results[0] is None else self.values.from_tensor(results[0])

            self.due.append(Stop(hook, hook.kind, [grads[output_nr]], [spec], replace))

        def _after_hooks(self, node: Node, grads: list[Any], goes_on: bool) -> None:
            for output_nr, own in node.hooks.items():
                grads[output_nr] = self.values.run_hooks(_retaining(own), grads[output_nr])
            grad = grads if node.many else grads[0]
            if self.wanted is not None and not goes_on:
                self._capture(node, grad)
            if goes_on and awaited_around(node.hooks) != (None, None):
                self._surround(node, grads)
            else:
                self._go_on(node, grad)

        # Hooks before and after a node's derivatives ----------------------------------------

        def _surround(self, node: Node, grads: list[Any]) -> None:
            before, _ = awaited_around(node.hooks)
            if before is not None:
                self.due.append(Stop(before, before.kind, grads, _specs(node), _replacing(grads, self.values)))
            self.due.append(partial(self._differentiate, node, grads))

        def _differentiate(self, node: Node, grads: list[Any]) -> None:
            self.may_mutate.discard(node)
            if not isinstance(node, ClientNode):
                with self.explaining(node):
                    self._after_derivatives(node, grads, self._derivatives(node, grads))
                return
            found = node_evaluation.Collector(self)
            found.due = self.due  # type: ignore[attr-defined]
            node.evaluate(found, grads)
            self.due.append(
                lambda: self._after_derivatives(node, grads, node_evaluation.fitted(self, node, found.results))
            )

        def _derivatives(self, node: Node, grads: list[Any]) -> list[Any]:
            if isinstance(self, AbstractPass):
                given = self.derive(node)
                return [given.get(edge) for edge in range(len(node.next_edges))]
            return list(node_evaluation.results(self, node, tuple(grads)))

        def _after_derivatives(self, node: Node, grads: list[Any], results: Sequence[Any]) -> None:
            passed = list(results)
            self.inspect(node, passed)
            _, after = awaited_around(node.hooks)
            if after is not None:
                specs = [node_evaluation.spec_at(node, edge) for edge in range(len(node.next_edges))] + _specs(node)
                then = _replacing(passed, self.values)
                self.due.append(Stop(after, after.kind, [*passed, *grads], specs, then, len(passed)))
            self.due.append(lambda: node_evaluation.send_on(self, node, passed))

        # Leaves -----------------------------------------------------------------------------

        def _complete(self, target: Any) -> None:
            """Schedule a leaf's hooks after the node whose derivatives completed its gradient, as in torch."""
            hooks: TensorHooks | None = target.leaf._hooks
            hook, after = awaited(hooks), None if hooks is None else awaited(hooks.stored)
            if hook is None and after is None and awaited_around(target.hooks) == (None, None):
                super()._complete(target)
                return
            grads = [self.pending.pop(target)]
            self.may_mutate.discard(target)
            if hook is not None:
                self._wait(hook, grads, 0, (target.shape, target.dtype))
            self.due.append(partial(self._keep, target, grads, after))

        def _keep(self, target: Any, grads: list[Any], after: ClientHook | None) -> None:
            if self.wanted is not None:
                if (target, 0) not in self.wanted:
                    return
                if not self.stores:
                    self.captured[target, 0] = grads[0]
                    return
            before, _ = awaited_around(target.hooks)
            steps: list[Any] = [partial(self._store, target, grads, after)]
            if before is not None:
                steps.insert(0, Stop(before, before.kind, grads, _specs(target), _replacing(grads, self.values)))
            self.due.extendleft(reversed(steps))

        def _store(self, target: Any, grads: list[Any], stored: ClientHook | None) -> None:
            if grads[0] is None:
                return
            self.accumulate(target.leaf, grads[0], False)
            steps = []
            if stored is not None:
                steps.append(Stop(stored, stored.kind, [], [], lambda results: None))
            _, after = awaited_around(target.hooks)
            if after is not None:
                steps.append(Stop(after, after.kind, grads, _specs(target), lambda results: None, 0))
            self.due.extendleft(reversed(steps))

    return Suspendable


def _specs(node: Node) -> list[Any]:
    """Return the shapes and dtypes of a node's outputs."""
    return list(node.specs) if node.many else [(node.shape, node.dtype)]
