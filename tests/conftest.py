"""A session here and one on a server: what is said of the SDK is said of both."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

import telegrad as tg
from telegrad_service.launch import running_server

# No deadline: on a busy machine the first example of a test, which imports and compiles, is slow.
# Continuous integration must give the same answer twice; elsewhere every run looks somewhere new.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# A process in the background may have these ignored, and so would every process that a test starts.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (getattr(signal, "SIGHUP", None), signal.SIG_DFL)):
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


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


@pytest.fixture
def remote(server: str) -> Iterator[tg.Session]:
    """A fresh session on the server: in this process programs are not packed, sent ahead or foreseen."""
    with tg.connect(server, seed=0) as session:
        yield session
