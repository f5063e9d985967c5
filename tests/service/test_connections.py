"""Connections that keep the server waiting: endless headers, unfinished requests, silent sockets, too many of them.

Internals: limits that follow from the process's descriptors, and sockets' addresses, are tested alone.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from telegrad_service.http.limits import ConnectionLimits, peer_of
from telegrad_service.settings import Settings

from ..in_process import server_with
from ..servers import running
from .conftest import SessionClient, problem
from .raw_http import ask, dial, document, read_all, read_answer, request, status, upgrade
from .streams import Raw, Talk, written

pytestmark = pytest.mark.full

JSON = "Content-Type: application/json"
CHUNKED = request("POST", "/v1/sessions", JSON, "Transfer-Encoding: chunked")
MIB = 2**20


@pytest.fixture(scope="module")
def quick() -> Iterator[str]:
    """A server that waits only briefly."""
    with server_with(header_timeout_s=0.6, body_timeout_s=0.6, idle_timeout_s=0.6) as url:
        yield url


# Size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /healthz?",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\nX: ",
        CHUNKED + b"2;",
    ],
    ids=["url", "header", "name", "trailer", "chunk extension"],
)
def test_what_is_endless_is_refused(url: str, beginning: bytes) -> None:
    with dial(url) as connection:
        connection.sendall(beginning)
        sent = 0
        with pytest.raises(OSError):
            while sent < 64 * MIB:
                sent += connection.send(b"a" * 65536)
        assert sent < 16 * MIB, "more than what socket buffers hold"


@pytest.mark.parametrize(
    "data",
    [
        request("GET", "/healthz?" + "a" * 40_000),
        request("GET", "/healthz", "X: " + "a" * 40_000),
        request("GET", "/healthz", *(f"X{i}: {'a' * 1000}" for i in range(40))),
        request("GET", "/healthz", *(f"X{i}: a" for i in range(200))),
    ],
    ids=["url", "header", "headers", "lines"],
)
def test_headers_that_are_too_large(url: str, data: bytes) -> None:
    answer = ask(url, data)
    assert (status(answer), document(answer)["type"]) == (431, "urn:telegrad:problem:headers-too-large")


def test_headers_within_the_limit(url: str) -> None:
    assert status(ask(url, request("GET", "/healthz?" + "a" * 20_000, "X: " + "a" * 10_000))) == 200


def test_what_is_no_http_is_a_problem_document(url: str) -> None:
    answer = ask(url, b"nonsense\r\n\r\n")
    assert (status(answer), document(answer)["type"]) == (400, "urn:telegrad:problem:malformed-request")


# Time ------------------------------------------------------------------------------------------


def test_a_silent_socket_is_closed(quick: str) -> None:
    with dial(quick) as connection:
        assert read_all(connection) == b""


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /healthz HTTP/1.1\r\nHost: local",
        b"\r\n\r\n",
        request("POST", "/v1/sessions", JSON, "Content-Length: 100") + b"{",
        CHUNKED + b"2\r\n{",
    ],
    ids=["headers", "empty lines", "body", "chunk"],
)
def test_an_unfinished_request_is_given_up(quick: str, beginning: bytes) -> None:
    with dial(quick) as connection:
        connection.sendall(beginning)
        answer = read_all(connection)
        assert (status(answer), document(answer)["type"]) == (408, "urn:telegrad:problem:request-timeout")


def test_a_byte_now_and_then_gains_no_time(quick: str) -> None:
    with dial(quick) as connection:
        connection.settimeout(0.05)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        answer = b""
        for _ in range(200):
            try:
                connection.sendall(b"a")
                answer = connection.recv(1000)
                break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("the server waits for ever")
        assert status(answer) in (0, 408)


def test_a_body_that_keeps_coming_may_take_longer(quick: str) -> None:
    body = b'{"name": "' + b"a" * 100 + b'"}' + b" " * 20_000
    with dial(quick) as connection:
        connection.sendall(request("POST", "/v1/sessions", JSON, f"Content-Length: {len(body)}"))
        connection.settimeout(0.1)
        for start in range(0, len(body), 1000):
            connection.sendall(body[start : start + 1000])
            with pytest.raises(TimeoutError):
                if start + 1000 < len(body):
                    connection.recv(1)
                else:
                    raise TimeoutError
        connection.settimeout(20)
        assert status(connection.recv(1000)) == 201


def test_a_body_that_has_mostly_arrived_gains_no_more_time(quick: str) -> None:
    with dial(quick) as connection:
        connection.sendall(request("POST", "/v1/sessions", JSON, f"Content-Length: {2 * MIB}") + b" " * MIB)
        assert status(read_all(connection)) == 408


def test_a_body_that_was_refused_is_not_read_for_ever(quick: str) -> None:
    head = request("POST", "/v1/sessions", JSON, f"Content-Length: {2**60}")
    with dial(quick) as connection:
        connection.sendall(head)
        assert status(read_answer(connection)) == 413
        with pytest.raises(OSError):
            while True:
                connection.sendall(b"a" * 65536)


@pytest.mark.parametrize(
    "beginning",
    [
        written(0x82, b"a" * 1000)[:500],
        written(0x82, b"a" * 1000)[:3],
        written(0x82, b"a" * 4000)[:2000],
        written(0x81, b"a" * 1000)[:500],
        written(0x02, b"a" * 1000),
        written(0x82, b"a" * MIB)[: MIB // 2],
    ],
    ids=["message", "head", "longer message", "text", "fragment", "large message"],
)
def test_an_unfinished_message_of_a_stream_is_given_up(quick: str, beginning: bytes) -> None:
    with httpx.Client(base_url=quick, timeout=240) as client:
        raw = Raw(SessionClient(client))
        raw.socket.sendall(beginning)
        with suppress(ConnectionResetError):
            assert raw.message() == (0, b"")
        raw.close()


def test_a_stream_may_be_silent(quick: str) -> None:
    with httpx.Client(base_url=quick, timeout=240) as client:
        talk = Talk(SessionClient(client))
        for _ in range(3):
            with dial(quick) as silent:
                read_all(silent)
        assert talk.ask(1, {"op": "tensor", "out": ["x"], "attrs": {"data": [1.0]}})["sequence"] == 1
        talk.socket.close()


@pytest.mark.parametrize(
    "data",
    [
        upgrade("/v1/sessions/x/stream", "Content-Length: 5") + b"hello",
        upgrade("/v1/sessions/x/stream", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        upgrade("/v1/sessions/x/stream", "Cookie: " + "a" * 10_000),
        upgrade("/v1/sessions/x/stream?" + "a" * 10_000),
    ],
    ids=["body", "chunks", "header", "url"],
)
def test_a_request_for_a_stream_that_the_library_does_not_read(quick: str, data: bytes) -> None:
    with dial(quick) as connection:
        connection.sendall(data)
        answer = read_all(connection)
    assert (status(answer), document(answer)["type"]) == (400, "urn:telegrad:problem:malformed-request")


def test_an_idle_connection_is_closed(quick: str) -> None:
    with dial(quick) as connection:
        connection.sendall(request("GET", "/healthz"))
        answer = read_all(connection)
        assert status(answer) == 200 and answer.count(b"HTTP/1.1") == 1


def test_a_client_that_takes_no_answers_is_cut_off(quick: str) -> None:
    with httpx.Client(base_url=quick, timeout=240) as client:
        session = SessionClient(client)
        size = 32 * MIB
        session.run({"op": "zeros", "out": ["x"], "attrs": {"size": [size // 4]}})
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((client.base_url.host, client.base_url.port))
            connection.sendall(request("GET", f"{session.path}/tensors/x", "Accept: application/x-npy"))
            connection.settimeout(20)
            assert connection.recv(10) == b"HTTP/1.1 2"
            for _ in range(4):  # each takes the server as long as it waits for a client that does nothing
                with dial(quick) as silent:
                    read_all(silent)
            assert len(read_all(connection)) < size


def test_a_program_may_compute_for_longer_than_its_client_may_wait(quick: str) -> None:
    with httpx.Client(base_url=quick, timeout=240) as client:
        session = SessionClient(client)
        loop = [{"op": "matmul", "in": ["x", "x"]}] * 60
        answer = session.run({"op": "zeros", "out": ["x"], "attrs": {"size": [1000, 1000]}}, *loop)
        assert answer.status_code == 200


# Number ----------------------------------------------------------------------------------------


def few_descriptors() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


@pytest.fixture(scope="module")
def scarce() -> Iterator[str]:
    """A server with 256 file descriptors, which would wait for its clients for a long time."""
    if sys.platform == "win32":
        pytest.skip("Windows has no such limit")
    with running(prepare=few_descriptors) as (url, _):
        yield url


def hold_many(held: ExitStack, url: str, beginning: bytes = b"") -> None:
    """Open more connections than the server has descriptors, on which a request begins."""
    for count in range(300):
        connection = held.enter_context(dial(url))
        if beginning:
            connection.sendall(beginning)
        if count % 16 == 0:  # all before it are accepted by then: a full backlog would cost a second each time
            assert status(ask(url, request("GET", "/healthz"))) == 200


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: local",
        request("POST", "/v1/sessions", JSON, "Content-Length: 100") + b"{",
    ],
    ids=["silent", "headers", "body"],
)
def test_health_is_answered_while_all_descriptors_are_wanted(scarce: str, beginning: bytes) -> None:
    with ExitStack() as held:
        hold_many(held, scarce, beginning)
        for _ in range(5):
            assert status(ask(scarce, request("GET", "/healthz"))) == 200
    with httpx.Client(base_url=scarce, timeout=240) as client:  # they are gone, and all is as it was
        client.delete(SessionClient(client).path)


def test_who_works_is_not_disturbed(scarce: str) -> None:
    with httpx.Client(base_url=scarce, timeout=240) as client, ExitStack() as held:
        session = SessionClient(client)
        talk = Talk(session)
        hold_many(held, scarce)
        assert talk.ask(1, {"op": "tensor", "out": ["x"], "attrs": {"data": [1.0]}})["sequence"] == 1
        session.assert_usable()
        talk.socket.close()


def test_above_the_limit_there_are_health_checks_and_nothing_else() -> None:
    with server_with(max_connections=3) as url, httpx.Client(base_url=url, timeout=240) as client:
        session, other = SessionClient(client), SessionClient(client)
        talks = [Talk(session), Talk(other)]
        client.close()
        with dial(url) as busy:
            busy.sendall(request("POST", "/v1/sessions", JSON, "Content-Length: 100") + b"{")
            for path, expected in {"/healthz": 200, "/readyz": 200, "/v1/ops": 503}.items():
                answer = ask(url, request("GET", path))
                assert status(answer) == expected and b"connection: close" in answer.lower()
            assert document(answer)["type"] == "urn:telegrad:problem:server-busy" and b"retry-after" in answer
        for talk in talks:
            talk.socket.close()
        assert httpx.get(url + "/v1/ops").status_code == 200


def test_an_idle_connection_makes_room_for_a_new_one() -> None:
    with server_with(max_connections_per_peer=2) as url, dial(url) as first, dial(url) as second:
        for connection in (first, second):
            connection.sendall(request("GET", "/healthz"))
            assert status(read_answer(connection)) == 200
        assert status(ask(url, request("GET", "/v1/ops"))) == 200
        assert read_all(first) == b""
        second.sendall(request("GET", "/healthz"))
        assert status(read_answer(second)) == 200


@pytest.mark.parametrize(
    ("descriptors", "max_open", "max_per_peer"),
    [(float("inf"), 1000, 256), (1024, 768, 256), (256, 192, 144), (70, 6, 4), (8, 1, 1)],
)
def test_connections_leave_descriptors_for_other_things(descriptors: float, max_open: int, max_per_peer: int) -> None:
    limits = ConnectionLimits(Settings(), descriptors)
    assert (limits.max_open, limits.max_per_peer) == (max_open, max_per_peer)
    assert limits.backlog >= 1


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_whom_an_address_stands_for(address: str, peer: str) -> None:
    assert peer_of(address) == peer


# Sessions --------------------------------------------------------------------------------------


def create(url: str, **headers: str) -> httpx.Response:
    return httpx.post(url + "/v1/sessions", headers={name.replace("_", "-"): text for name, text in headers.items()})


def test_one_client_does_not_get_all_sessions() -> None:
    with server_with(max_sessions_per_peer=2) as url:
        made = [create(url) for _ in range(2)]
        refused = create(url, x_forwarded_for="192.0.2.1")
        assert "2 sessions" in problem(refused, 429, "quota-exceeded")["detail"]
        assert int(refused.headers["retry-after"]) >= 1
        assert httpx.delete(url + made[0].headers["location"]).status_code == 204
        assert create(url).status_code == 201


def test_behind_a_trusted_proxy_each_client_counts_for_itself() -> None:
    with server_with(max_sessions_per_peer=1, trusted_proxy="127.0.0.1") as url:
        assert create(url, x_forwarded_for="192.0.2.1").status_code == 201
        assert create(url, x_forwarded_for="192.0.2.2").status_code == 201
        assert create(url, x_forwarded_for="192.0.2.1").status_code == 429


def test_no_limit_of_a_client() -> None:
    with server_with(max_sessions_per_peer=0, max_sessions=3) as url:
        statuses = [create(url).status_code for _ in range(4)]
        assert statuses == [201, 201, 201, 503]
