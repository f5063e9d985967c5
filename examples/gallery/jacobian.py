"""A Jacobian a row at a time, from gradients of single elements; and by autograd.functional.

The elements are set through a reshaped view, which writes into the tensor that it is a view of.
"""

from __future__ import annotations

from library import Library, Tensor, normal, run, show


def jacobian(lib: Library, y: Tensor, x: Tensor) -> Tensor:
    """dy/dx, of y's shape followed by x's."""
    rows = []
    flat = y.reshape(-1)
    for i in range(len(flat)):
        chosen = lib.zeros_like(y)
        chosen.reshape(-1)[i] = 1
        (row,) = lib.autograd.grad(flat, x, chosen.reshape(-1), retain_graph=True, allow_unused=True)
        rows.append(row.reshape(x.shape))
    return lib.stack(rows).reshape(tuple(y.shape) + tuple(x.shape))


def main(lib: Library) -> None:
    x = normal(lib, 0, 3, requires_grad=True)
    show("of 2x", jacobian(lib, x * 2, x))
    show("of x^2 and the sum", jacobian(lib, x**2 + x.sum(), x))
    show("of the same, by functional", lib.autograd.functional.jacobian(lambda t: t**2 + t.sum(), x))
    show("Hessian of the sum of x^3", lib.autograd.functional.hessian(lambda t: (t**3).sum(), x))


if __name__ == "__main__":
    run(main)
