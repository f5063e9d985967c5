"""Train a classifier of handwritten digits on a server, as if it were here.

Starts a server of its own on a free port, trains a 64-64-10 network on scikit-learn's digits from
the SDK, shows the loss and some predictions, and stops the server. With ``--keep`` the server and the
session with the trained model stay until Ctrl-C. Needs scikit-learn and rich.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any

import digits_picture
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import telegrad as tg
from telegrad import nn
from telegrad_service.launch import running_server

EPOCHS, BATCH, SEED, GOAL = 30, 64, 0, 0.97
console = Console(highlight=False)


def load() -> list[np.ndarray]:
    """Images (n, 64) from 0 to 1 and their digits (n): x_train, x_test, y_train, y_test."""
    console.print("Loading the images from scikit-learn")
    from sklearn.datasets import load_digits  # the first import takes seconds
    from sklearn.model_selection import train_test_split

    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    return list(train_test_split(images, digits, test_size=0.25, stratify=digits, random_state=SEED))


def train(model: nn.Module, criterion: nn.Module, images: np.ndarray, digits: np.ndarray) -> list[float]:
    """Train with shuffled mini-batches; the loss of each step."""
    optimizer = tg.optim.AdamW(model.parameters(), lr=5e-3)
    rng = np.random.default_rng(SEED)
    losses: list[float] = []
    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("train", total=EPOCHS, loss=float("nan"))
        for epoch in range(1, EPOCHS + 1):
            batches = np.array_split(rng.permutation(len(images)), len(images) // BATCH)
            for batch in batches:
                optimizer.zero_grad()
                loss = criterion(model(tg.tensor(images[batch])), tg.tensor(digits[batch]))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())  # the one request of this step
            mean = float(np.mean(losses[-len(batches) :]))
            progress.update(task, advance=1, loss=mean)
            if not console.is_terminal and epoch % 5 == 0:
                console.print(f"epoch {epoch}/{EPOCHS}, loss {mean:.4f}")  # a file has no bar
    return losses


def show(losses: list[float], images: np.ndarray, digits: np.ndarray, guesses: np.ndarray, path: Path) -> None:
    """Print the loss curve and eight predictions, one of them wrong if one is, and write both to ``path`` as SVG."""
    right, wrong = np.flatnonzero(guesses == digits), np.flatnonzero(guesses != digits)
    chosen = np.concatenate([right[:3], wrong[:1], right[3:7]])
    examples: tuple[Any, ...] = (images[chosen], digits[chosen].tolist(), guesses[chosen].tolist())
    console.print("\nLoss", digits_picture.curve_text(losses), sep="\n", overflow="ignore", no_wrap=True, crop=False)
    console.print("\nImages of the test, with predictions\n", style="none")
    console.print(digits_picture.digits_text(*examples), overflow="ignore", no_wrap=True, crop=False)
    path.write_text(digits_picture.svg(losses, *examples), encoding="utf-8")
    console.print(f"\nThe same as a picture: {path.resolve()}", soft_wrap=True)


def stay(session: tg.Session, tensors: dict[str, Any]) -> None:
    """Give the tensors names, say how to look at them, and wait for Ctrl-C."""
    session.keep(tensors)
    tensor = f"{session.url}/v1/sessions/{session.id}/tensors/model.0.bias"
    console.print(
        "\nThe server runs until Ctrl-C, and has the trained model and the graph of a loss. In another terminal:\n"
        f"  python3 -m webbrowser {session.url}/\n"
        f"  curl -sS {tensor}\n"
        f"In Python: tg.connect('{session.url}', session='{session.id}').named()",
        soft_wrap=True,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("stopping the server")


def main(url: str, keep: bool, picture: Path) -> int:
    """Train against the server at ``url`` and print how it went; the exit code."""
    x_train, x_test, y_train, y_test = load()
    with tg.connect(url, seed=SEED) as session:
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        session.flush()

        requests, started = session.requests, time.perf_counter()
        losses = train(model, criterion, x_train, y_train)
        seconds, requests, steps = time.perf_counter() - started, session.requests - requests, len(losses)

        with tg.no_grad():
            guesses = model.eval()(tg.tensor(x_test)).argmax(dim=1).numpy()
        accuracy = float((guesses == y_test).mean())

        show(losses, x_test, y_test, guesses, picture)
        table = Table("result", "value", show_header=False, title="Handwritten digits, 64-64-10")
        table.add_row("test accuracy", f"{accuracy:.4f} of {len(y_test)} images")
        table.add_row("steps per second", f"{steps / seconds:.0f} ({steps} steps of {BATCH} images)")
        table.add_row("requests per step", f"{requests / steps:.2f}")
        console.print(table)
        if keep:
            loss = criterion(model(tg.tensor(x_test[:BATCH])), tg.tensor(y_test[:BATCH]))
            stay(session, {**dict(model.named_parameters(prefix="model")), "loss": loss})
        else:
            console.print("To look at the trained model in a browser: make demo ARGS=--keep")
    return 0 if accuracy >= GOAL and requests <= steps else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits on a server.")
    parser.add_argument("--keep", action="store_true", help="keep the server and the trained model until Ctrl-C")
    parser.add_argument("--picture", type=Path, default=Path("digits.svg"), help="where to write the picture (SVG)")
    arguments = parser.parse_args()
    try:
        console.print("Starting a server")
        with running_server() as address:  # telegrad serve --port 0, stopped at the end whatever happens
            console.print(f"Serving at {address}")
            sys.exit(main(address, arguments.keep, arguments.picture))
    except KeyboardInterrupt:
        sys.exit("interrupted; the server is stopped")
