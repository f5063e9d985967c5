"""A training step over HTTP requests with an API key, against the same on a server without keys.

Each step is a request, whose key is checked. A stream checks it only when it opens.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import telegrad as tg
from telegrad_service.cli import main
from telegrad_service.launch import running_server

from .compiling import settle
from .mlp_http import data, network
from .timing import Call, Side, Timed


def create_key(database: str) -> str:
    """Create an API key in a new database."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(io.StringIO()):
        main(["keys", "create", "--tenant", "bench", "--database-url", database])
    return output.getvalue().strip()


def step(url: str, key: str | None, stack: ExitStack) -> Call:
    """Return a call that trains for one step on a batch that is on the server, and reads the loss."""
    opened = stack.enter_context(tg.connect(url, stream=False, api_key=key))
    images, labels = data()
    x, y = tg.tensor(images[:64]), tg.tensor(labels[:64])
    _, train = network(tg)

    def turn() -> None:
        train(x, y).item()

    settle(opened, turn)
    return turn


@contextmanager
def sides() -> Iterator[tuple[Side, Side]]:
    """A step with a key, and one without."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        database = f"sqlite:///{Path(folder) / 'keys.db'}"
        key = create_key(database)
        closed = stack.enter_context(running_server(database_url=database))
        free = stack.enter_context(running_server(database_url=f"sqlite:///{Path(folder) / 'none.db'}"))
        yield step(closed, key, stack), step(free, None, stack)


SUITES = [
    Timed("784-128-10 step over requests with an API key", "the same without keys", 1.02, sides, block=20, repeats=80)
]
