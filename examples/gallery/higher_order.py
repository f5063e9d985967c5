"""The gradient of a gradient: with create_graph, gradients are part of a graph themselves.

Mended: for z = (dy/dx)^3 with y = x^2, dz/dx at 1 is 24; the article says 12.
"""

from __future__ import annotations

from library import Library, run, show


def main(lib: Library) -> None:
    x = lib.tensor(1.0, requires_grad=True)
    y = x**2
    (slope,) = lib.autograd.grad(y, x, create_graph=True)
    show("dy/dx", slope)
    z = slope**3
    z.backward()
    show("dz/dx", x.grad)


if __name__ == "__main__":
    run(main)
