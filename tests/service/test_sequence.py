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
    steps = [{"op": "randn", "out": ["r"], "attrs": {"size": [2]}}, {"op": "neg", "in": ["nope"]}]
    program = {"instructions": steps}
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
    for number in (2, 3):
        assert numbered(session, number, "POST", "/ops/add_", {"inputs": ["x", 1]}).status_code == 200
    assert "next one is 4" in problem(numbered(session, 5, "DELETE", "/tensors/x"), 409, "sequence-conflict")["detail"]


def test_old_answers_are_forgotten(session: SessionClient) -> None:
    session.tensor("x", [0.0])

    def add(number: int) -> httpx.Response:
        return numbered(session, number, "POST", "/ops/add_", {"inputs": ["x", 1]})

    for number in range(1, 71):
        add(number)
    problem(add(6), 409, "sequence-conflict")
    assert {add(number).status_code for number in range(7, 71)} == {200}
    assert session.data("x") == [70.0]


def test_large_answers_are_forgotten_earlier_but_never_the_last(session: SessionClient) -> None:
    def fetch(number: int, mib: float) -> bool:
        """Whether the values are in the answer, the first or again."""
        make = {"op": "zeros", "out": ["x"], "attrs": {"size": [int(mib * 2**18)]}}
        headers = {HEADER: str(number), "accept": "application/vnd.safetensors"}
        answer = session.run(make, {"op": "fetch", "in": [["x"]]}, {"op": "free", "in": [["x"]]}, headers=headers)
        if answer.status_code == 200:
            return len(answer.content) > mib * 2**20
        problem(answer, 409, "sequence-conflict")
        return False

    assert [fetch(number, mib) for number, mib in [(1, 8.2), (2, 7.6), (3, 0.1)] * 2] == [True] * 6
    assert fetch(4, 0.2)  # with it, more than 16 MiB are recorded
    assert [fetch(1, 8.2), fetch(2, 7.6)] == [False, True]
    assert [fetch(5, 17), fetch(5, 17), fetch(4, 0.2)] == [True, True, False]


def test_the_sender_that_was_inactive_for_longest_is_forgotten(session: SessionClient) -> None:
    session.tensor("x", [0.0])

    def add(sender: int) -> float:
        """The value behind the first addition of a sender, which is counted once while the sender is known."""
        headers = {HEADER: "1", "telegrad-sender": f"sender{sender}"}
        session.post("/ops/add_", {"inputs": ["x", 1]}, headers=headers).raise_for_status()
        found: float = session.data("x")[0]
        return found

    assert [add(sender) for sender in range(16)] == [float(n) for n in range(1, 17)]
    assert [add(sender) for sender in (*range(2, 16), 0, 1)] == [16.0] * 16
    assert add(16) == 17.0  # a seventeenth, and 2 is forgotten
    assert [add(sender) for sender in (1, 0, *range(3, 17))] == [17.0] * 16
    assert add(2) == 18.0
    assert session.get().json()["sequence"] == 0  # of requests without a sender's name


@pytest.mark.parametrize("number", ["0", "-1", "1.0", "one", "", "9" * 30, "²"])
def test_what_is_no_number(session: SessionClient, number: str) -> None:
    answer = session.request("DELETE", "/tensors/x", headers=[(HEADER.encode(), number.encode())])
    problem(answer, 422, "invalid-argument")


def test_the_largest_number(session: SessionClient) -> None:
    assert (
        "skips ahead"
        in problem(numbered(session, 10**18 - 1, "DELETE", "/tensors/x"), 409, "sequence-conflict")["detail"]
    )
    refused = problem(numbered(session, 10**18, "DELETE", "/tensors/x"), 422, "invalid-argument")
    assert f"from 1 to {10**18 - 1}" in refused["detail"]


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
