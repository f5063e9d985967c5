"""The pass that can stop, and what it stops at: nodes and hooks whose Python is the client's."""

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
"""What the client is asked for: a Function's backward, a tensor's hooks, or a leaf's once it has its gradient."""
NODE_PREHOOK, NODE_HOOK = "node_prehook", "node_hook"
"""Or a node's hooks, before its derivatives or after."""
CANNOT_WAIT = "is evaluated by the client, for which only backward and grad can wait"
Then = Callable[[Sequence[Any]], None]


class Stop:
    """A place at which a pass waits, and how it goes on from there."""

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
        """The gradients that have arrived, as the pass handles them; None where none did."""
        self.specs = specs
        """The shape and dtype of each."""
        self.replaced = len(grads) if replaced is None else replaced
        """How many of them hooks may replace: the first."""
        self.then = then
        """Takes what the client computed, tensors and None; then the pass can be advanced."""


class ClientNode(FunctionNode):
    """The node of a Function that the client evaluates: the pass stops at it."""

    client_id = ""
    """What the client calls it."""

    def evaluate(self, run: Any, grads: Sequence[Any]) -> None:
        """Have the pass stop here before it visits another node."""
        wanted = self._wanted(run)
        if wanted is None:
            return
        if not hasattr(run, "due"):
            raise NotSupported(f"{self.name()} {CANNOT_WAIT}")
        then = partial(self._pass_on, run, wanted)
        run.due.append(Stop(self, BACKWARD, list(grads), self.specs, then))


class ClientHook:
    """Stands among a tensor's hooks for those of the client."""

    def __init__(self, client_id: str, kind: str) -> None:
        self.client_id = self.__name__ = client_id
        """What the client calls it."""
        self.kind = kind

    def __call__(self, grad: Any) -> None:
        """Called by a pass that cannot stop: raises NotSupported. One that can stops after it stored a gradient."""
        if self.kind == HOOK:
            raise NotSupported(f"hook {self.client_id} {CANNOT_WAIT}")


def awaited(hooks: Hooks | None) -> ClientHook | None:
    """The client's hook among others."""
    return next((hook for hook in (hooks or {}).values() if isinstance(hook, ClientHook)), None)


def awaited_around(hooks: NodeHooks | None) -> tuple[ClientHook | None, ClientHook | None]:
    """The client's hooks before and after a node's derivatives."""
    return (None, None) if hooks is None else (awaited(hooks.before), awaited(hooks.after))


def _replacing(grads: list[Any], values: Any) -> Then:
    """Puts what hooks made of gradients in their place."""

    def replace(results: Sequence[Any]) -> None:
        for output_nr in range(min(len(grads), len(results))):
            grads[output_nr] = None if results[output_nr] is None else values.from_tensor(results[output_nr])

    return replace


def _retaining(hooks: TensorHooks) -> TensorHooks:
    """Of a tensor's hooks, only that it retains its gradient."""
    kept = TensorHooks()
    kept.retain = hooks.retain
    return kept


@cache
def suspendable(kind: Any) -> Any:
    """``kind`` of pass, the same but that it stops at what the client evaluates.

    ``begin()`` and ``advance()`` run it up to the next Stop, which they return; None at the end, when ``captured``
    is complete. A Stop's ``then`` comes before the next ``advance()``. After an error it must not be advanced.
    """

    class Suspendable(kind):  # type: ignore[misc]
        stores = False
        """Whether the wanted leaves accumulate their gradients at once."""

        def begin(self) -> Stop | None:
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
                node.evaluate(self, grad)  # also in a shadow, which evaluates nothing else
            else:
                super()._evaluate(node, grad)

        def _evaluate_hooked(self, node: Node, grad: Any) -> None:
            stops = [
                (output_nr, hook) for output_nr, own in sorted(node.hooks.items()) if (hook := awaited(own)) is not None
            ]
            if not stops and awaited_around(node.hooks) == (None, None):
                super()._evaluate_hooked(node, grad)
                return
            goes_on = self.needed is None or any(target in self.needed for target in node.next_edges)
            if self.wanted is not None and goes_on:
                self._capture(node, grad)
            grads = list(grad) if node.many else [grad]
            for output_nr, hook in stops:
                self._wait(hook, grads, output_nr, _specs(node)[output_nr])
            self.due.append(partial(self._after_hooks, node, grads, goes_on))

        def _wait(self, hook: ClientHook, grads: list[Any], output_nr: int, spec: Any) -> None:
            """Stop for a tensor's hooks; what they make of its gradient takes its place in ``grads``."""

            def replace(results: Sequence[Any]) -> None:
                grads[output_nr] = None if results[0] is None else self.values.from_tensor(results[0])

            self.due.append(Stop(hook, hook.kind, [grads[output_nr]], [spec], replace))

        def _after_hooks(self, node: Node, grads: list[Any], goes_on: bool) -> None:
            for output_nr, own in node.hooks.items():
                grads[output_nr] = self.values.run_hooks(_retaining(own), grads[output_nr])
            grad = grads if node.many else grads[0]
            if self.wanted is not None and not goes_on:
                self._capture(node, grad)
            if awaited_around(node.hooks) != (None, None):
                self._surround(node, grads)
                return
            if node.hooks.surround:
                node_evaluation.evaluate(self, node, grad)
            else:
                self._evaluate(node, grad)
            self.may_mutate.discard(node)

        # A node's own hooks: before its derivatives, and after ------------------------------

        def _surround(self, node: Node, grads: list[Any]) -> None:
            if not any(node_evaluation.wants(self, target) for target in node.next_edges):
                self._skip(node)
                return
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
            """A leaf's hooks are due after the node whose derivatives completed its gradient, as in torch."""
            hooks: TensorHooks | None = target._hooks
            hook, after = awaited(hooks), None if hooks is None else awaited(hooks.stored)
            around = awaited_around(None if hooks is None else hooks.around)
            if hook is None and after is None and around == (None, None):
                super()._complete(target)
                return
            grads = [self.pending.pop(target)]
            self.may_mutate.discard(target)
            if hook is not None:
                self._wait(hook, grads, 0, _spec(target))
            self.due.append(partial(self._keep, target, grads, after))

        def _keep(self, target: Any, grads: list[Any], after: ClientHook | None) -> None:
            if self.wanted is not None:
                if (target, 0) not in self.wanted:
                    return
                if not self.stores:
                    self.captured[target, 0] = grads[0]
                    return
            before, _ = awaited_around(target._hooks.around)
            steps: list[Any] = [partial(self._store, target, grads, after)]
            if before is not None:
                steps.insert(0, Stop(before, before.kind, grads, [_spec(target)], _replacing(grads, self.values)))
            self.due.extendleft(reversed(steps))

        def _store(self, target: Any, grads: list[Any], stored: ClientHook | None) -> None:
            if grads[0] is None:
                return
            self.accumulate(target, grads[0], False)
            steps = []
            if stored is not None:
                steps.append(Stop(stored, stored.kind, [], [], lambda results: None))
            _, after = awaited_around(target._hooks.around)
            if after is not None:
                steps.append(Stop(after, after.kind, grads, [_spec(target)], lambda results: None, 0))
            self.due.extendleft(reversed(steps))

    return Suspendable


def _spec(leaf: Any) -> tuple[Any, Any]:
    return leaf._data.shape, leaf._data.dtype


def _specs(node: Node) -> list[Any]:
    """The shapes and dtypes of a node's outputs."""
    return list(node.specs) if node.many else [(node.shape, node.dtype)]
