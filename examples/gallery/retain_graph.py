"""A graph can be walked again if it was retained; gradients add up. Otherwise the second walk raises."""

from __future__ import annotations

from library import Library, run, show


def main(lib: Library) -> None:
    z = lib.tensor(1.0, requires_grad=True)
    y = z**2
    y.backward(retain_graph=True)
    show("first", z.grad)
    y.backward()
    show("second", z.grad)
    try:
        y.backward()
    except RuntimeError as error:
        print(f"third: {str(error).partition('(')[0]}")


if __name__ == "__main__":
    run(main)
