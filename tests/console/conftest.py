"""A browser, a server and sessions to look at."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ..servers import running
from . import browsers
from .console import Console

TRAINING = Path(__file__).with_name("training.py")


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    """The page that the server shows is the built console."""
    assert browsers.INDEX.exists(), "the console is not built: make console"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, browsers.launched(playwright) as browser:
        yield browser


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of a server without keys."""
    with running() as (address, _):
        yield address


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages. After the test, none of them may have had an error, or have been refused something by its policy."""
    errors: list[str] = []
    pages: list[Page] = []

    def opened(**options: Any) -> Page:
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 800}} | options)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert errors == []


@pytest.fixture
def console(open_page: Callable[..., Page], url: str) -> Console:
    """The console of the server without keys."""
    return Console(open_page(), url)


@contextmanager
def trained(url: str, **environment: str) -> Iterator[str]:
    """The id of a session in which the SDK trains a small network until the end of the block."""
    command = [sys.executable, str(TRAINING), url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=browsers.environment(environment)
    ) as process:
        try:
            assert process.stdout is not None
            session = process.stdout.readline().strip()
            assert session, f"{TRAINING.name} did not start"
            yield session
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


@pytest.fixture
def training(url: str) -> Iterator[str]:
    with trained(url) as session:
        yield session
