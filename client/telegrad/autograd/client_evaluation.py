"""``backward`` and ``grad`` through the user's Python code: the session's pass and the client's run in lock step.

Both passes stop at the same points: hooks, and the backward of Functions. At each, the user's code computes with the
gradients that have arrived as with any tensors, and both passes continue with its results. The client knows where the
session's pass stops, so it records the whole exchange without waiting. Only if values decide that (see
:func:`_is_known`), it waits at each stop.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from telegrad_engine.autograd.anomaly import POSITION
from telegrad_engine.autograd.checkpoint import WHOLE_ONLY
from telegrad_engine.autograd.client_evaluation import (
    BACKWARD,
    HOOK,
    NODE_HOOK,
    NODE_PREHOOK,
    POST_ACCUMULATE,
    ClientHook,
    ClientNode,
    Stop,
    new_pass,
)
from telegrad_engine.context import state
from telegrad_engine.errors import InternalError, InvalidOperation
from telegrad_engine.graph.differentiation import Derivation, place
from telegrad_engine.graph.hooks import Handle, NodeHooks, TensorHooks, run_around, run_hooks, run_stored
from telegrad_engine.graph.node import walk
from telegrad_engine.schema.memory_admission import LARGE
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta
from telegrad_engine.tensor.base import TensorBase

from ..tape.recorder import NO_ATTRS, Recorder
from ..tape.segment import Effect
from ..tensor.handle import Tensor, handle, refs


def mark_whole(results: Sequence[Any]) -> None:
    """Mark the nodes that made these tensors: a pass with chosen inputs may not go through them."""
    for result in results:
        if isinstance(result, Tensor) and result.grad_fn is not None:
            result._recorder.whole_graph_nodes.add(result.grad_fn)


def may_stop(tensor: Tensor) -> bool:
    """Whether a pass through the tensor's history may meet the user's Python, or a node from :func:`mark_whole`."""
    recorder = tensor._recorder
    if not (recorder.python_hooks or recorder.whole_graph_nodes) or tensor._lazy is not None or tensor._node is None:
        return False  # a lazy graph has ops alone
    nodes = walk(tensor._node)
    return any(not node.plain or node.evaluate is not None or node in recorder.whole_graph_nodes for node in nodes)


def check_partial(recorder: Recorder, roots: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Raise InvalidOperation if a node from :func:`mark_whole` is between the roots and the inputs."""
    if not recorder.whole_graph_nodes:
        return
    ends = {place(t)[0] for t in inputs}
    for root in roots:
        for node in walk(root.grad_fn) if root.grad_fn is not None else ():
            if node in recorder.whole_graph_nodes and any(
                not ends.isdisjoint(reached.next_edges) for reached in walk(node)
            ):
                raise InvalidOperation(WHOLE_ONLY)


class PythonHooks(ClientHook):
    """The user's hooks of one kind on one tensor or node, registered in the session under one id."""

    def __init__(self, recorder: Recorder, kind: str) -> None:
        super().__init__(recorder.new_id(), kind)
        self.functions = TensorHooks()
        self.leaf: Callable[[], Tensor | None] = lambda: None
        """Return the leaf that post-accumulate hooks are called with."""


class _Current(threading.local):
    shadow: Any = None
    """The client's pass that is running while the user's code is called."""


current = _Current()


def run(recorder: Recorder, derivation: Derivation, begin: Callable[..., None]) -> tuple[Any, ...]:
    """Run the pass in the client graph and in the session, and return the client graph's results.

    ``begin`` records the instruction, with the ids of the gradients at a known stop and attributes for it. After an
    error, including one of the user's code, no pass is left waiting in the session.
    """
    dialogue = _Dialogue(recorder, derivation.values, begin)
    outer = current.shadow
    try:
        # No other thread may record while both passes are at the same stop.
        with recorder.lock, derivation.values:
            shadow = current.shadow = new_pass(derivation)
            try:
                dialogue.known = _is_known(shadow)
                stop = shadow.begin()
                while stop is not None:
                    with _explaining(shadow, stop):
                        dialogue.meet(stop)
                    stop = shadow.advance()
            finally:
                shadow.due = None  # its steps refer to it
            results = derivation.finish(shadow.captured)
        dialogue.end()
    except BaseException:
        dialogue.cancel()
        raise
    finally:
        current.shadow = outer
    return results


@contextmanager
def _explaining(shadow: Any, stop: Stop) -> Iterator[None]:
    """In anomaly mode, explain an error in the user's backward with the call of its forward."""
    try:
        yield
    except Exception as error:
        if state.anomaly is not None and stop.kind == BACKWARD and POSITION not in getattr(error, "context", {}):
            node: Any = stop.source
            state.anomaly.explain(shadow, node, error)
        raise


class _Dialogue:
    """The exchange with the session during one pass."""

    def __init__(self, recorder: Recorder, values: Any, begin: Callable[..., None]) -> None:
        self.recorder, self.values, self.known = recorder, values, False
        self.begin: Callable[..., None] | None = begin
        self.pending: dict[str, Any] | None = None
        """The stop that the session's pass is waiting at."""
        self.reply: list[Any] | None = None
        """The results of the user's code for that stop, recorded later: an error in the client's pass discards them."""

    def meet(self, stop: Stop) -> None:
        """Run the user's code for a stop that the client's pass and the session's have reached."""
        self.values.commit()
        if self.begin is not None or self.reply is not None:
            self._go_on(stop)
        pending = self.pending
        if pending is None or (pending["ctx"], pending["kind"]) != (stop.source.client_id, stop.kind):
            # A derivative produced no gradient, which the client's pass cannot know. It continues as if there were one.
            stop.results = _assumed(stop)
        else:
            self._answer(stop, pending)

    def end(self) -> None:
        """Record what lets the session's pass finish, after the client's pass has ended."""
        if self.pending is not None and self.reply is None:
            raise InternalError(f"the session waits where the shadow does not: {self.pending}")
        self._record()

    def cancel(self) -> None:
        """Cancel the session's pass if it is waiting."""
        if self.pending is not None and not self.recorder.closed:
            self.recorder.emit("cancel", (), (), {"call": self.pending["call"]})

    def _go_on(self, stop: Stop) -> None:
        """Let the session's pass run to its next stop, which is this one if stops are known."""
        if not self.known:
            self.pending = self.recorder.advance(self._record)
            return
        source, call = stop.source, self.recorder.new_id()
        fills = isinstance(source, ClientNode) and source.ctx.materialize_grads  # zeros for gradients that are None
        specs = [s if g is not None or fills else None for g, s in zip(stop.grads, stop.specs, strict=True)]
        if sum([Spec(*spec).nbytes for spec in specs if spec is not None]) > LARGE:
            self.recorder.free_dead()  # the gradients of earlier stops
        gradients = [None if spec is None else self.recorder.new_id() for spec in specs]
        next_stop = {"next_call": call, "next_ctx": source.client_id}
        self._record([name for name in gradients if name is not None], next_stop)
        self.pending = {"call": call, "kind": stop.kind, "ctx": source.client_id, "gradients": gradients}

    def _record(self, given: Sequence[str] = (), next_stop: Mapping[str, Any] = NO_ATTRS) -> None:
        if self.begin is not None:
            begin, self.begin = self.begin, None
            begin(given, next_stop)
        elif self.pending is not None and self.reply is not None:
            reply, attrs, self.reply = refs(self.reply), {"call": self.pending["call"], **next_stop}, None
            effect, self.recorder.received = Effect(received=self.recorder.received), []
            self.recorder.emit("resume", [reply], given, attrs, effect=effect)

    def _answer(self, stop: Stop, pending: dict[str, Any]) -> None:
        grads = [
            None if name is None else self._gradient(name, grad, spec)
            for name, grad, spec in zip(pending["gradients"], stop.grads, stop.specs, strict=True)
        ]
        results = self._evaluate(stop, grads)
        # A hook that returned the gradients themselves, changed in place or not, sends nothing.
        unchanged = stop.kind != BACKWARD and all(map(operator.is_, results, grads))
        self.reply = [] if unchanged else results
        stop.results = results

    def _evaluate(self, stop: Stop, grads: list[Any]) -> list[Any]:
        """Run the user's code on gradients, with the grad mode that torch would set."""
        source: Any = stop.source
        enabled = state.grad_enabled
        try:
            state.grad_enabled = self.values.recording
            if isinstance(source, ClientNode):
                return source._backward(grads)
            if source.kind == HOOK:
                return [run_hooks(source.functions, grads[0])]
            given, outer = tuple(grads[: stop.replaced]), tuple(grads[stop.replaced :])
            if source.kind == NODE_PREHOOK:
                return list(run_around(source.functions, given))
            if source.kind == NODE_HOOK:
                return list(run_around(source.functions, given, outer))
            run_stored(source.leaf(), source.functions)
            return []
        finally:
            state.grad_enabled = enabled

    def _gradient(self, name: str, grad: Any, spec: Any) -> Tensor:
        """A handle for a gradient of the session, with its history from the client graph."""
        if isinstance(grad, Meta) and grad._node is not None and grad._node.leaf is not None:
            self.recorder.release(name)
            return grad._node.leaf  # type: ignore[no-any-return]
        tensor = handle(self.recorder, Spec(*spec), name=name)
        if isinstance(grad, Meta):
            tensor._adopt(grad)
            tensor._version_counter = grad._version_counter
            self.recorder.sharing.add(tensor, tensor)
        return tensor


def _is_known(shadow: Any) -> bool:
    """Whether the client knows all stops of a pass: no value decides which gradients the session has."""
    return state.anomaly is None and all(n.evaluate is None or isinstance(n, ClientNode) for n in shadow.order)


def _assumed(stop: Stop) -> list[Any]:
    """Stand-ins for the results of user code that was not called."""
    if isinstance(stop.source, ClientNode):
        return [None if spec is None else Meta(spec) for spec in stop.source.ctx._specs if spec is not None]
    return [None if grad is None else Meta(Spec(*spec)) for grad, spec in zip(stop.grads, stop.specs, strict=True)]


# Hooks of the user ---------------------------------------------------------------------------------------


class RemovableHandle(Handle):
    """The handle of a registered hook; ``remove()`` removes the hook."""

    def __init__(self, own: PythonHooks, function: Any, place: Handle, recorder: Recorder) -> None:
        super().__init__(own.functions, max(own.functions, default=-1) + 1)
        own.functions.add(function)
        self._own, self._place, self._recorder = own, place, recorder

    def remove(self) -> None:
        """Remove the hook; a second call does nothing. After the last hook, passes no longer stop here."""
        super().remove()
        if len(self._own.functions) == 0:
            self._place.remove()
            if self._recorder.python_hooks.pop(self._own.client_id, None) is not None and not self._recorder.closed:
                self._recorder.emit("remove_client_hook", (), (), {"hook": self._own.client_id})


def register(tensor: Tensor, function: Any) -> Handle:
    """Call ``function(grad)`` when the gradient of ``tensor`` is computed; its result replaces the gradient."""
    hooks = PythonHooks(tensor._recorder, HOOK)
    return add(tensor, function, hooks, TensorBase.register_hook(tensor, hooks), "client_hook", {})


def register_post_accumulate(leaf: Tensor, function: Any) -> Handle:
    """Call ``function(leaf)`` each time the leaf's gradient has been accumulated."""
    hooks = PythonHooks(leaf._recorder, POST_ACCUMULATE)
    place = TensorBase.register_post_accumulate_grad_hook(leaf, hooks)
    return add(leaf, function, hooks, place, "client_hook", {"post_accumulate": True})


def register_on_node(tensor: Tensor, hooks: NodeHooks, path: tuple[int, ...], function: Any, kind: str) -> Handle:
    """Call ``function`` before or after the derivatives of the node at the end of a path of edges from ``tensor``."""
    own = PythonHooks(tensor._recorder, kind)
    before = kind == NODE_PREHOOK
    place = hooks.add_before(own) if before else hooks.add_after(own)
    attrs: dict[str, Any] = {"path": path} if path else {}
    return add(tensor, function, own, place, "client_node_hook", attrs | ({"before": True} if before else {}))


def add(tensor: Tensor, function: Any, own: PythonHooks, place: Handle, verb: str, attrs: dict[str, Any]) -> Handle:
    """Add ``function`` to the existing hooks of this kind, or to ``own``, which was just added at ``place``.

    The instruction ``verb``, with the tensor and these attributes, registers new hooks in the session.
    """
    recorder = tensor._recorder
    key, first = next((key, hooks) for key, hooks in place.hooks.items() if isinstance(hooks, PythonHooks))
    if first is not own:
        place.remove()
        return RemovableHandle(first, function, Handle(place.hooks, key), recorder)
    own.leaf = weakref.ref(tensor)
    recorder.python_hooks[own.client_id] = own
    recorder.emit(verb, [tensor._id], (), {"hook": own.client_id, **attrs})
    return RemovableHandle(own, function, place, recorder)
