"""A function with an argument that is no tensor: kept on ctx, and None as its gradient.

Mended: the article's backward uses x without having saved it.
"""

from __future__ import annotations

from typing import Any

from library import Library, Tensor, has_ops, run, show


def main(lib: Library) -> None:
    class Power(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, power: int) -> Tensor:
            ctx.power = power
            ctx.save_for_backward(x)
            return x**power

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            (x,) = ctx.saved_tensors
            return grad * ctx.power * x ** (ctx.power - 1), None

    registered = Power.apply
    if has_ops(lib):
        lib.register_function("power_of", Power)
        registered = lib.ops.power_of
    for name, function in ("applied", Power.apply), ("registered", registered):
        for power in (3, 4):
            x = lib.tensor([2.0], requires_grad=True)
            y = function(x, power)
            y.backward()
            show(f"{name}, 2^{power}", y)
            show(f"{name}, its slope", x.grad)


if __name__ == "__main__":
    run(main)
