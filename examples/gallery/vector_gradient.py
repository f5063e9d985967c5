"""A result that is no scalar needs to be told the gradient that comes in."""

from __future__ import annotations

from library import Library, normal, run, show


def main(lib: Library) -> None:
    x = normal(lib, 0, 3, requires_grad=True)
    y = x * 2
    y.backward(lib.ones_like(y))
    show("x.grad", x.grad)
    try:
        (x * 2).backward()
    except RuntimeError as error:
        print(f"without one: {error}")


if __name__ == "__main__":
    run(main)
