"""Reads of a session what an open console reads. ``benchmarks.console_http`` runs it in a process of its own.

For each line of the standard input it begins or ends to do so, and says ``open`` or ``closed``.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

import httpx

GRAPH_S, QUIET_S = 0.7, 4.0
"""Seconds between two reads of the graph: when it has changed, and otherwise."""


class Reader:
    """The events of a session, and its graph as often as a page reads it."""

    def __init__(self, url: str, session: str) -> None:
        self._path = f"/v1/sessions/{session}"
        self._url, self._changed, self._open = url, threading.Event(), threading.Event()
        self._ended = False
        self._threads = [threading.Thread(target=self._listen), threading.Thread(target=self._read)]
        for thread in self._threads:
            thread.start()
        self._open.wait()

    def close(self) -> None:
        """Stop reading."""
        self._ended = True
        self._changed.set()
        for thread in self._threads:
            thread.join()

    def _listen(self) -> None:
        with (
            suppress(httpx.ReadTimeout),
            httpx.Client(base_url=self._url, timeout=1.0) as client,
            client.stream("GET", f"{self._path}/events?observe=true") as answer,
        ):
            answer.raise_for_status()
            for chunk in answer.iter_raw():
                self._open.set()
                if b"event: graph" in chunk:
                    self._changed.set()
                if self._ended:
                    return

    def _read(self) -> None:
        with httpx.Client(base_url=self._url) as client:
            while not self._ended:
                client.get(f"{self._path}/graph/folded", params={"limit": 1500}).raise_for_status()
                self._changed.clear()
                time.sleep(GRAPH_S)
                self._changed.wait(QUIET_S - GRAPH_S)


def main(url: str, session: str) -> None:
    reader: Reader | None = None
    for _ in sys.stdin:
        if reader is None:
            reader = Reader(url, session)
        else:
            reader.close()
            reader = None
        print("closed" if reader is None else "open", flush=True)
    if reader is not None:
        reader.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
