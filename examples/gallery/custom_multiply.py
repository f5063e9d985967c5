"""A function with a derivative of its own: what forward saves, backward uses."""

from __future__ import annotations

from typing import Any

from library import Library, Tensor, run, show


def main(lib: Library) -> None:
    class MyMultiply(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            a, b = ctx.saved_tensors
            return grad * b, grad * a

    a = lib.tensor(1.0, requires_grad=True)
    b = lib.tensor(2.0, requires_grad=True)
    product = MyMultiply.apply(a, b)
    product.backward()
    show("a * b", product)
    show("a.grad", a.grad)
    show("b.grad", b.grad)


if __name__ == "__main__":
    run(main)
