"""Changing a leaf in place raises; changing a copy, or the leaf under no_grad, is allowed.

Mended: the article says that x.mul_(2) works on a leaf that requires grad, with a gradient of ones.
"""

from __future__ import annotations

from library import Library, run, show


def main(lib: Library) -> None:
    x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    try:
        x.mul_(2)
    except RuntimeError as error:
        print(f"on the leaf: {error}")

    y = x.clone()
    y.mul_(2)
    y.sum().backward()
    show("x", x)
    show("x.grad through a copy", x.grad)

    with lib.no_grad():
        x.mul_(2)
    x.grad = None
    x.sum().backward()
    show("x after no_grad", x)
    show("x.grad after no_grad", x.grad)


if __name__ == "__main__":
    run(main)
