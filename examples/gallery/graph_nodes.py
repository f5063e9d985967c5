"""Every result knows the operation that made it; backward follows them to the leaves.

Mended: the second line of the article makes a new y, so that x would get no gradient; here z is built on 2x + 3.
"""

from __future__ import annotations

from library import Library, normal, run, show


def main(lib: Library) -> None:
    x = normal(lib, 0, 3, 3, requires_grad=True)
    y = 2 * x + 3
    z = 4 * y - 1
    for name, tensor in ("x", x), ("y", y), ("z", z):
        made_by = "a leaf" if tensor.grad_fn is None else tensor.grad_fn.name()
        print(f"{name} is {made_by}, requires_grad={tensor.requires_grad}, is_leaf={tensor.is_leaf}")
    z.sum().backward()
    show("z", z)
    show("x.grad", x.grad)


if __name__ == "__main__":
    run(main)
