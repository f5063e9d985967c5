"""A backward made of differentiable operations gives second derivatives; gradcheck and gradgradcheck confirm both.

Mended: the article's class does not save its input, and its double_backward is a method that torch never calls.
"""

from __future__ import annotations

from typing import Any

from library import Library, Tensor, normal, run, show


def main(lib: Library) -> None:
    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad

    x = normal(lib, 0, 1, requires_grad=True)
    print(f"gradcheck: {lib.autograd.gradcheck(Cube.apply, (x,), eps=1e-6, atol=1e-4)}")
    print(f"gradgradcheck: {lib.autograd.gradgradcheck(Cube.apply, (x,), eps=1e-6, atol=1e-4)}")
    (first,) = lib.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    show("3x^2", first)
    show("6x", second)


if __name__ == "__main__":
    run(main)
