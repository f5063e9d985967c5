"""Sessions that share a server: two that train at once, and a ping while another session sends large JSON bodies."""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from telegrad_service.launch import running_server

from .peers import Peer, peer
from .timing import Counted, Side, Timed

STEPS = 200
JSON_BYTES, SENDS, QUIET = 10 * 2**20, 9, 500
"""The size of a body, how often it is sent, and the number of pings that determine the usual latency."""
STALL_MS = 10.0


class Together(NamedTuple):
    """Clients that make their calls at the same time."""

    clients: tuple[Peer, ...]

    def seconds(self, count: int) -> float:
        """Run ``count`` calls in each client and return the seconds of the slowest one."""
        for client in self.clients:
            client.begin(count)
        return max([client.taken() for client in self.clients])


@contextmanager
def clients() -> Iterator[tuple[Side, Side]]:
    """Two clients at once, and one of them alone."""
    python = Path(sys.executable)
    with (
        running_server() as url,
        peer("mlp_telegrad.py", url, python=python) as first,
        peer("mlp_telegrad.py", url, python=python) as second,
    ):
        yield Together((first, second)), first


def stall() -> float:
    """The longest delay of a ping while a JSON body arrives, in ms; the median of several bodies."""
    numbers = [0.125] * (JSON_BYTES // len("0.125,"))
    body = json.dumps({"data": numbers}, separators=(",", ":")).encode()
    with running_server() as url:
        where = urlsplit(url).netloc
        session = json.loads(request(where, "POST", "/v1/sessions", b"{}"))["id"]
        longest: list[float] = []
        with closing(http.client.HTTPConnection(where)) as connection:
            usual = statistics.median([ping(connection) for _ in range(QUIET)])
            for _ in range(SENDS):
                sender = threading.Thread(target=request, args=(where, "POST", f"/v1/sessions/{session}/tensors", body))
                sender.start()
                pings = []
                while sender.is_alive():
                    pings.append(ping(connection))
                longest.append(max(pings) - usual)
        return statistics.median(longest) * 1e3


def ping(connection: http.client.HTTPConnection) -> float:
    """Send a small request and return the seconds it took."""
    start = time.perf_counter()
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    return time.perf_counter() - start


def request(where: str, method: str, path: str, body: bytes) -> bytes:
    """Send JSON on a new connection and return the answer. Raises RuntimeError unless the status is 201."""
    with closing(http.client.HTTPConnection(where)) as connection:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    if answer.status != http.HTTPStatus.CREATED:
        raise RuntimeError(f"{answer.status}: {content[:200]!r}")
    return content


SUITES = [
    Timed(
        "MLP 784-128-10 step over loopback, two clients at once, the slower one",
        "one alone",
        2.22,  # each client keeps at least 0.45 of its speed
        clients,
        block=STEPS,
        repeats=20,
    ),
    Counted(
        "longest stall of the event loop while another session sends 10 MiB of JSON",
        "10 ms",
        1.0,
        STALL_MS,
        stall,
        "ms",
    ),
]
