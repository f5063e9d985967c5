"""Gradients are tensors like any other: they can be changed between backward and the step.

Extended: the article's gradients are all 2, which shows no clipping; here some are negative.
"""

from __future__ import annotations

from library import Library, normal, run, show


def main(lib: Library) -> None:
    x = normal(lib, 0, 5, requires_grad=True)
    y = x**2
    y.sum().backward()
    show("as they come", x.grad)
    x.grad[:] = x.grad.clamp(min=0)
    show("clipped", x.grad)


if __name__ == "__main__":
    run(main)
