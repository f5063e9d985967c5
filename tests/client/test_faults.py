"""Connection failures: each program runs once and its value is right, or an error says what is wrong.

Internals: faults are caused in the transport, and counters are uploaded to sessions that are not the current one.
"""

from __future__ import annotations

import gc
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import telegrad as tg
from telegrad.tensor.handle import upload

from ..servers import running_server
from .cutting import DOWN, UP, Cutter

TIMEOUT_S = 30


@pytest.fixture
def proxy(server: str) -> Iterator[Cutter]:
    with Cutter(server) as cutter:
        yield cutter


@pytest.fixture(params=[True, False], ids=["stream", "requests"])
def path(request: pytest.FixtureRequest) -> bool:
    """Whether programs are sent on a stream."""
    return bool(request.param)


def counting(session: tg.Session) -> Callable[[], float]:
    """A program that increments a counter and returns it, so that running it twice would be detected."""
    x = upload(session.recorder, 0.0)

    def step() -> float:
        x.add_(1)
        return float(x.item())

    return step


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_connection_cut_at_every_byte_of_a_message(proxy: Cutter, path: bool, direction: str) -> None:
    with tg.connect(proxy.url, stream=path, timeout=TIMEOUT_S) as session:
        step = counting(session)
        for count in range(1, 5):
            assert step() == count
        before = proxy.passed[direction]
        assert step() == 5
        length = proxy.passed[direction] - before
        assert length > 100
        for count, position in enumerate(range(length + 1), start=6):
            proxy.cut(direction, position)
            assert step() == count, position
            proxy.mend()
        assert proxy.cuts >= length


@pytest.mark.parametrize("kind", ["new", "fork", "import"])
@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_session_whose_creation_is_cut_is_made_once(
    server: str, proxy: Cutter, direction: str, kind: str, tmp_path: Path, everything: bool
) -> None:
    with tg.connect(proxy.url, stream=False) as first, httpx.Client(base_url=server) as client:
        x = tg.zeros(1)
        x.add_(1)
        first.export(tmp_path / "session")

        def make() -> tg.Session:
            if kind == "fork":
                return first.fork()
            if kind == "import":
                return tg.import_session(tmp_path / "session", proxy.url, stream=False)
            return tg.connect(proxy.url, stream=False)

        def count() -> int:
            return len(client.get("/v1/sessions").json()["items"])

        before, passed = count(), proxy.passed[direction]
        with make():
            length = proxy.passed[direction] - passed
        for position in range(0, length, 47 if everything else 97):
            proxy.cut(direction, position)
            with make():
                assert count() == before + 1, position
        assert proxy.cuts > length / 100


def test_an_upload_cut_in_many_places(proxy: Cutter, path: bool) -> None:
    data = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    with tg.connect(proxy.url, stream=path, timeout=TIMEOUT_S):
        total = tg.zeros(200_000)
        for count, position in enumerate(range(0, 800_000, 61_003), start=1):
            proxy.cut(UP if count % 2 else DOWN, position)
            total += tg.tensor(data)
            np.testing.assert_array_equal(total.numpy(), np.add.reduce([data] * count, dtype=np.float32))
            proxy.mend()


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_connection_cut_again_while_it_is_mended(proxy: Cutter, path: bool, direction: str) -> None:
    with tg.connect(proxy.url, stream=path, timeout=TIMEOUT_S) as session:
        step = counting(session)
        for count, position in enumerate(range(0, 420, 13), start=1):
            proxy.kill()
            proxy.cut(direction, position)
            assert step() == count, position
            proxy.mend()


def test_several_programs_under_way_when_the_connection_is_cut(proxy: Cutter) -> None:
    data = np.ones((64, 1024), np.float32)
    with tg.connect(proxy.url, stream=True, timeout=TIMEOUT_S) as session:
        x, added = tg.zeros(1024), 0
        for round_ in range(12):
            proxy.cut(UP if round_ % 2 else DOWN, 137 + 211 * round_)
            for _ in range(20):  # a quarter MiB each: four make a message
                x += tg.tensor(data).sum(0)
                added += 64
            assert x[0].item() == added
            proxy.mend()
        assert session.requests >= 48


def test_a_network_that_is_gone_is_an_error_and_nothing_is_lost_when_it_is_back(proxy: Cutter, path: bool) -> None:
    with tg.connect(proxy.url, stream=path, timeout=TIMEOUT_S) as session:
        step = counting(session)
        assert step() == 1
        proxy.refusing = True
        proxy.kill()
        started = time.monotonic()
        with pytest.raises(ConnectionError):
            step()
        assert time.monotonic() - started < TIMEOUT_S
        proxy.refusing = False
        assert step() == 3  # the program that could not be sent is sent first


@pytest.mark.full
def test_a_server_that_is_restarted_does_not_know_the_session() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running_server(f"--port={port}") as url:
        sessions = [tg.connect(url, stream=stream, timeout=TIMEOUT_S) for stream in (True, False)]
        steps = [counting(session) for session in sessions]
        assert [step() for step in steps] == [1, 1]
    with running_server(f"--port={port}"):
        for session, step in zip(sessions, steps, strict=True):
            for _ in range(2):
                with pytest.raises(LookupError, match="no session of this id"):
                    step()
            session.close()
        with tg.connect(url, timeout=TIMEOUT_S) as session:
            assert counting(session)() == 1


def test_a_server_that_stops_in_the_middle_is_an_error() -> None:
    with running_server() as url:
        session = tg.connect(url, timeout=TIMEOUT_S)
        step = counting(session)
        assert step() == 1
    with pytest.raises(ConnectionError, match="cannot reach"):
        step()
    session.close()


def test_an_interrupted_wait_leaves_the_next_value_right(server: str, path: bool) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with tg.connect(server, stream=path, timeout=TIMEOUT_S) as session:
        step = counting(session)
        assert step() == 1
        big = tg.ones(700, 700)
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for count in range(2, 6):
                for _ in range(20):
                    big = (big @ big).clamp(max=1.0)
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                with pytest.raises(KeyboardInterrupt):
                    big.sum().item()
                assert step() == count
            assert big[0, 0].item() == 1.0
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 9\r\nconnection: close\r\n\r\nForbidden", "answered 403"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\nuntil the end", "answered 502"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: other\r\nconnection: upgrade\r\n\r\n", "no WebSocket"),
        (b"220 mail.example.org\r\n\r\n", "no WebSocket"),
        (b"", "closed"),
    ],
    ids=["forbidden", "bad gateway", "another protocol", "no HTTP", "nothing"],
)
def test_where_a_proxy_forbids_it_programs_go_as_requests(proxy: Cutter, answer: bytes, said: str) -> None:
    proxy.to_upgrades = answer
    with tg.connect(proxy.url, timeout=TIMEOUT_S) as session:
        assert type(session.recorder.transport._programs).__name__ == "HttpFallback"  # type: ignore[attr-defined]
        assert counting(session)() == 1
    with pytest.raises(ConnectionError, match=f"takes no stream: .*{said}"):
        tg.connect(proxy.url, stream=True)


@pytest.mark.full
def test_a_program_beyond_the_servers_limit_is_refused_and_the_session_goes_on() -> None:
    with running_server(max_body_bytes=100_000) as url:
        for stream in (True, False):
            with tg.connect(url, stream=stream, timeout=TIMEOUT_S) as session:
                step = counting(session)
                assert step() == 1
                total = tg.tensor(np.zeros(100_000, np.float32)).sum()
                for _ in range(2):  # each read raises, since it was never computed
                    with pytest.raises(RuntimeError, match="at most 100000 bytes"):
                        total.item()
                del total
                gc.collect()
                assert step() == 2


def test_a_stream_that_its_sender_opened_elsewhere_is_an_error(server: str) -> None:
    from telegrad.transport.connection import ssl_context
    from telegrad.transport.websocket import WebSocket

    with tg.connect(server, stream=True, timeout=TIMEOUT_S) as session:
        step = counting(session)
        assert step() == 1
        transport: Any = session.recorder.transport
        other = WebSocket(transport._programs._url, {}, ssl_context())
        deadline = time.monotonic() + TIMEOUT_S
        with pytest.raises(ConnectionError, match="4409"):
            while time.monotonic() < deadline:
                step()
        other.close()


def test_a_long_answer_that_nobody_waits_for_holds_up_no_long_program(server: str, path: bool) -> None:
    with tg.connect(server, stream=path, timeout=TIMEOUT_S) as session:
        step = counting(session)
        large = tg.zeros(4 * 2**20)
        assert step() == 1
        transport: Any = session.recorder.transport
        receive, transport.receive = transport.receive, lambda: 1 / 0  # as if Ctrl-C interrupted the wait
        with pytest.raises(ZeroDivisionError):
            large.numpy()
        transport.receive = receive
        data = np.ones(4 * 2**20, np.float32)
        assert (large + tg.tensor(data)).sum().item() == 4 * 2**20
        assert step() == 2


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b"{}"), (200, b"[]"), (301, b""), (404, b"nothing here"), (500, b"")]
)
def test_a_server_that_is_none_of_ours_says_so(status: int, body: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.raises(ConnectionError, match="does not answer as a Telegrad server"):
                tg.connect(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
