"""Gradients add up from one backward to the next until they are set to zero."""

from __future__ import annotations

from library import Library, normal, run, show


def main(lib: Library) -> None:
    x = normal(lib, 0, 3, requires_grad=True)
    (x * 2).backward(lib.ones(3))
    (x * 2).backward(lib.ones(3))
    show("after two passes", x.grad)
    x.grad.zero_()
    show("set to zero", x.grad)
    (x * 2).backward(lib.ones(3))
    show("and after one more", x.grad)


if __name__ == "__main__":
    run(main)
