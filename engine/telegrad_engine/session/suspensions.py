"""Passes of a session that wait for its client, and how they go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ..autograd.anomaly import under
from ..autograd.custom_function.ctx import FunctionCtx, FunctionOp, is_tensor
from ..autograd.custom_function.outputs import Outputs
from ..autograd.suspension.derivation import Derivation
from ..autograd.suspension.passes import (
    BACKWARD,
    HOOK,
    NODE_HOOK,
    NODE_PREHOOK,
    POST_ACCUMULATE,
    ClientHook,
    ClientNode,
    Stop,
)
from ..context import state
from ..errors import GradRequired, InvalidOperation, InvalidValue, UnknownCall
from ..graph.differentiation import place
from ..graph.hooks import Hooks, around, around_leaf, check_replacement
from ..program.instructions import Instruction, check_id

MAX_WAITING = 100
"""So many passes may wait at the same time."""
MAX_NAME = 128


class Suspended(Exception):
    """Leaves a program whose pass stopped; ``pending`` says what for. No error: the program ends there."""

    def __init__(self, pending: dict[str, Any]) -> None:
        super().__init__(pending)
        self.pending = pending


class Waiting(NamedTuple):
    """A pass that waits."""

    run: Any
    derivation: Derivation
    stop: Stop
    given: list[Any]
    """The gradients as the client has them: tensors and None."""
    pending: dict[str, Any]
    nbytes: int
    anomaly: Any
    """The anomaly mode that it runs in."""


class _Ctx(FunctionCtx):
    """Stands for the client's ctx."""

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        super().__init__(args)
        self._op = FunctionOp(name)

    def name(self) -> str:
        return f"{self._op.key}Backward"


class _Outputs(Outputs):
    node_class = ClientNode


class Suspensions:
    """The passes of one session that wait for its client, by the id of the call that each waits for."""

    def __init__(self) -> None:
        self.waiting: dict[str, Waiting] = {}
        self.expected = False
        """Whether there ever was anything that a pass could stop at."""
        self._hooks: WeakValueDictionary[str, Hooks] = WeakValueDictionary()
        """Where each of the client's hooks is, by its id."""
        self._calls = 0

    # What passes stop at -----------------------------------------------------------------

    def enter_function(
        self,
        inputs: Sequence[Any],
        results: Sequence[Any],
        name: str,
        client_id: str,
        dirty: Sequence[int],
        constant: Sequence[int],
        materialize_grads: bool,
    ) -> tuple[Any, ...]:
        """Give results of a forward that the client computed their place in the graph: ``Function.apply``'s end."""
        if not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise InvalidValue(f"a function's name has 1 to {MAX_NAME} printable characters")
        self.expected = True
        ctx = _Ctx(name, tuple(inputs))
        ctx.materialize_grads = materialize_grads
        ctx.dirty_tensors = _picked(results, dirty, "dirty")
        ctx.non_differentiable = _picked(results, constant, "non_differentiable")
        if not {id(t) for t in ctx.dirty_tensors} <= {id(t) for t in inputs}:
            raise InvalidValue("only inputs can be dirty")
        recording = state.grad_enabled and any(ctx.needs_input_grad)
        enabled = state.grad_enabled
        try:
            state.grad_enabled = False
            entry = _Outputs(ctx, tuple(inputs), tuple(results), recording, False)
            if isinstance(entry.node, ClientNode):
                entry.node.client_id = check_id(client_id)
            entry.enter()
        finally:
            state.grad_enabled = enabled
        entry.save()
        return entry.outputs

    def add_hook(self, tensor: Any, client_id: str, post_accumulate: bool) -> None:
        """Have passes stop at a tensor. Raises what registering a hook there raises."""
        if check_id(client_id) in self._hooks:
            raise InvalidValue(f"there is a hook {client_id!r} already")
        if post_accumulate:
            handle = tensor.register_post_accumulate_grad_hook(ClientHook(client_id, POST_ACCUMULATE))
        else:
            handle = tensor.register_hook(ClientHook(client_id, HOOK))
        self._hooks[client_id] = handle.hooks
        self.expected = True

    def add_node_hook(self, tensor: Any, path: Sequence[int], client_id: str, before: bool) -> None:
        """Have passes stop before or after the derivatives of the node at the end of a path of edges from a tensor."""
        if check_id(client_id) in self._hooks:
            raise InvalidValue(f"there is a hook {client_id!r} already")
        node = _node_at(tensor, path)
        hooks = around_leaf(node) if node.is_leaf_target else around(node)
        add = hooks.add_before if before else hooks.add_after
        self._hooks[client_id] = add(ClientHook(client_id, NODE_PREHOOK if before else NODE_HOOK)).hooks
        self.expected = True

    def remove_hook(self, client_id: str) -> None:
        """Stop no more for this hook; nothing if it is gone."""
        hooks = self._hooks.pop(client_id, Hooks())
        for key, hook in list(hooks.items()):
            if isinstance(hook, ClientHook) and hook.client_id == client_id:
                del hooks[key]

    # Running -----------------------------------------------------------------------------

    def differentiate(self, session: Any, derivation: Derivation, out: Sequence[str] | None) -> Sequence[Any]:
        """Run ``backward`` or ``grad`` and return its results. Raises Suspended where it stops."""
        run = derivation.new_pass()
        with derivation.values:
            stop = run.begin()
            if stop is None:
                return derivation.finish(run.captured)
        if out is None:
            out = [session.new_id() for _ in range(derivation.width)]
        raise self._suspend(session, run, derivation, stop, list(out))

    def resume(self, session: Any, call: str, gradients: Sequence[Any]) -> None:
        """Go on with what the client computed; bind the results when the pass is done. Raises Suspended if it stops.

        Gradients that are refused leave the pass waiting. Another error ends it.
        """
        waiting = self.find(call)
        results = _accepted(waiting, gradients)
        self.cancel(session, call)
        run, derivation = waiting.run, waiting.derivation
        with under(waiting.anomaly), derivation.values:
            if waiting.anomaly is not None and waiting.stop.kind == BACKWARD:
                run.examine(waiting.stop.source, results)
            waiting.stop.then(results)
            stop = run.advance()
            found = derivation.finish(run.captured) if stop is None else ()
            names = waiting.pending["outputs"]
            if stop is not None:
                raise self._suspend(session, run, derivation, stop, names)
        session._check_names(names)
        session._bind(Instruction("resume", outputs=names), found)

    def cancel(self, session: Any, call: str) -> None:
        """Give up a pass that waits: what it has accumulated stays, the rest is dropped."""
        session.accounts.uncount_bytes(self.find(call).nbytes)
        del self.waiting[call]

    def cancel_all(self, session: Any) -> None:
        """Give up all passes that wait."""
        for call in list(self.waiting):
            self.cancel(session, call)

    def find(self, call: str) -> Waiting:
        """The pass that waits for a call. Raises UnknownCall."""
        try:
            return self.waiting[call]
        except KeyError:
            raise UnknownCall(
                f"no pass waits for {call!r:.140}: it was resumed or cancelled, or nobody resumed it in time"
            ) from None

    def _suspend(self, session: Any, run: Any, derivation: Derivation, stop: Stop, out: list[str]) -> Suspended:
        if len(self.waiting) >= MAX_WAITING:
            raise InvalidOperation(f"{MAX_WAITING} passes of this session wait for their client already")
        # Accounted for like tensors: a client may leave many passes waiting.
        nbytes = sum(_sizes(run.pending.values()))
        session.accounts.check_room(nbytes)
        source = stop.source
        with derivation.values:
            if isinstance(source, ClientNode):
                given = source._given(derivation.values, stop.grads)
            else:
                given = [None if grad is None else derivation.values.wrap(grad) for grad in stop.grads]
        self._calls += 1
        call = f"call{self._calls}"
        pending = {
            "call": call,
            "kind": stop.kind,
            "function": source._op.key if isinstance(source, ClientNode) else None,
            "ctx": source.client_id,
            "gradients": [None if tensor is None else session.keep(tensor) for tensor in given],
            "outputs": out,
        }
        session.accounts.count_bytes(nbytes)
        self.waiting[call] = Waiting(run, derivation, stop, given, pending, nbytes, state.anomaly)
        return Suspended(pending)


def _accepted(waiting: Waiting, gradients: Sequence[Any]) -> Sequence[Any]:
    """What the client computed, if it fits. Raises as torch does for a backward or a hook that returns it."""
    source, kind = waiting.stop.source, waiting.stop.kind
    if isinstance(source, ClientNode):
        return source._checked(list(gradients))
    if kind == HOOK:
        if len(gradients) > 1:
            raise InvalidOperation(f"a hook has one gradient to return, not {len(gradients)}")
        replaced = gradients[0] if gradients else None
        # Without a replacement it is what the client was given, which it may have changed in place.
        return waiting.given if replaced is None else [check_replacement(source, replaced, waiting.given[0])]
    if kind in (NODE_PREHOOK, NODE_HOOK) and waiting.stop.replaced:
        return _replaced(waiting, gradients)
    if any(gradient is not None for gradient in gradients):
        if kind == NODE_HOOK:
            raise InvalidOperation("a leaf's gradient is stored by then: its node's hook has nothing to return")
        raise InvalidOperation("a post accumulate grad hook has nothing to return")
    return ()


def _replaced(waiting: Waiting, gradients: Sequence[Any]) -> Sequence[Any]:
    """What a node's hooks returned, if there is something for each gradient that they may replace."""
    given, source = waiting.given[: waiting.stop.replaced], waiting.stop.source
    if not gradients:
        return given
    if len(gradients) != len(given):
        raise InvalidOperation(
            f"hook '{source.client_id}' has returned an incorrect number of values "
            f"(got {len(gradients)}, but expected {len(given)})"
        )
    return [
        None if new is None else check_replacement(source, new, old) for new, old in zip(gradients, given, strict=True)
    ]


def _node_at(tensor: Any, path: Sequence[int]) -> Any:
    """The node, or the leaf, at the end of a path of edges. Raises for a tensor or a path that leads to none."""
    if not tensor.requires_grad:
        raise GradRequired("cannot register a hook on a tensor that doesn't require gradient")
    found = place(tensor)[0]
    for edge in path:
        if found.is_leaf_target or not 0 <= edge < len(found.next_edges) or found.next_edges[edge] is None:
            raise InvalidValue(f"no node is at the end of the path {list(path)!r:.60}")
        found = found.next_edges[edge]
    return found


def _picked(results: Sequence[Any], output_nrs: Sequence[int], what: str) -> tuple[Any, ...]:
    if not all(0 <= output_nr < len(results) and is_tensor(results[output_nr]) for output_nr in output_nrs):
        raise InvalidValue(f"{what} has positions of tensors among the results")
    return tuple([results[output_nr] for output_nr in output_nrs])


def _sizes(gradients: Any) -> Iterator[int]:
    for grad in gradients:
        if isinstance(grad, list):
            yield from _sizes(grad)
        elif grad is not None:
            yield getattr(grad, "_data", grad).nbytes
