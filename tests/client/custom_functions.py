"""Functions with a backward of their own, in either library, for tests of what they do.

Internals: what waits in a session is asked with the session's own HTTP client, which has its key.
"""

from __future__ import annotations

from typing import Any

import telegrad as tg


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor(list(values or (1.0, 2.0, 3.0)), dtype=lib.float64, requires_grad=True)


def function(lib: Any, **methods: Any) -> Any:
    """A Function called MyFn with these static methods."""
    return type("MyFn", (lib.autograd.Function,), {name: staticmethod(method) for name, method in methods.items()})


def cube(lib: Any) -> Any:
    """x ** 3, whose backward can be differentiated."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x

    return function(lib, forward=forward, backward=backward)


def double(ctx: Any, x: Any, *rest: Any) -> Any:
    return x * 2


def saving(lib: Any) -> Any:
    """A Function that saves its inputs, None between them, and uses them in backward."""

    def forward(ctx: Any, x: Any, *others: Any) -> Any:
        ctx.save_for_backward(x, None, *others)
        return x * 2

    def backward(ctx: Any, grad: Any) -> Any:
        x, nothing, *others = ctx.saved_tensors
        assert nothing is None
        return (grad * x, *[None for _ in others])

    return function(lib, forward=forward, backward=backward)


def adding(lib: Any) -> Any:
    """A Function that adds one to its input in place; its gradient is times seven."""

    def forward(ctx: Any, x: Any) -> Any:
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    return function(lib, forward=forward, backward=lambda ctx, grad: grad * 7)


def adding_the_second(lib: Any) -> Any:
    """A Function that adds its second input to its first in place."""

    def forward(ctx: Any, a: Any, x: Any) -> Any:
        a.add_(x)
        ctx.mark_dirty(a)
        return a

    return function(lib, forward=forward, backward=lambda ctx, grad: (grad, grad * 3))


def first_two(lib: Any) -> Any:
    """A Function that returns a view of its input."""
    zero = lib.zeros(1, dtype=lib.float64)
    return function(lib, forward=lambda ctx, x: x[:2], backward=lambda ctx, grad: lib.cat([grad * 5, zero]))


def exponential(lib: Any) -> Any:
    """exp(x), whose backward needs the output."""

    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    return function(lib, forward=forward, backward=lambda ctx, grad: grad * ctx.saved_tensors[0])


def nothing_waits(session: tg.Session | None) -> None:
    """Assert that no backward pass of the session, if there is one, waits for the client."""
    if session is None:
        return
    session.flush()
    transport: Any = session.recorder.transport
    if session.url == "local://":
        assert not transport.session.suspensions.waiting
    else:
        answer = transport._client.get(f"/v1/sessions/{transport.session_id}/pending")
        assert answer.json()["items"] == []
