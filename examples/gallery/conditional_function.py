"""A function whose forward and backward decide by a value; in telegrad also registered, and decided on the server.

Mended: the article's input sums to 0, so its gradient is 0.5 everywhere, not 0.5 and 2 in turn.
"""

from __future__ import annotations

from typing import Any

from library import Library, Tensor, has_ops, run, show


def main(lib: Library) -> None:
    class ConditionalComputation(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 2 if x.sum() > 0 else x / 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * 2 if x.sum() > 0 else grad / 2

    registered = ConditionalComputation.apply
    if has_ops(lib):
        lib.register_function("conditional_computation", ConditionalComputation)
        registered = lib.ops.conditional_computation
    for name, function in ("applied", ConditionalComputation.apply), ("registered", registered):
        for values in ([-1.0, 1.0, -1.0, 1.0], [1.0, 2.0, -1.0, 1.0]):
            x = lib.tensor(values, requires_grad=True)
            y = function(x)
            y.backward(lib.ones_like(x))
            show(f"{name}, y", y)
            show(f"{name}, x.grad", x.grad)


if __name__ == "__main__":
    run(main)
