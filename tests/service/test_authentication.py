"""API keys: when they are required, which are valid, and what each scope allows."""

from __future__ import annotations

import base64
import json
import sqlite3
import stat
import string
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from telegrad_service.app import create_app
from telegrad_service.cli import main
from telegrad_service.server import NotServed, check_exposure
from telegrad_service.settings import Settings

from ..in_process import server_with, telegrad
from ..servers import running, said
from . import raw_http
from .api_keys import WAIT_S, bearer, client_with, command, create_key, id_of, sqlite, wait_until
from .conftest import problem
from .streams import container

SQUARE = {
    "name": "own_square",
    "forward": {"inputs": ["x"], "instructions": [{"op": "mul", "in": ["x", "x"], "out": ["y"]}], "outputs": ["y"]},
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = sqlite(tmp_path_factory.mktemp("authentication"))
    create_key(url, "unused")
    return url


@pytest.fixture(scope="module")
def url(database: str) -> Iterator[str]:
    with server_with(database_url=database, cors_origin="https://app.example.org") as url:
        yield url


def status(url: str, key: str | None, path: str = "/v1/sessions") -> int:
    with client_with(url, key) as client:
        return client.get(path).status_code


def dial(url: str, path: str, key: str | None, query: str = "") -> ClientConnection:
    """A connection to the stream of the session at ``path``, after the greeting."""
    address = f"{url.replace('http', 'ws', 1)}{path}/stream{query}"
    stream = connect(address, additional_headers=bearer(key) if key else {}).__enter__()
    stream.recv(WAIT_S)
    return stream


def close_code(stream: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        stream.recv(WAIT_S)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


# When keys are required ----------------------------------------------------------------------------


@pytest.mark.one_process("a cluster has its directory in a database")
def test_without_keys_a_server_names_its_database_and_does_not_create_it(tmp_path: Path) -> None:
    with running(env={"XDG_DATA_HOME": str(tmp_path)}) as (url, process), client_with(url, None) as client:
        lines = said(process)
        assert f"Console at {url}/\n" in lines
        assert f"No API key is required while the database {tmp_path / 'telegrad' / 'telegrad.db'} holds none" in lines
        path = client.post("/v1/sessions").headers["location"]
        assert client.get(path, headers=bearer("tg_whatever")).status_code == 200
        assert client.get("/v1/keys").json() == {"items": [], "next_cursor": None}
        problem(client.post("/v1/keys", json={"scopes": ["admin"]}), 403, "missing-scope")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_the_first_key_closes_a_running_server(tmp_path: Path) -> None:
    database = sqlite(tmp_path)
    with server_with(database_url=database) as url, client_with(url, None) as client:
        stream = dial(url, client.post("/v1/sessions").headers["location"], None)
        key = create_key(database, "research")
        wait_until(lambda: status(url, None) == 401)
        assert close_code(stream) == 4401
        assert status(url, key) == 200
        with client_with(url, key) as ours:
            assert ours.get("/v1/sessions").json()["items"] == [], "those of nobody are nobody's"
        command(database, "revoke", id_of(key))
        wait_until(lambda: status(url, key) == 401)
        assert status(url, None) == 401, "revoking the last key does not open the server"


@pytest.mark.full
def test_keys_may_be_required_before_there_are_any(tmp_path: Path) -> None:
    database = sqlite(tmp_path)
    with server_with(database_url=database, require_keys=True) as url:
        assert (status(url, None), status(url, None, "/healthz")) == (401, 200)
        key = create_key(database, "research")
        assert status(url, key) == 200


@pytest.fixture(scope="module")
def once_used(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database whose only key is revoked."""
    url = sqlite(tmp_path_factory.mktemp("once_used"))
    command(url, "revoke", id_of(create_key(url, "unused")))
    return url


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "required"),
    [
        ((), True),
        (("--no-require-keys",), False),
        (("--insecure",), False),
        (("--insecure", "--require-keys"), True),
    ],
)
def test_flags_win_over_the_database_and_the_server_says_so(
    once_used: str, flags: tuple[str, ...], required: bool
) -> None:
    with running("--database-url", once_used, *flags) as (url, process):
        assert status(url, None) == (401 if required else 200)
        lines = said(process)
    if required:
        assert f"An API key is required, from the database {once_used}" in lines
    else:
        assert f"No API key is required, whatever the database holds ({flags[0]})" in lines


def test_whoever_makes_a_key_learns_what_it_closes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "create", "--tenant", "research", "--database-url", sqlite(tmp_path)])
    assert f"Servers that use {sqlite(tmp_path)} require a key from now on" in capsys.readouterr().err


def test_off_loopback_a_server_needs_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = sqlite(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--host", "0.0.0.0", "--port", "0", "--database-url", database])
    for advice in ("telegrad keys create", "--insecure", "--require-keys"):
        assert advice in str(ended.value)
    for host in ("192.0.2.1", "::", "example.org"):
        with pytest.raises(NotServed):
            check_exposure(create_app(Settings(host=host, database_url=database)))
    assert list(tmp_path.iterdir()) == []
    for host in ("127.0.0.1", "::1", "localhost", "127.8.9.10"):
        check_exposure(create_app(Settings(host=host, database_url=database)))
    check_exposure(create_app(Settings(host="0.0.0.0", database_url=database, insecure=True)))
    check_exposure(create_app(Settings(host="0.0.0.0", database_url=database, require_keys=True)))
    create_key(database, "research")
    app = create_app(Settings(host="0.0.0.0", database_url=database))
    check_exposure(app)
    app.state.authenticator.close()
    # Keys of the database do not stop being required where others reach the server, unless a flag says just that.
    with pytest.raises(NotServed, match="--no-require-keys"):
        check_exposure(create_app(Settings(host="0.0.0.0", database_url=database, require_keys=False)))
    check_exposure(create_app(Settings(host="0.0.0.0", database_url=database, require_keys=False, insecure=True)))


@pytest.mark.parametrize(
    ("published", "reached"),
    [
        *[("127.0.0.1:8000", False), ("[::1]:8000", False), ("0.0.0.0:8000", True), ("[::]:80", True)],
        *[("8000", True), ("192.0.2.1:80", True)],
    ],
)
def test_where_a_container_is_published_decides_who_reaches_it(tmp_path: Path, published: str, reached: bool) -> None:
    app = create_app(Settings(host="0.0.0.0", database_url=sqlite(tmp_path), published_at=published))
    if reached:
        with pytest.raises(NotServed, match="other machines can reach"):
            check_exposure(app)
    else:
        check_exposure(app)


# Which requests are authenticated --------------------------------------------------------------------


def test_requests_that_need_no_key(url: str) -> None:
    for path in ("/", "/healthz", "/readyz", "/docs", "/redoc", "/openapi.json", "/docs/swagger-ui.css"):
        assert status(url, None, path) == 200, path
    assert status(url, None, "/console/nothing.js") == 404
    for path in ("/v1", "/console", "/nothing", "/healthz/", "/docs/../v1/sessions", "/metrics"):
        assert status(url, None, path) == 401, path


def test_a_key_that_is_none(url: str, database: str, tmp_path: Path) -> None:
    key = create_key(database, "research")
    other = create_key(sqlite(tmp_path), "research")
    revoked = create_key(database, "research")
    command(database, "revoke", id_of(revoked))
    forged = create_key(sqlite(tmp_path), "research")
    mistyped = key[:30] + ("a" if key[30] != "a" else "b") + key[31:]
    for value, words in {
        "": "needs an API key",
        key: "needs an API key",
        f"Basic {key}": "needs an API key",
        f"Basic {b64(key)}": "needs an API key",
        f"Basic {b64(f':{mistyped}')}": "checksum",
        f"Basic {b64(f'{key}:')}": "not an API key",
        "Bearer": "needs an API key",
        "Bearer hello": "not an API key",
        f"Bearer {key} {key}": "not an API key",
        f"Bearer {key[:-1]}\xe9": "not an API key",
        f"Bearer {mistyped}": "checksum",
        f"Bearer {other}": "unknown here",
        f"Bearer {forged}": "unknown here",
        f"Bearer {revoked}": "is revoked",
    }.items():
        answer = httpx.get(f"{url}/v1/sessions", headers={"Authorization": value.encode("latin-1")})
        detail = problem(answer, 401, "unauthenticated")["detail"]
        assert words in detail and "telegrad keys create --tenant" in detail, value
        assert answer.headers["www-authenticate"] == 'Bearer realm="telegrad"'
        assert key not in answer.text
    assert httpx.get(f"{url}/v1/sessions", headers={"Authorization": f"bearer  {key}"}).status_code == 200
    for user in ("", "anyone"):
        assert httpx.get(f"{url}/v1/sessions", auth=(user, key)).status_code == 200
    twice = [("Authorization", f"Bearer {key}"), ("Authorization", f"Bearer {key}")]
    problem(httpx.get(f"{url}/v1/sessions", headers=twice), 400, "malformed-request")


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def with_checksum(body: str) -> str:
    digits = string.digits + string.ascii_uppercase + string.ascii_lowercase
    number, found = zlib.crc32(body.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        found = digits[digit] + found
    return body + found


def test_a_key_with_the_id_of_another(url: str, database: str) -> None:
    """Its secret is wrong, although its checksum is right: the CRC-32 in base 62."""
    key = create_key(database, "research")
    assert with_checksum(key[:59]) == key
    forged = with_checksum(key[:16] + key[16:59][::-1])
    assert forged != key
    answer = httpx.get(f"{url}/v1/sessions", headers=bearer(forged))
    assert "unknown" in problem(answer, 401, "unauthenticated")["detail"]
    assert status(url, key) == 200


@pytest.mark.full
def test_a_key_expires(url: str, database: str) -> None:
    key = create_key(database, "research", "read", "--expires-days", str(3 / 86400))
    wait_until(lambda: status(url, key) == 401)
    assert "is expired" in httpx.get(f"{url}/v1/sessions", headers=bearer(key)).text


def test_a_revoked_key_stops_working_and_its_stream_is_closed(url: str, database: str) -> None:
    key, other = create_key(database, "research"), create_key(database, "research")
    with client_with(url, key) as client:
        path = client.post("/v1/sessions").headers["location"]
        kept, stream = dial(url, client.post("/v1/sessions").headers["location"], other), dial(url, path, key)
        command(database, "revoke", id_of(key))
        assert close_code(stream) == 4401
        wait_until(lambda: client.get(path).status_code == 401)
    kept.send(container(1, {"op": "tensor", "out": ["x"], "attrs": {"data": [1.0]}}))
    assert isinstance(kept.recv(WAIT_S), bytes)
    kept.close()


def test_a_request_is_refused_before_its_body_is_read(url: str) -> None:
    assert (
        raw_http.status(raw_http.ask(url, raw_http.request("POST", "/v1/sessions", "Content-Length: 1000000"))) == 401
    )


@pytest.mark.full
def test_the_host_and_the_origin_are_checked_first_and_preflights_pass(url: str) -> None:
    assert httpx.get(f"{url}/v1/sessions", headers={"Host": "evil.example"}).status_code == 421
    assert httpx.get(f"{url}/v1/sessions", headers={"Origin": "https://evil.example"}).status_code == 403
    page = {"Origin": "https://app.example.org"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    assert httpx.options(f"{url}/v1/sessions", headers=page | asked).status_code == 200
    refused = httpx.get(f"{url}/v1/sessions", headers=page)
    assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == page["Origin"]


@pytest.mark.full
def test_nothing_logs_a_key(database: str) -> None:
    key = create_key(database, "research")
    with running("--database-url", database, "--log-level", "debug") as (url, process):
        assert status(url, key) == 200
        assert status(url, key[:-1] + ("y" if key[-1] == "x" else "x")) == 401
        with client_with(url, key) as client:
            dial(url, client.post("/v1/sessions").headers["location"], key).close()
        process.terminate()
        output, errors = process.communicate(timeout=WAIT_S)
    assert "GET /v1/sessions" in errors
    assert key[17:50] not in output + errors


# Scopes --------------------------------------------------------------------------------------------


def programs(url: str, path: str, key: str) -> Iterator[Any]:
    """Run programs as requests and on the stream; yields a function that does each."""
    with client_with(url, key) as client:
        yield lambda *program: client.post(f"{path}/programs", json={"instructions": program}).json()
    with dial(url, path, key, f"?sender={uuid4().hex}") as stream:
        numbers = iter(range(1, 100))

        def ask(*program: Any) -> Any:
            stream.send(container(next(numbers), *program))
            answer = stream.recv(WAIT_S)
            return json.loads(answer) if isinstance(answer, str) else {}

        yield ask


def test_a_program_needs_the_scope_of_the_functions_that_it_changes(url: str, database: str) -> None:
    plain = create_key(database, "research", "sessions")
    functions = create_key(database, "research", "sessions,functions")
    admin = create_key(database, "research", "sessions,admin")

    def register(scope: str) -> dict[str, Any]:
        return {"op": "register_function", "attrs": {"definition": SQUARE, "scope": scope}}

    def remove(scope: str) -> dict[str, Any]:
        return {"op": "remove_function", "attrs": {"name": "own_square", "scope": scope}}

    with client_with(url, plain) as client:
        path = client.post("/v1/sessions").headers["location"]
        for refused, where, needed in (
            (plain, "session", "functions"),
            (plain, "server", "admin"),
            (functions, "server", "admin"),
            (admin, "session", "functions"),
        ):
            for run in programs(url, path, refused):
                for instruction in (register(where), remove(where)):
                    after = {"op": "tensor", "out": ["never"], "attrs": {"data": 1.0}}
                    answer = run(instruction, after)
                    assert (answer["status"], answer["instruction"]) == (403, 0)
                    assert repr(needed) in answer["detail"]
        assert client.get(f"{path}/functions").json()["items"] == []
        assert client.get(f"{path}/tensors").json()["items"] == []
        for allowed, where in ((functions, "session"), (admin, "server")):
            for run in programs(url, path, allowed):
                assert "status" not in run(register(where))
                assert client.get(f"{path}/functions/own_square").json()["scope"] == where
                assert "status" not in run(remove(where))
    with client_with(url, functions) as client:
        problem(client.post(f"{path}/functions", json={**SQUARE, "scope": "server"}), 403, "missing-scope")
        assert client.post(f"{path}/functions", json=SQUARE).status_code == 201


@pytest.mark.full
def test_reading_changes_nothing(url: str, database: str) -> None:
    owner, reader = create_key(database, "research", "sessions"), create_key(database, "research", "read")
    with client_with(url, owner) as client:
        path = client.post("/v1/sessions").headers["location"]
    with client_with(url, reader) as client:
        assert client.get(path).status_code == client.head(path).status_code == 200
        assert client.get("/v1/ops/add").status_code == 200
        for method in ("POST", "PATCH", "DELETE"):
            problem(client.request(method, "/v1/sessions" if method == "POST" else path), 403, "missing-scope")
        assert client.get("/nothing").status_code == 404 and client.put(path).status_code == 405


# The keys of a tenant ------------------------------------------------------------------------------


def test_keys_over_http(url: str, database: str) -> None:
    with client_with(url, create_key(database, "lab", "admin")) as client:
        made = client.post("/v1/keys", json={"name": "job", "scopes": ["read", "sessions"], "expires_days": 2}).json()
        assert client.post("/v1/keys", json={"scopes": ["read"]}).headers["cache-control"] == "no-store"
        key = made.pop("key")
        assert status(url, key) == 200
        read = client.get(f"/v1/keys/{made['id']}").json()
        assert read.pop("last_used_at") is not None and made.pop("last_used_at") is None
        assert read == made and (made["tenant"], made["status"], made["name"]) == ("lab", "active", "job")
        listed = client.get("/v1/keys", params={"limit": 2}).json()
        assert [item["id"] for item in listed["items"]][1:] == [made["id"]]
        rest = client.get("/v1/keys", params={"limit": 2, "cursor": listed["next_cursor"]}).json()
        assert len(rest["items"]) == 1 and rest["next_cursor"] is None
        assert key[17:50] not in json.dumps([read, listed])
        assert client.delete(f"/v1/keys/{made['id']}").status_code == 204
        assert status(url, key) == 401, "this server forgets it at once"
        problem(client.get(f"/v1/keys/{made['id']}"), 404, "not-found")
        assert [item["status"] for item in client.get("/v1/keys").json()["items"] if item["id"] == made["id"]] == [
            "revoked"
        ]
        invalid: list[dict[str, Any]] = [
            {},
            {"scopes": []},
            {"scopes": ["root"]},
            {"scopes": ["read"], "expires_days": 0},
            {"scopes": ["read"], "expires_days": -1},
            {"scopes": ["read"], "expires_days": 1e9},
            {"scopes": ["read"], "tenant": "other"},
            {"scopes": ["read"], "name": "x" * 201},
        ]
        for body in invalid:
            problem(client.post("/v1/keys", json=body), 422, "invalid-argument")
        problem(client.post("/v1/keys", json={"scopes": ["read"], "name": "a\x00"}), 422, "invalid-value")
        for unknown in ("nothing", "x" * 500, "%00"):
            problem(client.delete(f"/v1/keys/{unknown}"), 404, "not-found")
        problem(client.get("/v1/keys", params={"cursor": "9" * 18}), 422, "invalid-value")


def test_keys_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = sqlite(tmp_path / "deeper")
    with pytest.raises(SystemExit, match="no keys yet"):
        command(database, "list")
    key = create_key(database, "research", "functions,sessions", "--name", "train", "--expires-days", "30")
    assert len(key) == 65 and key.startswith("tg_")
    file = tmp_path / "deeper" / "keys.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and key.encode()[17:] not in file.read_bytes()
    head, row = command(database, "list").splitlines()
    assert head.split()[:5] == ["ID", "TENANT", "NAME", "SCOPES", "STATUS"]
    assert row.split()[:5] == [id_of(key), "research", "train", "functions,sessions", "active"]
    assert "revoked" in command(database, "revoke", id_of(key))
    assert "revoked" in command(database, "list")
    assert command(database, "list", "--tenant", "other").count("\n") == 0
    for flags, words in (
        (["create", "--tenant", "Big"], "not a tenant's name"),
        (["create", "--tenant", "local"], "servers without keys"),
        (["create", "--tenant", "x", "--scopes", "root"], "unknown scope 'root'; the scopes are"),
        (["create", "--tenant", "x", "--scopes", ","], "needs a scope"),
        (["create", "--tenant", "x", "--expires-days", "-1"], "days"),
        (["create", "--tenant", "x", "--name", "a\x1b[2J"], "printable"),
        (["revoke", "nothing"], "no key 'nothing'"),
    ):
        with pytest.raises(SystemExit, match=words):
            command(database, *flags)


# The database --------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("not a database, but long enough to look at " * 50)
    for database, words in {
        f"sqlite:///{other}": "file is not a database",
        f"sqlite:///{tmp_path}": "Is a directory",
        "mysql://root:geheim@localhost/x": "SQLite or PostgreSQL, not mysql",
        "geheim": "not one, such as",
        "sqlite://": "needs a file",
        "postgresql://u:geheim@127.0.0.1:1/x": "127.0.0.1",
    }.items():
        for start in (lambda: main(["serve", "--database-url", database]), lambda: create_key(database, "x")):  # noqa: B023
            with pytest.raises(SystemExit) as ended:
                start()
            assert words in str(ended.value) and "geheim" not in str(ended.value), database


@pytest.mark.full
def test_a_wrong_setting_does_not_print_the_databases_password() -> None:
    for arguments in (["serve", "--tls-key", "x"], ["keys", "create"], ["serve", "--port", "x"]):
        process = telegrad(*arguments, TELEGRAD_DATABASE_URL="postgresql://u:geheim@127.0.0.1/x")
        assert process.returncode == 2 and process.stderr.startswith("telegrad: ")
        assert "geheim" not in process.stderr


@pytest.mark.full
def test_a_database_of_a_newer_version(tmp_path: Path) -> None:
    database = sqlite(tmp_path)
    create_key(database, "research")
    with sqlite3.connect(tmp_path / "keys.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(SystemExit, match="newer version of telegrad-service: its revision is '9999'"):
        main(["serve", "--database-url", database])


@pytest.mark.full
def test_the_keys_are_gone_while_the_server_runs(tmp_path: Path) -> None:
    database = sqlite(tmp_path)
    key = create_key(database, "research")
    with server_with(database_url=database) as url:
        assert status(url, key) == 200
        (tmp_path / "keys.db").write_text("no database any more" * 500)
        wait_until(lambda: status(url, key) == 503)
        assert status(url, None) == 401 and status(url, None, "/healthz") == 200
