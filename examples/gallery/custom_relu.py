"""An activation whose backward changes the incoming gradient in place, by a mask.

Mended: the articles give 0 for the gradient at 0; as written only what is below 0 is zeroed, so it is 1.
"""

from __future__ import annotations

from typing import Any

from library import Library, Tensor, run, show


def main(lib: Library) -> None:
    class CustomReLU(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            grad = grad.clone()
            grad[x < 0] = 0
            return grad

    for values in ([-2.0, -1.0, 0.0, 1.0, 2.0], [-1.5, 0.0, 1.5]):
        x = lib.tensor(values, requires_grad=True)
        y = CustomReLU.apply(x)
        y.backward(lib.ones_like(x))
        show("y", y)
        show("x.grad", x.grad)


if __name__ == "__main__":
    run(main)
