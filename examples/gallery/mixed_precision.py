"""Training under autocast with a scaler: products in bfloat16, weights and losses in float32."""

from __future__ import annotations

from library import Library, fill, normal, run, show


def main(lib: Library) -> None:
    model = fill(lib, lib.nn.Sequential(lib.nn.Linear(4, 8), lib.nn.Tanh(), lib.nn.Linear(8, 1)), 0).float()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scaler = lib.amp.GradScaler("cpu", init_scale=1024.0)
    x, target = normal(lib, 1, 16, 4).float(), normal(lib, 2, 16, 1).float()
    for _ in range(5):
        optimizer.zero_grad()
        with lib.autocast("cpu", dtype=lib.bfloat16):
            output = model(x)
        loss = ((output.float() - target) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        show("loss", loss)
    print(f"output in {str(output.dtype).partition('.')[2]}, weights in {str(model[0].weight.dtype).partition('.')[2]}")
    show("scale", scaler.get_scale())


if __name__ == "__main__":
    run(main)
