"""The verbs for what the client evaluates: Functions whose backward is its own code, and hooks.

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
    """Make computed ``results`` the outputs of a function of ``inputs`` whose backward the client evaluates.

    ``ctx`` is the client's own id of this call of it.
    """
    if not inputs:
        raise InvalidArgument("client_function needs at least one input")
    found: Sequence[Any] = session.suspensions.enter_function(
        inputs, results, function, ctx, dirty, non_differentiable, materialize_grads
    )
    return found


@verb
def client_hook(session: Any, out: Sequence[str], input: Array, *, hook: Str, post_accumulate: Bool = False) -> None:
    """Have passes wait for the client when a tensor's gradient is known, or has been accumulated in a leaf.

    ``hook`` is the client's own id of it.
    """
    session.suspensions.add_hook(input, hook, post_accumulate)


@verb
def client_node_hook(
    session: Any, out: Sequence[str], input: Array, *, hook: Str, path: Ints = (), before: Bool = False
) -> None:
    """Have passes wait for the client when a node's derivatives are known, or before they are computed.

    The node is the one that made the tensor or, with a ``path`` of edges from there, one further back; at a leaf it
    is the one that accumulates its gradient. ``hook`` is the client's own id of it.
    """
    session.suspensions.add_node_hook(input, path, hook, before)


@verb
def remove_client_hook(session: Any, out: Sequence[str], *, hook: Str) -> None:
    """Have passes wait no more at a hook."""
    session.suspensions.remove_hook(hook)


@verb
def resume(session: Any, out: Sequence[str], gradients: Tensors = (), *, call: Str) -> None:
    """Go on with the pass that waits for ``call``, with the gradients that the client computed."""
    session.suspensions.resume(session, call, gradients)


@verb
def cancel(session: Any, out: Sequence[str], *, call: Str) -> None:
    """Give up the pass that waits for ``call``; nothing if none does."""
    if call in session.suspensions.waiting:
        session.suspensions.cancel(session, call)
