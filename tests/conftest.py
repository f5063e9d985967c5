"""A session here and one on a server: what is said of the SDK is said of both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import telegrad as tg
from telegrad_service.launch import running_server


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a real server, started once for all tests."""
    with running_server() as url:
        yield url


@pytest.fixture(params=["local", "http"])
def address(request: pytest.FixtureRequest) -> str:
    """Where to connect to: first this process, then the server."""
    if request.param == "local":
        return "local://"
    url: str = request.getfixturevalue("server")
    return url


@pytest.fixture
def session(address: str) -> Iterator[tg.Session]:
    """A fresh session, the current one while the test runs."""
    with tg.connect(address, seed=0) as session:
        yield session
