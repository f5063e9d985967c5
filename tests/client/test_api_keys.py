"""The SDK against a server that requires API keys, with and without TLS."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

import telegrad as tg
from telegrad_service.cli import main

from ..servers import running_server


class Server(NamedTuple):
    url: str
    database: str


def create_key(database: str, capsys: pytest.CaptureFixture[str], scopes: str = "sessions") -> str:
    main(["keys", "create", "--tenant", "research", "--scopes", scopes, "--database-url", database])
    return capsys.readouterr().out.strip()


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    database = f"sqlite:///{tmp_path_factory.mktemp('keys') / 'keys.db'}"
    with running_server("--require-keys", database_url=database) as url:
        yield Server(url, database)


@pytest.fixture
def key(protected: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("TELEGRAD_API_KEY", raising=False)
    return create_key(protected.database, capsys)


def train(session: tg.Session) -> None:
    w = tg.zeros(3, requires_grad=True)
    for _ in range(30):
        ((w - tg.tensor([1.0, 2.0, 3.0])) ** 2).sum().backward()
        w.data -= 0.25 * w.grad  # type: ignore[operator]
        w.grad = None
    assert [round(x) for x in w.tolist()] == [1, 2, 3]


@pytest.mark.every
@pytest.mark.parametrize("stream", [True, False])
def test_a_key(protected: Server, key: str, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with tg.connect(protected.url, api_key=key, stream=stream) as session:
        train(session)
        with session.another() as other:
            assert other.id != session.id and tg.ones(2).tolist() == [1.0, 1.0]
        with tg.connect(protected.url, session=session.id, api_key=f" {key}\n", stream=stream):
            assert tg.ones(2).tolist() == [1.0, 1.0]
        transport = session.recorder.transport
        assert key not in f"{session!r} {vars(transport)!r}"
    monkeypatch.setenv("TELEGRAD_API_KEY", key)
    with tg.connect(protected.url, stream=stream) as session:
        train(session)


def test_no_key_and_wrong_ones(
    protected: Server, key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong, words in ((None, "needs an API key"), ("", "needs an API key"), (key[:-1] + "-", "not an API key")):
        with pytest.raises(PermissionError, match=words) as caught:
            tg.connect(protected.url, api_key=wrong)
        assert type(caught.value).__name__ == "Unauthenticated" and key[17:50] not in str(caught.value)
    with pytest.raises(PermissionError, match="lacks the scope 'sessions'"):
        tg.connect(protected.url, api_key=create_key(protected.database, capsys, "read"))
    for invalid in ("a b", "a\nb: c", "schlüssel", "tg_\x00"):
        with pytest.raises(ValueError, match="characters that an API key cannot have") as refused:
            tg.connect(protected.url, api_key=invalid)
        assert invalid not in str(refused.value)
    with pytest.raises(TypeError, match="api_key is a string, not int"):
        tg.connect(protected.url, api_key=5)
    monkeypatch.setenv("TELEGRAD_API_KEY", "wrong")
    with tg.connect(protected.url, api_key=key) as session:
        train(session)


@pytest.mark.every
@pytest.mark.parametrize("stream", [True, False])
def test_a_key_that_is_revoked_during_a_session(protected: Server, key: str, stream: bool) -> None:
    session = tg.connect(protected.url, api_key=key, stream=stream)
    try:
        x = tg.ones(2)
        assert x.tolist() == [1.0, 1.0]
        main(["keys", "revoke", key.split("_")[1], "--database-url", protected.database])
        with pytest.raises(PermissionError, match="is revoked"):
            while True:
                (x + 1).tolist()
    finally:
        session.close()


@pytest.mark.full
def test_a_function_of_the_server_needs_another_scope(protected: Server, key: str) -> None:
    with tg.connect(protected.url, api_key=key), pytest.raises(PermissionError, match="lacks the scope 'admin'"):

        @tg.ops.register_function("double_for_all", scope="server", example=[tg.ones(2)])
        def double_for_all(x: tg.Tensor) -> tg.Tensor:
            return x * 2

        double_for_all(tg.ones(2)).tolist()


@pytest.mark.full
def test_a_redirect_does_not_get_the_key(key: str) -> None:
    seen: list[Any] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, self.headers.get("authorization")))
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{server.server_port}/other")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(ConnectionError) as refused:
                tg.connect(f"http://127.0.0.1:{server.server_address[1]}", api_key=key)
        finally:
            server.shutdown()
            thread.join()
    assert seen == [("/v1/sessions", f"Bearer {key}")] and key not in str(refused.value)


@pytest.mark.full
def test_a_server_that_speaks_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    known, chain, secret = tmp_path / "authority.pem", tmp_path / "server.pem", tmp_path / "server.key"
    authority.cert_pem.write_to_path(str(known))
    for part in issued.cert_chain_pems:
        part.write_to_path(str(chain), append=True)
    issued.private_key_pem.write_to_path(str(secret))
    database = f"sqlite:///{tmp_path / 'keys.db'}"
    key = create_key(database, capsys)
    with running_server(database_url=database, tls_cert=chain, tls_key=secret) as url:
        assert url.startswith("https://127.0.0.1:")
        for stream in (True, False):
            with tg.connect(url, api_key=key, verify=known, stream=stream) as session:
                train(session)
                large = tg.ones(2**20)
                assert (large + 1).sum().item() == 2**21
        with pytest.raises(ConnectionError, match="certificate verify failed"):
            tg.connect(url, api_key=key)
        with pytest.raises(PermissionError, match="needs an API key"):
            tg.connect(url, verify=known)
        port = url.rpartition(":")[2]
        main(["health", "--port", port, "--tls-cert", str(chain)])
        assert '"ok"' in capsys.readouterr().out
    with pytest.raises(SystemExit, match="certificate cannot be read"):
        main(["serve", "--tls-cert", str(secret), "--tls-key", str(chain), "--database-url", database])
