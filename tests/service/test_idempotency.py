"""``Idempotency-Key``: a request to create something can be repeated safely."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from .conftest import SessionClient, problem


@pytest.fixture
def key() -> str:
    return str(uuid4())


@pytest.fixture
def created(client: httpx.Client) -> Iterator[list[httpx.Response]]:
    """Sessions to end afterwards."""
    found: list[httpx.Response] = []
    yield found
    for path in {response.headers["location"] for response in found if response.status_code == 201}:
        client.delete(path)


def create(client: httpx.Client, key: str, **body: Any) -> httpx.Response:
    return client.post("/v1/sessions", json=body, headers={"Idempotency-Key": key})


def test_a_repeated_request_creates_one_session(client: httpx.Client, key: str, created: list[httpx.Response]) -> None:
    created += [create(client, key, name="once"), create(client, key, name="once")]
    first, second = created
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert first.headers["location"] == second.headers["location"]
    other = create(client, str(uuid4()), name="once")
    created.append(other)
    assert other.json()["id"] != first.json()["id"]


@pytest.mark.full
def test_a_key_in_quotes_is_the_same_key(client: httpx.Client, key: str, created: list[httpx.Response]) -> None:
    created += [create(client, key), create(client, f'"{key}"')]
    assert created[0].json() == created[1].json()


def test_a_key_belongs_to_one_request(client: httpx.Client, key: str, created: list[httpx.Response]) -> None:
    created.append(create(client, key, seed=1))
    problem(create(client, key, seed=2), 422, "idempotency-mismatch")
    assert create(client, key, seed=1).json() == created[0].json()


@pytest.mark.full
def test_a_request_that_failed_can_be_corrected(client: httpx.Client, key: str, created: list[httpx.Response]) -> None:
    problem(create(client, key, seed=-1), 422, "invalid-argument")
    created.append(create(client, key, seed=1))
    assert created[0].status_code == 201


@pytest.mark.full
@pytest.mark.parametrize("key", ["", "a b", "x" * 256, '""'])
def test_what_is_no_key(client: httpx.Client, key: str) -> None:
    problem(create(client, key), 422, "invalid-argument")


@pytest.mark.full
def test_tensors_of_ids_that_the_server_chooses(session: SessionClient, key: str) -> None:
    headers = {"Idempotency-Key": key}
    first, second = (session.post("/tensors", {"data": [1.0]}, headers=headers) for _ in range(2))
    assert first.json() == second.json()
    assert [item["id"] for item in session.get("/tensors").json()["items"]] == [first.json()["id"]]
    problem(session.post("/tensors", {"data": [2.0]}, headers=headers), 422, "idempotency-mismatch")


def test_requests_at_the_same_time_create_one(session: SessionClient, key: str) -> None:
    """One is executed; the others are answered like it, or told that it is still running."""
    body, headers = {"factory": "randn", "shape": [200_000]}, {"Idempotency-Key": key}
    answers: list[httpx.Response] = []

    def ask() -> None:
        with httpx.Client(base_url=session.client.base_url, timeout=240) as client:
            answers.append(client.post(f"{session.path}/tensors", json=body, headers=headers))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = {answer.json()["id"] for answer in answers if answer.status_code == 201}
    assert len(made) == 1
    for answer in answers:
        if answer.status_code != 201:
            problem(answer, 409, "idempotency-conflict")
    assert {item["id"] for item in session.get("/tensors").json()["items"]} == made
