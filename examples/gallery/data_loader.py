"""A DataLoader makes shuffled batches of a dataset; the last may be smaller.

The handwritten digits that come with scikit-learn stand for the article's MNIST.
"""

from __future__ import annotations

from library import Library, run, show
from sklearn.datasets import load_digits


def main(lib: Library) -> None:
    images, digits = load_digits(return_X_y=True)
    dataset = lib.utils.data.TensorDataset(lib.tensor(images / 16), lib.tensor(digits))
    loader = lib.utils.data.DataLoader(dataset, batch_size=64, shuffle=True)
    seen = lib.zeros(10, dtype=lib.int64)
    for index, (data, target) in enumerate(loader):
        if index % 10 == 0 or index == len(loader) - 1:
            print(f"batch {index}: data {tuple(data.shape)}, target {tuple(target.shape)}")
        seen += lib.bincount(target, minlength=10)
    show("how often each digit came", seen)


if __name__ == "__main__":
    run(main)
