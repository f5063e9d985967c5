"""Helpers that register functions under unique names, and Functions from torch's documentation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

_numbers = itertools.count()


def unique(name: str) -> str:
    """A name that no other test has registered in this process."""
    return f"{name}_{next(_numbers)}"


def use(lib: Any, function: Any, *args: Any, **options: Any) -> Any:
    """Apply a Function: with ``apply`` in torch, else registered."""
    if lib is torch:
        return function.apply(*args)
    name = unique("function")
    lib.register_function(name, function, **options)
    return getattr(lib.ops, name)(*args)


def plain(lib: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself in torch, else the registered function."""
    if lib is torch:
        return function
    name = unique("plain")
    lib.register_function(name, function)
    registered: Callable[..., Any] = getattr(lib.ops, name)
    return registered


def leaf(lib: Any, values: Any) -> Any:
    """A float64 leaf of these values."""
    return lib.tensor(values, dtype=lib.float64, requires_grad=True)


def line_of(function: Callable[..., Any], offset: int) -> str:
    """The file and line of a function's definition, as errors name them."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno + offset}"


def custom_relu(lib: Any) -> Any:
    class CustomReLU(lib.autograd.Function):
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
    class FunctionWithNonTensorInput(lib.autograd.Function):
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
    class MyDoubleBackwardFn(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad_output

    return MyDoubleBackwardFn
