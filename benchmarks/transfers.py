"""An upload and a download of 64 MiB, against a bare TCP connection."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

import telegrad as tg

from .compiling import session
from .peers import peer
from .timing import Side, Timed

MIB = 64


@contextmanager
def sides(way: str) -> Iterator[tuple[Side, Side]]:
    """An upload of an array or a download of a tensor, and a bare transfer of as many bytes."""
    array = np.random.default_rng(0).standard_normal((MIB * 2**18,), np.float32)
    with session() as opened, peer("raw_socket.py", way, python=Path(sys.executable)) as theirs:
        tensor = tg.tensor(array)

        def up() -> None:
            kept = tg.tensor(array)  # without a reference it would be freed and never sent
            opened.flush()
            del kept

        yield (up if way == "up" else tensor.numpy), theirs


SUITES = [
    Timed(f"{what} of {MIB} MiB over loopback", "raw TCP", 1.6, partial(sides, way), block=1, repeats=20)
    for what, way in (("upload", "up"), ("download", "down"))
]
