"""Nothing is tracked inside no_grad, as a context manager and as a decorator."""

from __future__ import annotations

from library import Library, Tensor, normal, run, show


def main(lib: Library) -> None:
    x = normal(lib, 0, 3, requires_grad=True)
    with lib.no_grad():
        y = x * 2
    show("y", y)
    print(f"in the context: requires_grad={y.requires_grad}")
    show("x.grad", x.grad)

    @lib.no_grad()
    def double(tensor: Tensor) -> Tensor:
        return tensor * 2

    print(f"decorated: requires_grad={double(x).requires_grad}")
    print(f"outside: requires_grad={(x * 2).requires_grad}")


if __name__ == "__main__":
    run(main)
