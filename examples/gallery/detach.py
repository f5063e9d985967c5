"""A detached tensor is a constant to what is computed from it.

Mended: the article gives ones for b.grad; it is c, that is a + b.
"""

from __future__ import annotations

from library import Library, run, show


def main(lib: Library) -> None:
    a = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = lib.tensor([4.0, 5.0, 6.0], requires_grad=True)
    c = a + b
    d = b * c.detach()
    d.sum().backward()
    show("a.grad", a.grad)
    show("b.grad", b.grad)


if __name__ == "__main__":
    run(main)
