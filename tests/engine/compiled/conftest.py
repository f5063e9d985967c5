"""The session of these tests.

Internals: a device that stands for CuPy is put in the place of the one that needs a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import telegrad as tg
from telegrad_engine.compile import COMPILED
from telegrad_engine.devices import Device

from ..cupy_face import Facade
from .remembering import ALWAYS, connect
from .verification import VerifyingCompiler

MADE = import_module("telegrad_engine.devices.device")._devices
"""The devices that were asked for, by name."""


@pytest.fixture(params=["planned", "compiled", "compiled on jax", "compiled on cuda"])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session whose programs are executables after their second run, even if that is slower. Each run is verified.

    What stands for CuPy has NumPy's arrays and JAX's CPU behind it, unless the tests run with ``--device cuda``.
    """
    tier, _, there = request.param.partition(" on ")
    if tier == "compiled":
        pytest.importorskip("jax")
    if there == "cuda":
        pytest.importorskip("cupy", exc_type=ImportError)
        if request.config.getoption("--device", default="cpu") != "cuda":
            facade = Device(Facade())
            for name in ("cuda", facade.name):
                monkeypatch.setitem(MADE, name, facade)
    compiler = VerifyingCompiler(after=2, choose=False, tier=ALWAYS if tier == "planned" else COMPILED)
    yield connect(compiler, device=there or "cpu")
    tg.current().close()
