"""A tensor on the way keeps its gradient only if asked to."""

from __future__ import annotations

from library import Library, run, show


def main(lib: Library) -> None:
    a = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = a + 3
    b.retain_grad()
    c = b.mean()
    c.backward()
    show("a.grad", a.grad)
    show("b.grad", b.grad)


if __name__ == "__main__":
    run(main)
