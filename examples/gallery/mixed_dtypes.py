"""The gradient of a float16 leaf is float16, though what follows is computed in float32."""

from __future__ import annotations

from library import Library, run, show


def main(lib: Library) -> None:
    x = lib.tensor([0.5, -1.25, 3.0], dtype=lib.float16, requires_grad=True)
    y = (x.float() * 2).sum()
    y.backward()
    show("y", y)
    show("x.grad", x.grad)
    print(f"{str(y.dtype).partition('.')[2]} from {str(x.grad.dtype).partition('.')[2]}")


if __name__ == "__main__":
    run(main)
