"""Errors in registered functions name the line of the definition or the call, in torch's words if it has any."""

from __future__ import annotations

from typing import Any

import pytest

import telegrad as tg
from telegrad_engine.errors import (
    FunctionExists,
    GradcheckError,
    InvalidArgument,
    InvalidFunction,
    InvalidOperation,
    LimitExceeded,
    UnknownFunction,
)

from .parity import same_error
from .registering import double_backward, leaf, line_of, unique, use

pytestmark = pytest.mark.usefixtures("session")


def test_a_second_backward() -> None:
    def twice(lib: Any) -> None:
        x = leaf(lib, [1.0])
        y = use(lib, double_backward(lib), x).sum()
        y.backward()
        y.backward()

    same_error(twice, "a second time")


def test_a_second_derivative_of_what_has_none() -> None:
    def differentiate(lib: Any) -> None:
        class Once(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @lib.autograd.function.once_differentiable
            def backward(ctx: Any, grad: Any) -> Any:
                return grad * 2 * ctx.saved_tensors[0]

        x, v = leaf(lib, [1.0]), leaf(lib, [2.0])
        (g,) = lib.autograd.grad(use(lib, Once, x), x, v, create_graph=True)
        g.sum().backward()
        g.tolist()

    same_error(differentiate, "twice")


def test_what_cannot_be_traced_names_the_line() -> None:
    outside = tg.ones(2)

    def asks(x: Any) -> Any:
        return x * x.sum().item()

    def counts(x: Any) -> Any:
        while x.sum() > 0:
            x = x - 1
        return x

    def reaches(x: Any) -> Any:
        return x * outside

    for function, text in ((asks, "item()"), (counts, "while_loop")):
        with pytest.raises((InvalidOperation, LimitExceeded)) as caught:
            tg.register_function(unique("bad"), function)
        assert line_of(function, 1) in str(caught.value) and text in str(caught.value)
    with pytest.raises(InvalidOperation, match="takes tensors as arguments only"):
        tg.register_function(unique("bad"), reaches)
    assert (outside + 1).tolist() == [2.0, 2.0]


def test_a_leaf_of_its_own() -> None:
    def grows(x: Any) -> Any:
        return (x * tg.tensor([2.0, 3.0], requires_grad=True)).sum()

    name = unique("bad")
    with pytest.raises(InvalidFunction, match="tensor has no attribute 'requires_grad'"):
        tg.register_function(name, grows)
        getattr(tg.ops, name)(tg.ones(2))


def test_too_many_paths() -> None:
    def branches(x: Any) -> Any:
        for index in range(7):
            x = x + 1 if x[index] > 0 else x - 1
        return x

    with pytest.raises(LimitExceeded, match="more than 64 ways") as caught:
        tg.register_function(unique("bad"), branches)
    assert line_of(branches, 2) in str(caught.value)


def test_a_wrong_derivative_is_refused() -> None:
    class Wrong(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * ctx.saved_tensors[0]

    name = unique("wrong")
    with pytest.raises(GradcheckError):
        tg.register_function(name, Wrong, verify=True)
    with pytest.raises(UnknownFunction):
        getattr(tg.ops, name)(tg.ones(1))
    tg.register_function(name, double_backward(tg), verify=True, shapes=[[4]])


def test_too_few_gradients() -> None:
    def differentiate(lib: Any) -> None:
        class Few(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                return x + y

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return grad

        use(lib, Few, leaf(lib, [1.0]), leaf(lib, [1.0])).backward()

    same_error(differentiate, "incorrect number of gradients (expected 2, got 1)")


def test_an_error_inside_is_raised_on_the_line_of_the_call() -> None:
    name = unique("square")
    tg.register_function(name, lambda x: x @ x)
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(1x3 and 1x3\)"):
        getattr(tg.ops, name)(tg.ones(1, 3))
    with pytest.raises(InvalidArgument):
        getattr(tg.ops, name)(3)
    assert getattr(tg.ops, name)(tg.ones(2, 2)).tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_a_broken_definition() -> None:
    bad = {"forward": {"inputs": ["x"], "instructions": [{"op": "nope", "in": ["x"], "out": ["y"]}], "outputs": ["y"]}}
    with pytest.raises(InvalidFunction, match="unknown op 'nope'"):
        tg.register_function(unique("bad"), bad)


def test_a_change_of_an_input_is_refused_where_it_is_written() -> None:
    def marks(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x

    def multiplies(ctx: Any, x: Any) -> Any:
        return x.mul_(2)

    def sets(ctx: Any, x: Any) -> Any:
        x[x < 0] = 0
        return x

    for forward in (marks, multiplies, sets):
        members = {"forward": staticmethod(forward), "backward": staticmethod(lambda ctx, *grads: grads[0])}
        function = type("Changes", (tg.autograd.Function,), members)
        with pytest.raises(InvalidOperation, match="cannot modify its inputs in place; clone them first") as caught:
            tg.register_function(unique("bad"), function)
        assert line_of(forward, 1) in str(caught.value)


# A name that is taken ------------------------------------------------------------------------------


def test_the_name_of_an_op_is_taken(session: tg.Session) -> None:
    for name in ("mul", "relu"):
        with pytest.raises(FunctionExists, match=f"'{name}' is an op of the catalogue"):
            tg.register_function(name, lambda x: x * 2)
    assert session.requests == 0


def test_a_name_that_another_client_has_taken_fails_at_once(session: tg.Session) -> None:
    definition = {
        "name": "doubled",
        "forward": {
            "inputs": ["x"],
            "instructions": [{"op": "mul", "in": ["x", 2], "out": ["y"]}],
            "outputs": ["y"],
        },
    }
    session.recorder.emit("register_function", attrs={"definition": definition})
    session.flush()  # as if another client of the session had registered it
    x = tg.tensor([1.5])
    with pytest.raises(FunctionExists, match="there is a function 'doubled' already"):
        tg.register_function("doubled", lambda x: x * 3)
    assert tg.ops.doubled(x).tolist() == [3.0]
    assert x.tolist() == [1.5]
    tg.register_function("doubled_too", lambda x: x * 2)
    tg.register_function("doubled_too", lambda x: x + x)  # a process may replace its own functions
    assert tg.ops.doubled_too(x).tolist() == [3.0]
