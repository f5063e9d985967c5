"""What a session does leaves the state of the user's process as it is: random numbers, warnings, signals, hooks.

One exception: a session on a server has a handler of SIGTERM installed if the program has none
(docs/how-to/sessions.md).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ..servers import running_server
from .cutting import Cutter
from .test_retries import standing_before

PATIENCE_S = 240
ATTEMPTS = 6
"""After how many attempts to reconnect a server is there again: the last ones are after random delays."""
SCRIPT = """
import atexit, gc, locale, logging, os, random, signal, socket, sys, threading, warnings
import numpy as np

own = "own handler" in sys.argv or not sys.argv[1]
if "own handler" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())

def state():
    return {
        "random": random.getstate(),
        "numpy.random": repr(np.random.get_state()),
        "numpy": (np.geterr(), np.geterrcall(), repr(np.get_printoptions())),
        "warnings": (list(warnings.filters), warnings.showwarning, warnings.formatwarning),
        "signal": {n: signal.getsignal(n) for n in signal.valid_signals() if n != signal.SIGTERM or own},
        "trace": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, sys.breakpointhook, threading.excepthook),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval(), socket.getdefaulttimeout()),
        "garbage": (gc.isenabled(), gc.get_threshold(), list(gc.callbacks)),
        "locale": locale.setlocale(locale.LC_ALL),
        "logging": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        "environment": (dict(os.environ), os.getcwd(), sys.stdin, sys.stdout, sys.stderr, sys.argv[:]),
    }

def check(when):
    for name, value in state().items():
        if value != known[name]:
            print(f"{name} after {when}: {value!r:.300} was {known[name]!r:.300}", flush=True)

atexit.register(lambda: check("exit"))  # what is registered first runs last
import telegrad as tg
from telegrad import nn
random.seed(3)
np.random.seed(3)
known = state()

def train():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1))
    optimizer = tg.optim.Adam(model.parameters())
    loader = tg.utils.data.DataLoader(tg.utils.data.TensorDataset(tg.randn(16, 4)), batch_size=8, shuffle=True)
    for _ in range(3):
        for (x,) in loader:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()

options = {"durable": True} if "durable" in sys.argv else {}
session = tg.connect(sys.argv[1] or None, **options)
check("connect")
train()
check("a training loop")
compiled = tg.compile(lambda x: (x * 2).sum())
for _ in range(3):
    compiled(tg.ones(3)).item()
check("compile")
tg.ones(1).tolist()
print("trained", flush=True)
sys.stdin.readline()
train()
check("a reconnect")
session.close()
check("close")
tg.connect(sys.argv[1] or None)
tg.ones(2).tolist()
print("done", flush=True)
"""


@contextmanager
def here(_: Path) -> Iterator[tuple[list[str], Callable[[], None]]]:
    yield [""], lambda: None


@contextmanager
def lost(tmp_path: Path) -> Iterator[tuple[list[str], Callable[[], None]]]:
    """A server that keeps its sessions on its disk, and is out of reach for a while."""
    with running_server(data_dir=str(tmp_path)) as url, Cutter(url) as cutter:

        def lose() -> None:
            cutter.refusing = True
            cutter.kill()
            Thread(target=mend).start()

        def mend() -> None:
            while cutter.refused < ATTEMPTS:
                time.sleep(0.05)
            cutter.refusing = False

        yield [cutter.url, "durable", "own handler"], lose


@contextmanager
def busy(_: Path) -> Iterator[tuple[list[str], Callable[[], None]]]:
    """A server that refuses requests for a while."""
    with running_server() as url, standing_before(url) as front:
        front.left = 2

        def refuse() -> None:
            front.left = 2

        yield [front.url], refuse


@pytest.mark.parametrize("there", [here, lost, busy])
def test_a_session_leaves_the_state_of_the_process_alone(there: Any, tmp_path: Path) -> None:
    with there(tmp_path) as (arguments, disturb):
        command = [sys.executable, "-c", SCRIPT, *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == "trained\n"
            disturb()
            assert process.communicate("\n", timeout=PATIENCE_S)[0] == "done\n"
