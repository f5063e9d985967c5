"""The session of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import telegrad as tg
from telegrad_engine.program.compiled import COMPILED, Compiler

from .remembering import ALWAYS, connect


@pytest.fixture(params=["planned", "compiled"])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session whose programs are executables after their second run, and stay so even where that is slower."""
    if request.param == "compiled":
        pytest.importorskip("jax")
    way = COMPILED if request.param == "compiled" else ALWAYS
    yield connect(Compiler(after=2, choose=False, way=way))
    tg.sessions.current().close()
