"""A recurrent cell with a derivative of its own, applied along a sequence, beside the same cell left to autograd.

Mended: the article's backward leaves out tanh's slope, and its inputs have no batch dimension, which its matrix
products need.
"""

from __future__ import annotations

from typing import Any

from library import Library, Tensor, normal, run, show


def main(lib: Library) -> None:
    class MyRNNCell(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, h: Tensor, wx: Tensor, wh: Tensor, b: Tensor) -> Tensor:
            following = lib.tanh(x @ wx + h @ wh + b)
            ctx.save_for_backward(x, h, wx, wh, following)
            return following

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            x, h, wx, wh, following = ctx.saved_tensors
            grad = grad * (1 - following**2)
            return grad @ wx.t(), grad @ wh.t(), x.t() @ grad, h.t() @ grad, grad.sum(0)

    def plain(x: Tensor, h: Tensor, wx: Tensor, wh: Tensor, b: Tensor) -> Tensor:
        return lib.tanh(x @ wx + h @ wh + b)

    for name, cell in ("custom", MyRNNCell.apply), ("plain", plain):
        wx = (normal(lib, 1, 3, 3) * 0.3).requires_grad_()
        wh = (normal(lib, 2, 3, 3) * 0.3).requires_grad_()
        b = (normal(lib, 3, 3) * 0.3).requires_grad_()
        h = lib.zeros(1, 3, dtype=lib.float64)
        for step in range(5):
            h = cell(normal(lib, 10 + step, 1, 3), h, wx, wh, b)
        h.backward(lib.ones_like(h))
        show(f"{name}, h", h)
        show(f"{name}, wx.grad", wx.grad)
        show(f"{name}, wh.grad", wh.grad)
        show(f"{name}, b.grad", b.grad)


if __name__ == "__main__":
    run(main)
