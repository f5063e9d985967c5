"""Debian's Chromium, driven by Playwright.

Internals: where the server expects the built page.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Playwright

from telegrad_service import console

INDEX = console.STATIC / console.INDEX
ARGUMENTS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def path() -> str | None:
    """Where the system has Chromium, if it has it."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def launched(playwright: Playwright) -> Iterator[Browser]:
    """A browser. Without one, the tests are skipped, except in continuous integration."""
    executable = path()
    if executable is None:
        message = "Chromium is missing: apt-get install chromium"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
    try:
        yield browser
    finally:
        browser.close()


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process of the tests, without settings of whoever runs them."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TELEGRAD_")} | dict(more)
