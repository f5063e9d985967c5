"""The session of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import telegrad as tg

from .remembering import connect
from .verification import VerifyingCompiler


@pytest.fixture
def session() -> Iterator[Any]:
    """A session whose programs are planned after their second run, even if that is slower. Each run is verified."""
    yield connect(VerifyingCompiler(after=2, choose=False))
    tg.current().close()
