"""A checkpoint keeps what goes into a function, and computes the rest again in backward: time for memory."""

from __future__ import annotations

from importlib import import_module

from library import Library, fill, normal, run, show


def main(lib: Library) -> None:
    checkpoints = import_module(f"{lib.__name__}.utils.checkpoint")
    blocks = [fill(lib, lib.nn.Sequential(lib.nn.Linear(6, 6), lib.nn.Tanh()), seed) for seed in range(4)]
    x = normal(lib, 9, 5, 6)

    def gradient_of_first(through: str) -> None:
        if through == "segments":
            h = checkpoints.checkpoint_sequential(blocks, 2, x, use_reentrant=False)
        else:
            h = x
            for block in blocks:
                h = block(h) if through == "all blocks" else checkpoints.checkpoint(block, h, use_reentrant=False)
        (h * h).sum().backward()
        weight = blocks[0][0].weight
        show(f"gradient through {through}", weight.grad[0])
        weight.grad = None

    for through in ("all blocks", "checkpoints", "segments"):
        gradient_of_first(through)

    # The second run draws the random numbers of the first: where dropout gave 0, the gradient is 0.
    noisy = normal(lib, 3, 200, requires_grad=True)
    y = checkpoints.checkpoint(lambda a: lib.nn.functional.dropout(a.exp(), 0.5), noisy, use_reentrant=False)
    y.sum().backward()
    same = ((y == 0) == (noisy.grad == 0)).all().item()
    show("how often the masks agree", [float(same)])


if __name__ == "__main__":
    run(main)
