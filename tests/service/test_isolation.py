"""Each operation of the OpenAPI document, and the stream, as another tenant, without a key, and without the scope.

A new operation is tested without a change here, unless its path has a parameter that ``EXAMPLES`` lacks.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from safetensors.numpy import save
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from ..in_process import server_with
from .api_keys import bearer, client_with, create_key, id_of, sqlite
from .conftest import problem

SHARED = {"list_ops", "get_op", "list_optimizers", "list_devices", "list_workers", "get_usage", "get_metrics"}
"""Operations on what belongs to no tenant, or names no session (test_usage.py)."""
CREATING = {"create_session", "import_session", "create_key"}
"""Operations without a parameter in the path that make something of the tenant that asks."""
WITHOUT = {"read": "functions,admin", "sessions": "read,functions,admin", "functions": "sessions,admin"}
WITHOUT["admin"] = "sessions,functions"
"""For each scope, all scopes that do not include it."""
TWICE = {
    "name": "twice_of_a",
    "forward": {"inputs": ["x"], "instructions": [{"op": "mul", "in": ["x", 2], "out": ["y"]}], "outputs": ["y"]},
}


class Operation(NamedTuple):
    id: str
    method: str
    path: str
    scope: str | None


class Tenants(NamedTuple):
    url: str
    keys: dict[str, str]
    """A key of each tenant; and for each scope, a key of tenant a that lacks it."""
    examples: dict[str, str]
    """A value for each parameter of a path: resources of tenant a."""
    operations: list[Operation]

    def request(self, operation: Operation, key: str | None) -> httpx.Response:
        path = re.sub(r"{(\w+)}", lambda found: self.examples[found[1]], operation.path)
        with client_with(self.url, None if key is None else self.keys[key]) as client:
            content: dict[str, Any] = {} if operation.method in ("get", "delete") else {"json": {}}
            return client.request(operation.method, path, **content)

    @property
    def stream(self) -> str:
        return f"{self.url.replace('http', 'ws', 1)}/v1/sessions/{self.examples['session']}/stream"


def operations(document: dict[str, Any]) -> list[Operation]:
    return [
        Operation(found["operationId"], method, path, found["security"][0]["ApiKey"][0] if found["security"] else None)
        for path, methods in document["paths"].items()
        for method, found in methods.items()
    ]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    database = sqlite(tmp_path_factory.mktemp("isolation"))
    keys = {tenant: create_key(database, tenant) for tenant in ("a", "b")}
    keys |= {scope: create_key(database, "a", others) for scope, others in WITHOUT.items()}
    with server_with(database_url=database) as url, client_with(url, keys["a"]) as client:
        session = client.post("/v1/sessions", json={"name": "session_of_a"}).json()["id"]
        path = f"/v1/sessions/{session}"
        leaf = {"id": "x_of_a", "data": [1.0, 2.0], "requires_grad": True}
        assert client.post(f"{path}/tensors", json=leaf).status_code == 201
        assert client.post(f"{path}/functions", json=TWICE).status_code == 201
        program = [
            {"op": "start_profile"},
            {"op": "sum", "in": ["x_of_a"], "out": ["y_of_a"]},
            {"op": "backward", "in": [["y_of_a"]]},
            {"op": "stop_profile"},
        ]
        assert client.post(f"{path}/programs", json={"instructions": program}).status_code == 200
        examples = {
            "session": session,
            "id": "x_of_a",
            "op": "mul",
            "name": "twice_of_a",
            "call": "1",
            "node": "t:x_of_a",
        }
        examples["key"] = id_of(keys["a"])
        yield Tenants(url, keys, examples, operations(client.get("/openapi.json").json()))


@pytest.mark.full
def test_every_parameter_of_a_path_has_an_example(tenants: Tenants) -> None:
    assert tenants.operations
    missing = [o for o in tenants.operations if set(re.findall(r"{(\w+)}", o.path)) - tenants.examples.keys()]
    assert not missing, "give their parameters in the examples of the fixture"


def test_without_a_key_only_public_operations_answer(tenants: Tenants) -> None:
    for operation in tenants.operations:
        answer = tenants.request(operation, None)
        if operation.scope is None:
            assert answer.status_code == 200, operation
        else:
            problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert {o.path for o in tenants.operations if o.scope is None} == {"/healthz", "/readyz"}


def test_without_the_scope_nothing_answers(tenants: Tenants) -> None:
    for operation in tenants.operations:
        if operation.scope is not None:
            assert (
                repr(operation.scope)
                in problem(tenants.request(operation, operation.scope), 403, "missing-scope")["detail"]
            )


def test_the_resources_of_another_tenant_do_not_exist(tenants: Tenants) -> None:
    owned = [o for o in tenants.operations if "{" in o.path and o.id not in SHARED]
    assert {"get_session", "run_program", "delete_session", "get_key", "revoke_key"} <= {o.id for o in owned}
    before = contents(tenants)
    for operation in owned:
        # The session is the first thing that is looked up, whatever else the path names.
        slug = "unknown-session" if "{session}" in operation.path else "not-found"
        problem(tenants.request(operation, "b"), 404, slug)
    assert contents(tenants) == before


def contents(tenants: Tenants) -> list[Any]:
    """What tenant a has, which every request of its own shows."""
    found = []
    for path in (
        "/tensors/x_of_a",
        "/tensors/x_of_a/grad",
        "/functions/twice_of_a",
        "/profile",
        "/compiled",
        "/pending",
    ):
        with client_with(tenants.url, tenants.keys["a"]) as client:
            answer = client.get(f"/v1/sessions/{tenants.examples['session']}{path}")
        assert answer.status_code == 200, answer.text
        found.append(answer.json())
    return found


def test_lists_show_nothing_of_another_tenant(tenants: Tenants) -> None:
    own = {tenants.examples["session"], "session_of_a", *(id_of(tenants.keys[name]) for name in ("a", *WITHOUT))}
    plain = [o for o in tenants.operations if "{" not in o.path and o.scope is not None and o.id not in SHARED]
    for operation in plain:
        if operation.id in CREATING:
            continue
        assert operation.method == "get", f"{operation} needs a test of its own"
        text = tenants.request(operation, "b").text
        assert not [each for each in own if each in text], operation
        assert any(each in tenants.request(operation, "a").text for each in own), operation


@pytest.mark.full
def test_what_a_tenant_creates_is_its_own(tenants: Tenants) -> None:
    with client_with(tenants.url, tenants.keys["b"]) as b, client_with(tenants.url, tenants.keys["a"]) as a:
        for path, body in (("/v1/sessions", {}), ("/v1/keys", {"scopes": ["read"]})):
            created = b.post(path, json=body)
            assert created.status_code == 201
            location = created.headers["location"]
            assert b.get(location).status_code == 200 and a.get(location).status_code == 404
            assert b.delete(location).status_code == 204
    # A session of another tenant may have functions and tensors of the same names.
    with client_with(tenants.url, tenants.keys["b"]) as b:
        path = b.post("/v1/sessions").headers["location"]
        assert b.get(f"{path}/functions").json()["items"] == []
        assert b.post(f"{path}/functions", json=TWICE).status_code == 201


@pytest.mark.every
@pytest.mark.parametrize(("key", "status"), [(None, 401), ("b", 404), ("sessions", 403), ("a", 101)])
def test_the_stream(tenants: Tenants, key: str | None, status: int) -> None:
    headers = {} if key is None else bearer(tenants.keys[key])
    if status == 101:
        with connect(tenants.stream, additional_headers=headers) as stream:
            assert tenants.examples["session"] in str(stream.recv(60))
        return
    with pytest.raises(InvalidStatus) as refused:
        connect(tenants.stream, additional_headers=headers)
    assert refused.value.response.status_code == status
    assert refused.value.response.headers["content-type"] == "application/problem+json"


class Recurring:
    """A program that a new session of a tenant runs again and again."""

    _text = json.dumps([{"op": "mul", "in": ["_0", 2.0], "out": ["_1"]}, {"op": "free", "in": [["_1"]]}])
    _digest = hashlib.sha256(_text.encode()).hexdigest()

    def __init__(self, client: httpx.Client, elements: int = 3) -> None:
        self._http = client
        self._path = client.post("/v1/sessions").headers["location"]
        client.post(f"{self._path}/tensors", json={"id": "x", "data": [1.0] * elements})

    def run(self, with_text: bool) -> httpx.Response:
        calls = json.dumps([{"template": self._digest, "ids": ["x", "y"]}])
        body = save({}, {"calls": calls} | ({f"template.{self._digest}": self._text} if with_text else {}))
        media = {"Content-Type": "application/vnd.safetensors"}
        return self._http.post(f"{self._path}/programs", content=body, headers=media)

    def report(self) -> dict[str, Any]:
        """How it ran."""
        found: dict[str, Any] = self._http.get(f"{self._path}/compiled").json()["items"][-1]
        return found


@pytest.mark.one_process("a program is cached by the worker that has run it")
def test_another_tenants_programs_cannot_be_probed(tenants: Tenants) -> None:
    with client_with(tenants.url, tenants.keys["a"]) as own, client_with(tenants.url, tenants.keys["b"]) as other:
        assert Recurring(own).run(with_text=True).status_code == 200
        assert Recurring(own).run(with_text=False).status_code == 200
        problem(Recurring(other).run(with_text=False), 404, "unknown-program")


@pytest.mark.one_process("a plan belongs to the worker that has made it")
def test_a_plan_is_not_shared_with_another_tenant(tenants: Tenants) -> None:
    with client_with(tenants.url, tenants.keys["a"]) as own, client_with(tenants.url, tenants.keys["b"]) as other:
        first = Recurring(own)
        first.run(with_text=True)
        while not first.report()["planned_runs"]:
            assert first.run(with_text=False).status_code == 200
        again, larger, foreign = Recurring(own), Recurring(other, elements=4), Recurring(other)
        for each in (again, larger, foreign):
            each.run(with_text=True)
            each.run(with_text=False)
        assert again.report()["planned_runs"]
        assert "shape" not in larger.report()["reason"]  # nothing was planned for this tenant that it could differ from
        assert not foreign.report()["planned_runs"]
