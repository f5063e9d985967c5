"""Verbs for what lasts longer than one instruction: checkpoints, profiles, and passes that wait for the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument, InvalidOperation, InvalidValue
from ..schema.parameters import Array, Arrays, Bool, Int, Ints, Str
from .verb_params import Id, OptionalId, Tensors
from .verbs import verb

MAX_EVENTS, MAX_RANGES = 200_000, 1_000

# Checkpoints ------------------------------------------------------------------------------------------


@verb
def checkpoint(
    session: Any,
    out: Sequence[str],
    inputs: Arrays = (),
    *,
    checkpoint: Str,
    preserve_rng_state: Bool = True,
    determinism_check: Bool = True,
    early_stop: Bool = True,
    selective: Bool = False,
) -> None:
    """Save no tensors for backward in the instructions up to ``end_checkpoint``; backward runs them again instead.

    ``checkpoint`` is the client's id for it; an open checkpoint with this id is ended first. ``inputs`` must not be
    modified in place before backward; other tensors may. With ``preserve_rng_state`` the second run draws the same
    random numbers as the first. With ``early_stop`` it ends as soon as all saved tensors are recomputed. With
    ``determinism_check`` it raises CheckpointError if shapes or dtypes differ. A ``selective`` checkpoint accepts
    ``save_results``.
    """
    options = {"preserve": preserve_rng_state, "compare": determinism_check, "early_stop": early_stop}
    session.checkpoints.begin(checkpoint, inputs, selective, **options)


@verb
def save_results(
    session: Any, out: Sequence[str], tensors: Arrays, *, checkpoint: Str, allow_mutation: Bool = False
) -> None:
    """Save ``tensors``, all outputs of the last instruction, in a selective checkpoint instead of recomputing them.

    If they are modified in place, backward raises an error, or with ``allow_mutation`` recomputes them. Views and
    random draws are always recomputed. Does nothing if the checkpoint has ended.
    """
    session.checkpoints.save_results(checkpoint, tensors, allow_mutation)


@verb
def end_checkpoint(session: Any, out: Sequence[str], *, checkpoint: Str) -> None:
    """End a checkpoint and those inside it. Does nothing if it has ended; a failing instruction ends all."""
    session.checkpoints.end(checkpoint)


# Profiles ---------------------------------------------------------------------------------------------


@verb
def start_profile(
    session: Any,
    out: Sequence[str],
    *,
    record_shapes: Bool = False,
    profile_memory: Bool = False,
    max_events: Int = 20_000,
) -> None:
    """Record the time of each op from now on; ``GET …/profile`` returns the profile.

    The first ``max_events`` ranges, at most 200,000, are kept individually; the averages include all ranges.
    """
    from ..profiler import profile

    if session.profile is not None:
        raise InvalidOperation("a profile of this session runs already; stop_profile ends it")
    if not 0 <= max_events <= MAX_EVENTS:
        raise InvalidValue(f"max_events is 0 to {MAX_EVENTS}, not {max_events}")
    session.profile = profile(record_shapes=record_shapes, profile_memory=profile_memory, max_events=max_events)
    session.profile.start()


@verb
def stop_profile(session: Any, out: Sequence[str]) -> None:
    """End the profile of this session. It can be read until the next one ends."""
    if session.profile is None:
        raise InvalidOperation("no profile of this session runs; start_profile begins one")
    session.profile.stop()
    session.profile, session.profiled, session.ranges = None, session.profile, []


@verb
def begin_range(session: Any, out: Sequence[str], *, name: Str) -> None:
    """Label the instructions up to the matching ``end_range``, if a profile runs."""
    from ..profiler import record_function

    if session.profile is None:
        return
    if len(session.ranges) == MAX_RANGES:
        raise InvalidOperation(f"at most {MAX_RANGES} ranges can be open inside each other")
    session.ranges.append(record_function(name).__enter__())


@verb
def end_range(session: Any, out: Sequence[str]) -> None:
    """End the innermost labelled range. Does nothing if there is none, as after a profile has ended."""
    if session.ranges:
        session.ranges.pop().__exit__()


# Functions and hooks that the client evaluates during a backward pass (docs/client-evaluated.md) --------


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
    found: Sequence[Any] = session.suspensions.enter_function(
        inputs, results, function, ctx, dirty, non_differentiable, materialize_grads
    )
    return found


@verb
def client_hook(session: Any, out: Sequence[str], input: Array, *, hook: Id, post_accumulate: Bool = False) -> None:
    """Suspend backward passes for a client hook after a tensor's gradient is computed, or accumulated into a leaf.

    ``hook`` is the client's id for it.
    """
    session.suspensions.add_hook(input, hook, post_accumulate)


@verb
def client_node_hook(
    session: Any, out: Sequence[str], input: Array, *, hook: Id, path: Ints = (), before: Bool = False
) -> None:
    """Suspend backward passes for a client hook after a node's gradients are computed, or ``before`` they are.

    The node is the tensor's ``grad_fn``, or the node at the end of a ``path`` of edges from there; for a leaf it is
    the node that accumulates the gradient. ``hook`` is the client's id for the hook.
    """
    session.suspensions.add_node_hook(input, path, hook, before)


@verb
def remove_client_hook(session: Any, out: Sequence[str], *, hook: Id) -> None:
    """Remove a client hook."""
    session.suspensions.remove_hook(hook)


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
    session.suspensions.resume(session, call, gradients)


@verb
def cancel(session: Any, out: Sequence[str], *, call: Id) -> None:
    """Cancel the backward pass that waits for ``call``, if there is one."""
    if call in session.suspensions.waiting:
        session.suspensions.cancel(session, call)
