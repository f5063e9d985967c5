"""A server in this process, for tests that look at what it keeps in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

from telegrad_service.app import create_app
from telegrad_service.server import Server
from telegrad_service.settings import Settings


@contextmanager
def serving(**settings: object) -> Iterator[str]:
    """Run the server in a thread on a free loopback port, yield its address, stop it at the end."""
    addresses: Queue[str] = Queue()
    chosen = Settings(port=0, **settings)
    server = Server(create_app(chosen), chosen, addresses.put)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield addresses.get(timeout=240)
    finally:
        server.should_exit = True
        thread.join()
