"""A tensor that is used twice gets the sum of both gradients."""

from __future__ import annotations

from library import Library, run, show


def main(lib: Library) -> None:
    a = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = lib.tensor([4.0, 5.0, 6.0], requires_grad=True)
    c = a + b
    d = b * c
    loss = d.sum()
    loss.backward()
    show("loss", loss)
    show("a.grad = b", a.grad)
    show("b.grad = a + 2b", b.grad)


if __name__ == "__main__":
    run(main)
