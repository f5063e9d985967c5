"""Registered functions through the SDK: traced here, run in the session, held against torch's own Functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import torch

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

from .parity import same, same_error

pytestmark = pytest.mark.usefixtures("session")
_numbers = itertools.count()


def unique(name: str) -> str:
    """A name that no other test's function has: the process remembers them."""
    return f"{name}_{next(_numbers)}"


def use(lib: Any, function: Any, *args: Any, **options: Any) -> Any:
    """Apply a Function: torch's own way, or registered."""
    if lib is torch:
        return function.apply(*args)
    name = unique("function")
    lib.register_function(name, function, **options)
    return getattr(lib.ops, name)(*args)


def leaf(lib: Any, values: Any) -> Any:
    return lib.tensor(values, dtype=lib.float64, requires_grad=True)


# The functions of the articles --------------------------------------------------------------------


def custom_relu(lib: Any) -> Any:
    class CustomReLU(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, input: Any) -> Any:
            ctx.save_for_backward(input)
            return input.clamp(min=0)

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            (input,) = ctx.saved_tensors
            grad_input = grad_output.clone()
            grad_input[input < 0] = 0
            return grad_input

    return CustomReLU


def power(lib: Any) -> Any:
    class FunctionWithNonTensorInput(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, power: Any) -> Any:
            ctx.power = power
            ctx.save_for_backward(x)
            return x**power

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad_output * ctx.power * x ** (ctx.power - 1), None

    return FunctionWithNonTensorInput


def double_backward(lib: Any) -> Any:
    class MyDoubleBackwardFn(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad_output

    return MyDoubleBackwardFn


def conditional(lib: Any) -> Any:
    class ConditionalComputation(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            if x.sum() > 0:  # noqa: SIM108 - as the article has it
                output = x * 2
            else:
                output = x / 2
            return output

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            (x,) = ctx.saved_tensors
            if x.sum() > 0:  # noqa: SIM108
                grad_input = grad_output * 2
            else:
                grad_input = grad_output / 2
            return grad_input

    return ConditionalComputation


def rnn_cell(lib: Any) -> Any:
    class MyRNNCell(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, hx: Any, wx: Any, wh: Any, b: Any) -> Any:
            ctx.save_for_backward(x, hx, wx, wh)
            return lib.tanh(x @ wx + hx @ wh + b)

        @staticmethod
        def backward(ctx: Any, grad_h_next: Any) -> Any:
            x, hx, wx, wh = ctx.saved_tensors
            grads = grad_h_next @ wx.t(), grad_h_next @ wh.t(), x.t() @ grad_h_next, hx.t() @ grad_h_next
            return (*grads, grad_h_next.sum(0))

    return MyRNNCell


def the_relu(lib: Any) -> Any:
    x = lib.tensor([-2, -1, 0, 1, 2], dtype=lib.float32, requires_grad=True)
    output = use(lib, custom_relu(lib), x)
    output.backward(lib.ones_like(x))
    return output, x.grad


def the_power(lib: Any) -> Any:
    function, found = power(lib), []
    for exponent in (3, 2.5, 1):
        x = leaf(lib, [2.0, 3.0])
        y = use(lib, function, x, exponent)
        y.sum().backward()
        found.append((y, x.grad))
    return found


def the_second_order(lib: Any) -> Any:
    x = leaf(lib, [[-1.5, 0.5], [2.0, 3.0]])
    y = use(lib, double_backward(lib), x)
    (first,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = lib.autograd.grad(second.sum(), x)
    return y, first, second, third


def both_branches(lib: Any) -> Any:
    function, found = conditional(lib), []
    for values in ([-1.0, 1.0, -1.0, 1.0], [1.0, 2.0, 3.0], [[-5.0]]):
        x = leaf(lib, values)
        y = use(lib, function, x)
        y.backward(lib.ones_like(x))
        found.append((y, x.grad))
    return found


def a_recurrence(lib: Any) -> Any:
    generator = np.random.default_rng(0)
    made = [leaf(lib, generator.standard_normal(s).tolist()) for s in ((3, 3), (3, 3), (3,), (2, 3))]
    wx, wh, b, h = made
    xs = [leaf(lib, generator.standard_normal((2, 3)).tolist()) for _ in range(4)]
    function = rnn_cell(lib)
    if lib is torch:
        step: Callable[..., Any] = function.apply
    else:
        name = unique("cell")
        lib.register_function(name, function)
        step = getattr(lib.ops, name)
    state = h
    for x in xs:
        state = step(x, state, wx, wh, b)
    state.backward(lib.ones_like(state))
    return state, [t.grad for t in (*made, *xs)]


# What Functions do besides ------------------------------------------------------------------------


def several_outputs(lib: Any) -> Any:
    class Split(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(x: Any, scale: float = 2.0) -> Any:
            return x * scale, (x > 0).to(dtype=lib.float64), x.sum()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _, ctx.scale = inputs
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * ctx.scale + grads[2], None

    x = leaf(lib, [1.0, -2.0])
    a, b, c = use(lib, Split, x, 3.0)
    (a * a).sum().backward(retain_graph=True)
    first = x.grad.clone()
    (a.sum() + c * c).backward()
    return a, b, c, first, x.grad


def no_gradient_for_one(lib: Any) -> Any:
    class First(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x + y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, None

    x, y = leaf(lib, [1.0]), leaf(lib, [2.0])
    use(lib, First, x, y).sum().backward()
    return x.grad, y.grad


def sizes_of_inputs(lib: Any) -> Any:
    class Mean(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.count, ctx.shape = x.shape[0], x.shape
            return x.sum(0) / ctx.count

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return (grad / ctx.count).expand(ctx.shape)

    found = []
    for shape in ((4,), (2, 3), (5, 2, 2)):
        x = leaf(lib, np.arange(np.prod(shape)).reshape(shape).tolist())
        y = use(lib, Mean, x)
        (y * y).sum().backward()
        found.append((y, x.grad))
    return found


def a_tensor_on_ctx(lib: Any) -> Any:
    class Masked(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mask = x > 0
            out = x.clone()
            out[~ctx.mask] *= lib.tensor(0.1, dtype=lib.float64)
            return out.mul_(2)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return lib.where(ctx.mask, grad * 2, grad * 0.2)

    x = leaf(lib, [-1.0, 2.0, -3.0])
    y = use(lib, Masked, x)
    y.sum().backward()
    return y, x.grad


ALIKE = [
    the_relu,
    the_power,
    the_second_order,
    both_branches,
    a_recurrence,
    several_outputs,
    no_gradient_for_one,
    sizes_of_inputs,
    a_tensor_on_ctx,
]


@pytest.mark.parametrize("function", ALIKE)
def test_like_torch(function: Any) -> None:
    same(function)


def test_a_second_backward() -> None:
    def twice(lib: Any) -> None:
        x = leaf(lib, [1.0])
        y = use(lib, double_backward(lib), x).sum()
        y.backward()
        y.backward()

    same_error(twice, "a second time")


def test_a_second_derivative_of_what_has_none() -> None:
    def differentiate(lib: Any) -> None:
        class Once(lib.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @lib.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
            def backward(ctx: Any, grad: Any) -> Any:
                return grad * 2 * ctx.saved_tensors[0]

        x, v = leaf(lib, [1.0]), leaf(lib, [2.0])
        (g,) = lib.autograd.grad(use(lib, Once, x), x, v, create_graph=True)
        g.sum().backward()
        g.tolist()

    same_error(differentiate, "twice")


def test_shapes_are_known_without_asking(session: tg.Session) -> None:
    name = unique("relu")
    tg.register_function(name, custom_relu(tg))
    x = tg.ones(3, 4, requires_grad=True)
    before = session.requests
    y = getattr(tg.ops, name)(x)
    y.sum().backward()
    assert (tuple(y.shape), y.requires_grad, x.grad.shape, session.requests) == ((3, 4), True, (3, 4), before)
    assert type(y.grad_fn).__name__ == "FunctionNode" and x.grad.tolist() == [[1.0] * 4] * 3
    assert session.requests == before + 1


def test_plain_functions_branches_and_parameters() -> None:
    name = unique("reduced")

    @tg.register_function(name)  # type: ignore[untyped-decorator]
    def reduced(x: Any, reduction: str = "mean", scale: float = 1.0) -> Any:
        if reduction == "mean":
            return x.mean() * scale
        if reduction == "sum":
            return x.sum() * scale
        return x * scale

    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    call = getattr(tg.ops, name)
    assert [call(x).item(), call(x, "sum").item(), call(x, reduction="none", scale=2.0).tolist()] == [2, 6, [2, 4, 6]]
    call(x, "sum", 3.0).backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]
    for wrong in ((x, 3), (x, "sum", x), (), (x, "sum", 1.0, 2.0)):
        with pytest.raises(TypeError):
            call(*wrong)


def test_code_that_needs_an_example() -> None:
    def rows(x: Any) -> Any:
        total = 0
        for row in x:
            total = total + row * row
        return total

    name = unique("rows")
    tg.register_function(name, rows)  # traced when it is called
    for count in (2, 3, 2):
        x = tg.arange(count * 2, dtype=tg.float64).reshape(count, 2)
        np.testing.assert_allclose(getattr(tg.ops, name)(x).numpy(), (x.numpy() ** 2).sum(0))


def test_a_function_of_functions() -> None:
    inner, outer = unique("inner"), unique("outer")
    tg.register_function(inner, power(tg))
    tg.register_function(outer, lambda x: getattr(tg.ops, inner)(x, 3) + getattr(tg.ops, inner)(x, 2))
    x = tg.tensor([2.0], requires_grad=True)
    y = getattr(tg.ops, outer)(x)
    y.backward()
    assert (y.item(), x.grad.item()) == (12.0, 16.0)


def test_registered_again_it_is_the_new_one() -> None:
    name = unique("again")
    x = tg.tensor([3.0])
    for factor in (2, 5):
        tg.register_function(name, lambda x, factor=factor: x * factor)
        assert getattr(tg.ops, name)(x).item() == 3 * factor


# Errors -------------------------------------------------------------------------------------------


def line_of(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


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
        class Few(lib.autograd.Function):  # type: ignore[misc]
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


# Other sessions, other languages ------------------------------------------------------------------


@pytest.fixture
def shared(session: tg.Session) -> Iterator[str]:
    name = unique("shared")
    tg.register_function(name, custom_relu(tg), scope="server")
    yield name
    tg.remove_function(name, scope="server")
    with pytest.raises(UnknownFunction):
        getattr(tg.ops, name)(tg.ones(1))


def test_a_function_of_the_server(address: str, shared: str) -> None:
    from telegrad import ops

    del ops._functions[shared]  # as in another process
    with tg.connect(address):
        x = tg.tensor([-1.0, 2.0], requires_grad=True)
        y = getattr(tg.ops, shared)(x)
        y.sum().backward()
        assert (y.tolist(), x.grad.tolist()) == ([0.0, 2.0], [0.0, 1.0])
    tg.register_function(shared, custom_relu(tg), scope="server")  # the same once more
    with pytest.raises(FunctionExists):
        tg.register_function(shared, power(tg), scope="server")


def test_from_json_to_the_sdk_and_back(server: str) -> None:
    with tg.connect(server) as session:
        path = f"{server}/v1/sessions/{session.recorder.transport.session_id}"  # type: ignore[attr-defined]
        cube = {
            "name": "cube",
            "forward": {
                "inputs": ["x"],
                "instructions": [{"op": "pow", "in": ["x", 3], "out": ["y"]}],
                "outputs": ["y"],
                "saves": ["x"],
            },
            "backward": {
                "inputs": ["x", "g"],
                "instructions": [
                    {"op": "square", "in": ["x"], "out": ["s"]},
                    {"op": "mul", "in": ["s", "g"], "out": ["p"]},
                    {"op": "mul", "in": ["p", 3], "out": ["gx"]},
                ],
                "outputs": ["gx"],
            },
        }
        assert httpx.post(f"{path}/functions", json=cube).status_code == 201
        x = tg.tensor([2.0, -1.0], requires_grad=True)
        y = tg.ops.cube(x)
        (g,) = tg.autograd.grad(y.sum(), x, create_graph=True)
        g.sum().backward()
        assert (y.tolist(), g.tolist(), x.grad.tolist()) == ([8.0, -1.0], [12.0, 3.0], [12.0, -6.0])

        name = unique("relu")
        tg.register_function(name, custom_relu(tg))
        session.flush()
        assert httpx.post(f"{path}/tensors", json={"id": "mine", "data": [-1.0, 4.0]}).status_code == 201
        answer = httpx.post(f"{path}/functions/{name}/apply", json={"inputs": ["mine"]}, params={"data": True})
        assert answer.json()["outputs"][0]["data"] == [0.0, 4.0]


# Loops --------------------------------------------------------------------------------------------


def halve_until_small(x: Any) -> Any:
    (result,) = tg.while_loop(lambda v: v.abs().max() > 1, lambda v: v / 2, (x,))
    return result


def running(h: Any, xs: Any) -> Any:
    return tg.scan(lambda h, x: (tg.tanh(h + x), h * x), (h,), (xs,))


def test_loops_that_depend_on_values() -> None:
    name = unique("halve")
    tg.register_function(name, halve_until_small)
    for function in (halve_until_small, getattr(tg.ops, name)):
        x = tg.tensor([12.0, -3.0], requires_grad=True)
        y = function(x)
        y.sum().backward()
        assert (y.tolist(), x.grad.tolist()) == ([0.75, -0.1875], [0.0625, 0.0625])


def test_loops_over_a_sequence() -> None:
    name = unique("running")
    tg.register_function(name, running)
    found = []
    for function in (running, getattr(tg.ops, name)):
        h, xs = leaf(tg, [0.5, -0.5]), leaf(tg, [[1.0, 2.0], [0.3, -0.2], [-1.0, 0.1]])
        last, products = function(h, xs)
        (last.sum() + (products * products).sum()).backward()
        found.append([last.tolist(), products.tolist(), h.grad.tolist(), xs.grad.tolist()])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_a_gradients_dtype_is_no_device() -> None:
    def run(lib: Any) -> Any:
        class MaskedReLU(lib.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x.clamp(min=0)

            @staticmethod
            def backward(ctx: Any, grad_output: Any) -> Any:
                (x,) = ctx.saved_tensors
                return grad_output * (x > 0).to(grad_output.dtype)

        x = leaf(lib, [1.0, -2.0, 3.0])
        use(lib, MaskedReLU, x * 2).sum().backward()
        return x.grad

    same(run)


# What values decide -------------------------------------------------------------------------------


def plain(lib: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function: as it is, or registered."""
    if lib is torch:
        return function
    name = unique("plain")
    lib.register_function(name, function)
    registered: Callable[..., Any] = getattr(lib.ops, name)
    return registered


def grads_of_the_branch_that_is_taken(lib: Any) -> Any:
    function, found = plain(lib, lambda x, a, b: x * a if x.sum() > 0 else x * b), []
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        x, a, b = lib.tensor(values, dtype=lib.float64), leaf(lib, [1.0, 1.0]), leaf(lib, [2.0, 2.0])
        y = function(x, a, b)
        y.sum().backward()
        found.append((y, a.grad, b.grad))
    return found


def a_branch_without_gradient(lib: Any) -> Any:
    function, found = plain(lib, lambda x, w: x * w if x.sum() > 0 else lib.zeros_like(x)), []
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        y = function(lib.tensor(values), lib.ones(2, requires_grad=True))
        found.append((y, y.requires_grad, y.grad_fn is None))
    return found


def branches_of_different_shapes(lib: Any) -> Any:
    function, found = plain(lib, lambda x: x.sum() if x.sum() > 0 else x.exp()), []
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        x = leaf(lib, values)
        y = function(x)
        (y * y).sum().backward()
        found.append((y, x.grad))
    return found


def branches_in_branches(lib: Any) -> Any:
    def decide(x: Any, a: Any, b: Any, c: Any) -> Any:
        if x[0] > 0:
            return a * x if x[1] > 0 else b * x
        return c * x

    function, found = plain(lib, decide), []
    for values in ([1.0, 2.0], [1.0, -2.0], [-1.0, 2.0]):
        weights = [leaf(lib, [w]) for w in (1.0, 2.0, 3.0)]
        y = function(lib.tensor(values, dtype=lib.float64), *weights)
        y.sum().backward()
        found.append([y, *[w.grad for w in weights]])
    return found


DECIDED = [
    grads_of_the_branch_that_is_taken,
    a_branch_without_gradient,
    branches_of_different_shapes,
    branches_in_branches,
]


@pytest.mark.parametrize("function", DECIDED)
def test_values_decide_what_has_a_gradient(function: Any) -> None:
    same(function)


def test_a_loop_that_may_not_turn() -> None:
    def halve(x: Any, w: Any) -> Any:
        return tg.while_loop(lambda v: v.abs().max() > 1, lambda v: v * w, (x,))[0]

    function = plain(tg, halve)
    w = tg.tensor(0.5, dtype=tg.float64, requires_grad=True)
    turned, same_again = (function(tg.tensor([start], dtype=tg.float64), w) for start in (4.0, 0.5))
    turned.sum().backward()
    assert (turned.item(), w.grad.item(), same_again.item()) == (1.0, 2 * 4.0 * 0.5, 0.5)
    assert (turned.requires_grad, same_again.requires_grad) == (True, False)


def test_the_session_is_asked_only_where_it_matters(session: tg.Session) -> None:
    same_leaf = plain(tg, lambda x, w: x * w if x.sum() > 0 else x / w)
    other_leaf = plain(tg, lambda x, a, b: x * a if x.sum() > 0 else x * b)
    x, a, b = tg.ones(2), tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    before = session.requests
    same_leaf(x, a).sum().backward()
    with tg.no_grad():
        other_leaf(x, a, b)
    other_leaf(x, a.detach(), b.detach())
    assert session.requests == before
    other_leaf(x, a, b).sum().backward()
    assert session.requests == before + 1
    assert (a.grad.tolist(), b.grad) == ([2.0, 2.0], None)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_under_autocast(dtype: str) -> None:
    def differentiate(lib: Any) -> Any:
        class Product(lib.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any, w: Any) -> Any:
                ctx.save_for_backward(x, w)
                return (x @ w).exp()

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                x, w = ctx.saved_tensors
                slope = grad * (x @ w).exp()
                return slope @ w.t(), x.t() @ slope

        found = []
        x, w = lib.ones(2, 3, requires_grad=True), (lib.ones(3, 2) / 4).requires_grad_()
        with lib.autocast("cpu", dtype=getattr(lib, dtype)):
            product, chain = use(lib, Product, x, w), plain(lib, lambda x, w: (x @ w).relu())(x, w)
            with lib.autocast("cpu", enabled=False):
                outside = use(lib, Product, x, w)
        for y in (product, chain, outside):
            found.append((y.float(), y.dtype.itemsize, *lib.autograd.grad(y.sum(), (x, w))))
        return found

    same(differentiate)


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
