"""The gradients of four small batches add up to one step, as if they were one large batch."""

from __future__ import annotations

from library import Library, fill, normal, run, show


def main(lib: Library) -> None:
    model = fill(lib, lib.nn.Linear(10, 1), 0)
    criterion = lib.nn.MSELoss()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01)
    accumulation_steps = 4
    for i in range(12):
        output = model(normal(lib, 100 + i, 10, 10))
        loss = criterion(output, normal(lib, 200 + i, 10, 1)) / accumulation_steps
        loss.backward()
        show("loss", loss)
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
            show("bias after the step", model.bias)


if __name__ == "__main__":
    run(main)
