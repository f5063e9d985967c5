"""Verbs for functions and hooks that the client evaluates during a backward pass.

See docs/client-evaluated.md for the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument
from ..schema.parameters import Array, Bool, Ints, Str
from .verb_params import Tensors
from .verbs import verb


@verb
def client_function(
    session: Any,
    out: Sequence[str],
    inputs: Tensors,
    results: Tensors,
    *,
    function: Str,
    ctx: Str,
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
def client_hook(session: Any, out: Sequence[str], input: Array, *, hook: Str, post_accumulate: Bool = False) -> None:
    """Suspend backward passes for a client hook after a tensor's gradient is computed, or accumulated into a leaf.

    ``hook`` is the client's id for it.
    """
    session.suspensions.add_hook(input, hook, post_accumulate)


@verb
def client_node_hook(
    session: Any, out: Sequence[str], input: Array, *, hook: Str, path: Ints = (), before: Bool = False
) -> None:
    """Suspend backward passes for a client hook after a node's gradients are computed, or ``before`` they are.

    The node is the tensor's ``grad_fn``, or the node at the end of a ``path`` of edges from there; for a leaf it is
    the node that accumulates the gradient. ``hook`` is the client's id for the hook.
    """
    session.suspensions.add_node_hook(input, path, hook, before)


@verb
def remove_client_hook(session: Any, out: Sequence[str], *, hook: Str) -> None:
    """Remove a client hook."""
    session.suspensions.remove_hook(hook)


@verb
def resume(session: Any, out: Sequence[str], gradients: Tensors = (), *, call: Str) -> None:
    """Resume the backward pass that waits for ``call`` with the gradients that the client computed."""
    session.suspensions.resume(session, call, gradients)


@verb
def cancel(session: Any, out: Sequence[str], *, call: Str) -> None:
    """Cancel the backward pass that waits for ``call``, if there is one."""
    if call in session.suspensions.waiting:
        session.suspensions.cancel(session, call)
