"""Train a classifier of handwritten digits on a server, as if it were here.

Starts a server of its own on a free port, trains a 64-64-10 network on scikit-learn's digits from
the SDK, and stops the server. Needs scikit-learn and rich.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import telegrad as tg
from telegrad import nn
from telegrad_service.launch import running_server

EPOCHS, BATCH, SEED, GOAL = 30, 64, 0, 0.97
console = Console(highlight=False)


def load() -> list[np.ndarray]:
    """Images (n, 64) from 0 to 1 and their digits (n): x_train, x_test, y_train, y_test."""
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    return list(train_test_split(images, digits, test_size=0.25, stratify=digits, random_state=SEED))


def train(model: nn.Module, images: np.ndarray, digits: np.ndarray) -> int:
    """Train with shuffled mini-batches; how many steps it took."""
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = tg.optim.AdamW(model.parameters(), lr=5e-3)
    rng = np.random.default_rng(SEED)
    steps = 0
    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("train", total=EPOCHS, loss=float("nan"))
        for _ in range(EPOCHS):
            losses = []
            for batch in np.array_split(rng.permutation(len(images)), len(images) // BATCH):
                optimizer.zero_grad()
                loss = criterion(model(tg.tensor(images[batch])), tg.tensor(digits[batch]))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())  # the one request of this step
            steps += len(losses)
            progress.update(task, advance=1, loss=float(np.mean(losses)))
    return steps


def main(url: str) -> int:
    """Train against the server at ``url`` and print how it went; the exit code."""
    x_train, x_test, y_train, y_test = load()
    with tg.connect(url, seed=SEED) as session:
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        session.flush()

        requests, started = session.requests, time.perf_counter()
        steps = train(model, x_train, y_train)
        seconds, requests = time.perf_counter() - started, session.requests - requests

        with tg.no_grad():
            guesses = model.eval()(tg.tensor(x_test)).argmax(dim=1).numpy()
    accuracy = float((guesses == y_test).mean())

    table = Table("result", "value", show_header=False, title="Handwritten digits, 64-64-10")
    table.add_row("test accuracy", f"{accuracy:.4f} of {len(y_test)} images")
    table.add_row("steps per second", f"{steps / seconds:.0f} ({steps} steps of {BATCH} images)")
    table.add_row("requests per step", f"{requests / steps:.2f}")
    table.add_row("docs page", f"{url}/docs (while the server runs)")
    console.print(table)
    return 0 if accuracy >= GOAL and requests <= steps else 1


if __name__ == "__main__":
    try:
        with running_server() as address:  # telegrad serve --port 0, stopped at the end whatever happens
            console.print(f"Serving at {address}, docs at {address}/docs")
            sys.exit(main(address))
    except KeyboardInterrupt:
        sys.exit("interrupted; the server is stopped")
