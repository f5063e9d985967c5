"""A cluster: what the gateway adds to a training step, and what a second worker adds to the throughput.

The gateway's cost is a ratio of two sessions on the same worker, one through the gateway and one at its direct
endpoint; the cost of a direct endpoint is the ratio to a server without a cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import copy_context
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import telegrad as tg
from telegrad_service.launch import running_server

from .compiling import settle
from .members import cluster
from .mlp_http import WHAT, Pairs, fresh, loop, network, resident_ours
from .peers import peer
from .replay import Load, record
from .sessions_http import Together
from .timing import Call, Side, Timed

THROUGH, DIRECT, PLAIN = "through a gateway", "at its worker's direct endpoint", "a server without a cluster"
SPEED_UP = 1.4
"""How many times the throughput of one worker two must have."""
SESSIONS = 8
ONE_BLAS_THREAD = "--blas-threads=1"
SETTLED_S = 0.3
"""Seconds that a side runs before it is timed: a server takes 0.1 to notice that no other session is used."""


# One session -------------------------------------------------------------------------------------


@contextmanager
def beside(
    batches: Callable[[], Pairs], read_every: int, through_gateway: bool, on_plain_server: bool
) -> Iterator[tuple[Side, Side]]:
    """The step in two sessions, each in a context of its own.

    The first session is reached through the gateway or at its worker's direct endpoint, and the second one is on a
    plain server or at the direct endpoint.
    """
    with ExitStack() as stack:
        url = stack.enter_context(cluster(1))
        other = stack.enter_context(running_server()) if on_plain_server else url

        def turns(url: str, direct: bool) -> Call:
            context = copy_context()
            turn = context.run(_prepared, url, direct, batches, read_every, stack)
            return partial(context.run, turn)

        yield turns(url, not through_gateway), turns(other, not on_plain_server)


def _prepared(url: str, direct: bool, batches: Callable[[], Pairs], read_every: int, ending: ExitStack) -> Call:
    opened = tg.connect(url, direct=direct)
    ending.callback(opened.close)
    turn = loop(network(tg)[1], batches(), read_every)
    settle(opened, turn)
    return turn


def latency(how: str, batches: Callable[[], Pairs], read_every: int) -> list[Timed]:
    """The rows of a step: through the gateway, and at the direct endpoint."""
    sides = partial(beside, batches, read_every)
    rows = [
        (THROUGH, f"the same {DIRECT}", 1.5, partial(sides, True, False)),
        (DIRECT, f"the same on {PLAIN}", 1.05, partial(sides, False, True)),
    ]
    return [
        Timed(f"cluster: {WHAT} {way}, {how}", against, limit, pair, block=20, repeats=30, settled_s=SETTLED_S)
        for way, against, limit, pair in rows
    ]


# Many sessions -----------------------------------------------------------------------------------


def prepared(hidden: int, batch: int, resident: bool, inputs: int = 784) -> Call:
    """A training step of a network with one hidden layer, in the current session; the loss of every tenth is read."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((10 * batch, inputs)).astype(np.float32)
    labels = rng.integers(0, 10, 10 * batch)

    def uploaded_once() -> Pairs:
        dataset = tg.utils.data.TensorDataset(tg.tensor(images), tg.tensor(labels))
        while True:
            yield from tg.utils.data.DataLoader(dataset, batch_size=batch, shuffle=True)

    def uploaded_each_time() -> Pairs:
        for start in cycle(range(0, len(labels), batch)):
            rows = slice(start, start + batch)
            yield tg.tensor(images[rows]), tg.tensor(labels[rows])

    return loop(network(tg, inputs, hidden)[1], uploaded_once() if resident else uploaded_each_time(), 10)


@contextmanager
def replaying(prepare: Callable[[], Call], steps: int, direct: bool) -> Iterator[tuple[Side, Side]]:
    """Sessions that replay a recording on two workers, and as many on one."""
    recording = record(prepare, steps)
    with cluster(2, ONE_BLAS_THREAD) as two, cluster(1, ONE_BLAS_THREAD) as one:
        yield Load(two, recording, SESSIONS, direct), Load(one, recording, SESSIONS, direct)


@contextmanager
def sdk_clients() -> Iterator[tuple[Side, Side]]:
    """SDK clients in processes of their own, on two workers and on one server process."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        two = stack.enter_context(running_server(workers=2, database_url=f"sqlite:///{Path(folder) / 'telegrad.db'}"))
        one = stack.enter_context(running_server())
        yield _clients(two, stack), _clients(one, stack)


def _clients(url: str, stack: ExitStack) -> Together:
    python = Path(sys.executable)
    return Together(tuple(stack.enter_context(peer("mlp_telegrad.py", url, python=python)) for _ in range(SESSIONS)))


def throughput(what: str, prepare: Callable[[], Call], steps: int) -> list[Timed]:
    """The rows of a step in replayed sessions, through the gateway and at the direct endpoints."""
    ways: list[tuple[str, Callable[[], AbstractContextManager[tuple[Side, Side]]]]] = [
        (how, partial(replaying, prepare, steps, direct)) for how, direct in ((THROUGH, False), (DIRECT, True))
    ]
    return [
        Timed(
            f"cluster: {what}, {SESSIONS} replayed sessions on two workers, {how}",
            "as many on one worker",
            round(1 / SPEED_UP, 3),
            sides,
            block=steps * SESSIONS,
            repeats=5,
        )
        for how, sides in ways
    ]


SUITES = [
    *latency("fresh batch, loss read every 10 steps", partial(fresh, tg), 10),
    *latency("fresh batch, loss read every step", partial(fresh, tg), 1),
    *latency("dataset uploaded once, loss read every 10 steps", resident_ours, 10),
    *throughput("784-128-10 step, dataset uploaded once", partial(prepared, 128, 64, resident=True), 200),
    *throughput("784-128-10 step, fresh batch", partial(prepared, 128, 64, resident=False), 100),
    *throughput("784-512-10 step, batch 128, dataset uploaded once", partial(prepared, 512, 128, resident=True), 60),
    *throughput(
        "16-32-10 step, batch 16, dataset uploaded once", partial(prepared, 32, 16, resident=True, inputs=16), 200
    ),
    Timed(
        f"cluster: 784-128-10 step, {SESSIONS} SDK clients at once on `serve --workers 2`, the slowest one",
        "the same on `serve`",
        1.0,
        sdk_clients,
        block=100,
        repeats=10,
    ),
]
