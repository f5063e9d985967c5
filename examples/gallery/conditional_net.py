"""A network that takes one of two ways by the value of what it computed, and is trained through both.

Mended: the article's second way returns zeros of the hidden layer's shape; here both ways give one number per row.
"""

from __future__ import annotations

from library import Library, Tensor, fill, normal, run, show


def main(lib: Library) -> None:
    class ConditionalNet(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = lib.nn.Linear(10, 20)
            self.fc2 = lib.nn.Linear(20, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = lib.relu(self.fc1(x))
            if x.sum() > 10:
                return self.fc2(x)
            return lib.zeros_like(x[:, :1])

    model = fill(lib, ConditionalNet(), 0)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        x = normal(lib, step, 1, 10) * (3 if step % 2 else 0.5)
        y = model(x)
        show("output", y)
        if y.requires_grad:
            optimizer.zero_grad()
            loss = ((y - 1) ** 2).mean()
            loss.backward()
            optimizer.step()
            show("trained, loss", loss)


if __name__ == "__main__":
    run(main)
