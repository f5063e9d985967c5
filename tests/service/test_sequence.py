"""A numbered mutation happens once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from .conftest import SessionClient, problem

HEADER = "telegrad-sequence"


def numbered(session: SessionClient, number: Any, method: str, path: str, json: Any = None) -> httpx.Response:
    return session.request(method, path, json=json, headers={HEADER: str(number)})


def test_repeated_it_is_answered_from_the_record(session: SessionClient) -> None:
    first = numbered(session, 1, "POST", "/tensors", {"id": "x", "data": [1.0]})
    again = numbered(session, 1, "POST", "/tensors", {"id": "x", "data": [1.0]})
    assert first.status_code == again.status_code == 201
    assert (first.content, first.headers["location"]) == (again.content, again.headers["location"])
    for _ in range(3):
        assert numbered(session, 2, "POST", "/ops/add_", {"inputs": ["x", 1]}).status_code == 200
    assert session.data("x") == [2.0]
    for _ in range(2):
        assert numbered(session, 3, "DELETE", "/tensors/x").status_code == 204
    assert session.get().json()["sequence"] == 3


def test_errors_are_recorded_too(session: SessionClient) -> None:
    program = [{"op": "randn", "out": ["r"], "attrs": {"size": [2]}}, {"op": "neg", "in": ["nope"]}]
    answers = [numbered(session, 1, "POST", "/programs", program) for _ in range(2)]
    assert problem(answers[0], 404, "unknown-tensor") == problem(answers[1], 404, "unknown-tensor")
    invalid = [numbered(session, 2, "POST", "/backward", {"tensors": 1}) for _ in range(2)]
    assert problem(invalid[0], 422, "invalid-argument") == problem(invalid[1], 422, "invalid-argument")
    assert session.get().json()["sequence"] == 2


def test_conflicts(session: SessionClient) -> None:
    numbered(session, 1, "POST", "/tensors", {"id": "x", "data": [1.0]})
    problem(numbered(session, 1, "POST", "/tensors", {"id": "x", "data": [2.0]}), 409, "sequence-conflict")
    problem(numbered(session, 1, "POST", "/ops/neg", {"id": "x", "data": [1.0]}), 409, "sequence-conflict")
    problem(numbered(session, 1, "DELETE", "/tensors/x"), 409, "sequence-conflict")
    assert "next one is 2" in problem(numbered(session, 3, "DELETE", "/tensors/x"), 409, "sequence-conflict")["detail"]
    assert session.data("x") == [1.0]


def test_old_answers_are_forgotten(session: SessionClient) -> None:
    session.tensor("x", [0.0])
    for number in range(1, 71):
        numbered(session, number, "POST", "/ops/add_", {"inputs": ["x", 1]})
    problem(numbered(session, 1, "POST", "/ops/add_", {"inputs": ["x", 1]}), 409, "sequence-conflict")
    assert numbered(session, 70, "POST", "/ops/add_", {"inputs": ["x", 1]}).status_code == 200
    assert session.data("x") == [70.0]


@pytest.mark.parametrize("number", ["0", "-1", "1.0", "one", "", "9" * 30, "²"])
def test_what_is_no_number(session: SessionClient, number: str) -> None:
    answer = session.request("DELETE", "/tensors/x", headers=[(HEADER.encode(), number.encode())])
    problem(answer, 422, "invalid-argument")


def test_at_the_same_time(session: SessionClient) -> None:
    session.tensor("x", [0.0])
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: numbered(session, 1, "POST", "/ops/add_", {"inputs": ["x", 1]}), range(16)))
    assert {answer.status_code for answer in answers} == {200}
    assert session.data("x") == [1.0]


def test_reading_is_not_numbered(session: SessionClient) -> None:
    session.tensor("x", [0.0])
    assert session.get("/tensors/x", headers={HEADER: "9"}).status_code == 200


def test_a_senders_name_is_checked_without_a_number_too(session: SessionClient) -> None:
    for name in ("", "a b", "n" * 65):
        answer = session.request("PATCH", json={"name": "renamed"}, headers={"telegrad-sender": name})
        assert "a sender's name" in problem(answer, 422, "invalid-argument")["detail"]
    assert session.get().json()["name"] is None
