"""Registered functions through the SDK: traced in the client, run in the session, compared with torch's Functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from .parity import same
from .registering import custom_relu, double_backward, leaf, plain, power, unique, use

pytestmark = pytest.mark.usefixtures("session")


# Functions of torch's tutorials ---------------------------------------------------------------------------------------


def conditional(lib: Any) -> Any:
    class ConditionalComputation(lib.autograd.Function):
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
    class MyRNNCell(lib.autograd.Function):
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


# Other features of Functions ----------------------------------------------------------------------------------------


def several_outputs(lib: Any) -> Any:
    class Split(lib.autograd.Function):
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
    class First(lib.autograd.Function):
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
    class Mean(lib.autograd.Function):
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
    class Masked(lib.autograd.Function):
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


def test_a_gradients_dtype_is_no_device() -> None:
    def run(lib: Any) -> Any:
        class MaskedReLU(lib.autograd.Function):
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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_under_autocast(dtype: str) -> None:
    def differentiate(lib: Any) -> Any:
        class Product(lib.autograd.Function):
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
