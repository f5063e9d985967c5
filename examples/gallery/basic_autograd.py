"""The gradients of a product, and of a product with one more step after it."""

from __future__ import annotations

from library import Library, run, show


def main(lib: Library) -> None:
    x = lib.tensor(1.0, requires_grad=True)
    y = lib.tensor(2.0, requires_grad=True)
    z = x * y
    z.backward()
    show("dz/dx", x.grad)
    show("dz/dy", y.grad)

    x = lib.tensor(2.0, requires_grad=True)
    y = lib.tensor(3.0, requires_grad=True)
    w = x * y + 1
    w.backward()
    show("w", w)
    show("dw/dx", x.grad)
    show("dw/dy", y.grad)


if __name__ == "__main__":
    run(main)
