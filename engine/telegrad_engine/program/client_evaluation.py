"""Functions and hooks that the client evaluates during a backward pass: their verbs, and the passes of a session that
wait for its client (docs/how-to/client-evaluated.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ..autograd.anomaly import under
from ..autograd.client_evaluation import (
    HOOK,
    NODE_HOOK,
    NODE_PREHOOK,
    POST_ACCUMULATE,
    ClientHook,
    ClientNode,
    Stop,
    new_pass,
)
from ..autograd.custom_function.ctx import FunctionCtx, FunctionOp, is_tensor
from ..autograd.custom_function.function import Outputs
from ..context import state
from ..errors import GradRequired, InvalidArgument, InvalidOperation, InvalidValue, UnknownCall
from ..graph.differentiation import Derivation, node_at
from ..graph.hooks import Hooks, around, check_replacement
from ..schema.parameters import Array, Bool, Ints, Str
from .instructions import Instruction, check_id
from .verb_params import Id, OptionalId, Tensors
from .verbs import verb

MAX_WAITING = 100
"""The maximum number of passes that wait at the same time."""
MAX_NAME = 128


class Suspended(Exception):
    """Ends a program whose backward pass waits for the client; ``pending`` says for which call. It is not an error."""

    def __init__(self, pending: dict[str, Any]) -> None:
        super().__init__(pending)
        self.pending = pending


class Waiting(NamedTuple):
    """A backward pass that waits for the client."""

    run: Any
    derivation: Derivation
    stop: Stop
    given: list[Any]
    """The gradients that the client was given: tensors and None."""
    pending: dict[str, Any]
    nbytes: int
    anomaly: Any
    """The anomaly mode of the pass."""


class _Ctx(FunctionCtx):
    """A placeholder for the client's ``ctx``."""

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        super().__init__(args)
        self._op = FunctionOp(name)

    def name(self) -> str:
        return f"{self._op.key}Backward"


class _Outputs(Outputs):
    node_class = ClientNode


class Suspensions:
    """The backward passes of one session that wait for its client, by the id of the call that each waits for."""

    def __init__(self) -> None:
        self.waiting: dict[str, Waiting] = {}
        self.hooks: WeakValueDictionary[str, Hooks] = WeakValueDictionary()
        """The collection that holds each client hook, by the hook's id."""
        self.calls = 0
        """The number of times that a pass has waited."""

    def check_new(self, hook: str) -> None:
        """Raise InvalidValue if there is a client hook of this id, MalformedRequest if it is no id."""
        if check_id(hook) in self.hooks:
            raise InvalidValue(f"there is a hook {hook!r} already")

    def differentiate(self, session: Any, derivation: Derivation, out: Sequence[str] | None) -> Sequence[Any]:
        """Run ``backward`` or ``grad`` and return its results. Raises Suspended if it must wait for the client."""
        run = new_pass(derivation)
        with derivation.values:
            stop = run.begin()
            if stop is None:
                return derivation.finish(run.captured)
        if out is None:
            out = [session.new_id() for _ in range(derivation.width)]
        raise self.suspend(session, run, derivation, stop, list(out))

    def is_known(self, session: Any, pending: dict[str, Any], instruction: Instruction) -> bool:
        """Whether an instruction's pass stopped where the client knew it would; then use the client's ids for it."""
        waiting, attrs, names = self.waiting[pending["call"]], instruction.attrs, list(instruction.outputs or ())
        call, made = attrs.get("next_call"), [name for name in pending["gradients"] if name is not None]
        if call is None:
            return False
        if instruction.op != "resume":
            width = waiting.derivation.width
            pending["outputs"], names = names[:width], names[width:]
        if check_id(call) in self.waiting or (pending["ctx"], len(made)) != (attrs.get("next_ctx"), len(names)):
            return False
        self.waiting[call] = self.waiting.pop(pending["call"])
        named = dict(zip(made, names, strict=True))
        session.tensors.update([(new, session.tensors.pop(name)) for name, new in named.items()])
        pending |= {"call": call, "gradients": [named.get(name) for name in pending["gradients"]]}
        return True

    def cancel(self, session: Any, call: str) -> None:
        """Cancel a waiting pass: gradients that it has accumulated remain, the rest is dropped."""
        self.remove(session, call).run.due = None  # its steps refer to it

    def remove(self, session: Any, call: str) -> Waiting:
        """Return the pass that waits for a call, which waits no longer. Raises UnknownCall."""
        session.accounts.used_bytes -= self.find(call).nbytes
        return self.waiting.pop(call)

    def find(self, call: str) -> Waiting:
        """Return the pass that waits for a call. Raises UnknownCall."""
        try:
            return self.waiting[call]
        except KeyError:
            raise UnknownCall(
                f"no pass waits for {call!r:.140}: it was resumed or cancelled, or nobody resumed it in time"
            ) from None

    def suspend(self, session: Any, run: Any, derivation: Derivation, stop: Stop, out: list[str]) -> Suspended:
        """Keep a pass that waits for the client. Return what ends the program. Raises InvalidOperation or TooLarge."""
        if len(self.waiting) >= MAX_WAITING:
            raise InvalidOperation(f"{MAX_WAITING} passes of this session wait for their client already")
        # Counted like tensors, because a client may leave many passes waiting.
        nbytes = sum(_sizes(run.pending.values()))
        session.accounts.check_room(nbytes)
        source = stop.source
        with derivation.values:
            if isinstance(source, ClientNode):
                given = source._given(derivation.values, stop.grads)
            else:
                given = [None if grad is None else derivation.values.wrap(grad) for grad in stop.grads]
        self.calls += 1
        call = f"call{self.calls}"
        pending = {
            "call": call,
            "kind": stop.kind,
            "function": source._op.key if isinstance(source, ClientNode) else None,
            "ctx": source.client_id,
            "gradients": [None if tensor is None else session.keep(tensor) for tensor in given],
            "outputs": out,
        }
        session.accounts.used_bytes += nbytes
        self.waiting[call] = Waiting(run, derivation, stop, given, pending, nbytes, state.anomaly)
        return Suspended(pending)


# Verbs ----------------------------------------------------------------------------------------------


@verb
def client_function(
    session: Any,
    out: Sequence[str],
    inputs: Tensors,
    results: Tensors,
    *,
    function: Str,
    ctx: Id,
    dirty: Ints = (),
    non_differentiable: Ints = (),
    materialize_grads: Bool = True,
) -> Sequence[Any]:
    """Record ``results`` as the outputs of a function of ``inputs`` whose backward the client evaluates.

    ``ctx`` is the client's id for this call.
    """
    if not inputs:
        raise InvalidArgument("client_function needs at least one input")
    if not 0 < len(function) <= MAX_NAME or not function.isprintable():
        raise InvalidValue(f"a function's name has 1 to {MAX_NAME} printable characters")
    own = _Ctx(function, tuple(inputs))
    own.materialize_grads = materialize_grads
    own.dirty_tensors = _picked(results, dirty, "dirty")
    own.non_differentiable = _picked(results, non_differentiable, "non_differentiable")
    if not {id(t) for t in own.dirty_tensors} <= {id(t) for t in inputs}:
        raise InvalidValue("only inputs can be dirty")
    # Like the end of Function.apply, after a forward that the client computed.
    enabled = state.grad_enabled
    recording = enabled and any(own.needs_input_grad)
    try:
        state.grad_enabled = False
        entry = _Outputs(own, tuple(inputs), tuple(results), recording, False)
        if isinstance(entry.node, ClientNode):
            entry.node.client_id = check_id(ctx)
        entry.enter()
    finally:
        state.grad_enabled = enabled
    entry.save()
    return entry.outputs


@verb
def client_hook(session: Any, out: Sequence[str], input: Array, *, hook: Id, post_accumulate: Bool = False) -> None:
    """Suspend backward passes for a client hook after a tensor's gradient is computed, or accumulated into a leaf.

    ``hook`` is the client's id for it.
    """
    session.suspensions.check_new(hook)
    add = input.register_post_accumulate_grad_hook if post_accumulate else input.register_hook
    session.suspensions.hooks[hook] = add(ClientHook(hook, POST_ACCUMULATE if post_accumulate else HOOK)).hooks


@verb
def client_node_hook(
    session: Any, out: Sequence[str], input: Array, *, hook: Id, path: Ints = (), before: Bool = False
) -> None:
    """Suspend backward passes for a client hook after a node's gradients are computed, or ``before`` they are.

    The node is the tensor's ``grad_fn``, or the node at the end of a ``path`` of edges from there; for a leaf it is
    the node that accumulates the gradient. ``hook`` is the client's id for the hook.
    """
    session.suspensions.check_new(hook)
    if not input.requires_grad:
        raise GradRequired("cannot register a hook on a tensor that doesn't require gradient")
    hooks = around(node_at(input, path))
    add = hooks.add_before if before else hooks.add_after
    session.suspensions.hooks[hook] = add(ClientHook(hook, NODE_PREHOOK if before else NODE_HOOK)).hooks


@verb
def remove_client_hook(session: Any, out: Sequence[str], *, hook: Id) -> None:
    """Remove a client hook."""
    hooks = session.suspensions.hooks.pop(hook, Hooks())
    for key, found in list(hooks.items()):
        if isinstance(found, ClientHook) and found.client_id == hook:
            del hooks[key]


@verb
def resume(
    session: Any,
    out: Sequence[str],
    gradients: Tensors = (),
    *,
    call: Id,
    next_call: OptionalId = None,
    next_ctx: OptionalId = None,
) -> None:
    """Resume the backward pass that waits for ``call`` with the gradients that the client computed.

    A client that knows the hook or ctx at which the pass stops next, ``next_ctx``, gives an id to the call there,
    ``next_call``, and in ``outputs`` to the gradients. If the pass stops there, the program continues.
    """
    passes = session.suspensions
    waiting = passes.find(call)
    results = _accepted(waiting, gradients)  # if they are invalid, the pass keeps waiting; another error ends it
    passes.remove(session, call)
    derivation, names = waiting.derivation, waiting.pending["outputs"]
    with under(waiting.anomaly), derivation.values:
        waiting.stop.results = results
        stop = waiting.run.advance()
        if stop is not None:
            raise passes.suspend(session, waiting.run, derivation, stop, names)
        found = derivation.finish(waiting.run.captured)
    session._check_names(names)
    session._bind(Instruction("resume", outputs=names), found)


@verb
def cancel(session: Any, out: Sequence[str], *, call: Id) -> None:
    """Cancel the backward pass that waits for ``call``, if there is one."""
    if call in session.suspensions.waiting:
        session.suspensions.cancel(session, call)


def _accepted(waiting: Waiting, gradients: Sequence[Any]) -> Sequence[Any]:
    """Return the client's gradients, if valid. Raises as torch does for a backward or hook that returns others."""
    source, kind = waiting.stop.source, waiting.stop.kind
    if isinstance(source, ClientNode):
        return source._checked(list(gradients))
    if kind == HOOK:
        if len(gradients) > 1:
            raise InvalidOperation(f"a hook has one gradient to return, not {len(gradients)}")
        replaced = gradients[0] if gradients else None
        # Without a replacement, use the gradient that the client was given, which it may have changed in place.
        return waiting.given if replaced is None else [check_replacement(source, replaced, waiting.given[0])]
    if kind in (NODE_PREHOOK, NODE_HOOK) and waiting.stop.replaced:
        return _replaced(waiting, gradients)
    if any(gradient is not None for gradient in gradients):
        if kind == NODE_HOOK:
            raise InvalidOperation("a leaf's gradient is stored by then: its node's hook has nothing to return")
        raise InvalidOperation("a post accumulate grad hook has nothing to return")
    return ()


def _replaced(waiting: Waiting, gradients: Sequence[Any]) -> Sequence[Any]:
    """Return what a node's hook returned, which must be one value for each gradient that it may replace."""
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
