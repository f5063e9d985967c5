"""Heartbeats: a thread tells the server, while this process lives, that its session is wanted.

A killed process says no goodbye. The server ends its session some time after the last heartbeat, or after the stream
closed if that was later.
"""

from __future__ import annotations

import os
import threading

import httpx

PER_TTL = 4
"""Heartbeats in the time that the server waits for one, so that a few may be lost."""


class Heartbeats:
    """The heartbeats of one session, until :meth:`stop` or the end of the process."""

    def __init__(self, client: httpx.Client, session_id: str, ttl_s: float) -> None:
        self._stopped = threading.Event()
        self._pid = os.getpid()
        arguments = client, f"/v1/sessions/{session_id}/heartbeat", ttl_s / PER_TTL, self._stopped
        threading.Thread(target=_beat, args=arguments, name="telegrad-heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Send no more. In a forked child, which has no such thread, there is nothing to stop."""
        if os.getpid() == self._pid:
            self._stopped.set()


def _beat(client: httpx.Client, path: str, period_s: float, stopped: threading.Event) -> None:
    while not stopped.wait(period_s):
        try:
            if client.put(path, timeout=period_s).status_code == httpx.codes.NOT_FOUND:
                return  # the session has ended; whoever uses it next is told
        except (httpx.HTTPError, RuntimeError):  # the server is out of reach for now, or the client is closed
            pass
