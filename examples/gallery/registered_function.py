"""A function registered under a name, then called by it: in telegrad it runs on the server.

Mended: torch has neither register_function nor such ops, so there the class itself is applied; and the gradient at 0
is 1, not 0.
"""

from __future__ import annotations

from typing import Any

from library import Library, Tensor, has_ops, run, show


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

    relu = CustomReLU.apply
    if has_ops(lib):
        lib.register_function("my_custom_relu", CustomReLU)
        relu = lib.ops.my_custom_relu
    x = lib.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], requires_grad=True)
    y = relu(x)
    y.backward(lib.ones_like(x))
    show("y", y)
    show("x.grad", x.grad)


if __name__ == "__main__":
    run(main)
