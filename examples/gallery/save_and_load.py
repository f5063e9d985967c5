"""A model's weights written to a file and read into another model, which then computes the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from library import Library, fill, normal, run, show


def simple_model(lib: Library) -> Any:
    class SimpleModel(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = lib.nn.Linear(10, 1)

        def forward(self, x: Any) -> Any:
            return self.fc(x)

    return SimpleModel()


def main(lib: Library) -> None:
    model = fill(lib, simple_model(lib), 0)
    other = fill(lib, simple_model(lib), 1)
    x = normal(lib, 2, 2, 10)
    show("saved model", model(x))
    show("other, before", other(x))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.weights"
        lib.save(model.state_dict(), path)
        outcome = other.load_state_dict(lib.load(path))
    print(outcome)
    show("other, after", other(x))


if __name__ == "__main__":
    run(main)
