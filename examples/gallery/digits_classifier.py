"""A classifier of handwritten digits, trained in batches by SGD.

scikit-learn's digits, 8 by 8, stand for the article's MNIST. Batches come in an order that NumPy drew, since the
libraries shuffle each in its own way.
"""

from __future__ import annotations

import numpy as np
from library import Library, Tensor, fill, run, show
from sklearn.datasets import load_digits


def main(lib: Library) -> None:
    class SimpleNet(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = lib.nn.Linear(64, 128)
            self.fc2 = lib.nn.Linear(128, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = x.view(-1, 64)
            return self.fc2(lib.relu(self.fc1(x)))

    images, digits = load_digits().images / 16, load_digits().target
    dataset = lib.utils.data.TensorDataset(lib.tensor(images), lib.tensor(digits))
    order = np.random.default_rng(0).permutation(len(digits)).tolist()
    loader = lib.utils.data.DataLoader(dataset, batch_size=64, sampler=order)
    model = fill(lib, SimpleNet(), 0)
    criterion = lib.nn.CrossEntropyLoss()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(5):
        for index, (data, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(data), target)
            loss.backward()
            optimizer.step()
            if index % 10 == 0:
                show(f"epoch {epoch}, batch {index}, loss", loss)
    with lib.no_grad():
        guesses = model(lib.tensor(images)).argmax(dim=1)
    show("accuracy", (guesses == lib.tensor(digits)).double().mean())


if __name__ == "__main__":
    run(main)
