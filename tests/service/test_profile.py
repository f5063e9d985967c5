"""A session's profile over REST."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import SessionClient, problem

START = {"op": "start_profile", "attrs": {"record_shapes": True}}


def test_totals_and_single_ranges(session: SessionClient) -> None:
    session.run(
        START,
        {"op": "begin_range", "attrs": {"name": "mine"}},
        {"op": "ones", "out": ["x"], "attrs": {"size": [2, 3]}},
        {"op": "sin", "in": ["x"], "out": ["y"]},
    )
    session.run({"op": "end_range"}, {"op": "sin", "in": ["y"], "out": ["z"]})
    while_running = session.get("/profile").json()
    session.run({"op": "stop_profile"})
    session.run({"op": "cos", "in": ["y"], "out": ["c"]})
    profile = session.get("/profile", params={"events": True}).json()
    totals = {entry["name"]: entry for entry in profile["totals"]}
    assert set(totals) == {"mine", "aten::ones", "aten::sin"}
    assert (totals["aten::sin"]["count"], totals["aten::sin"]["input_shapes"]) == (2, "[[2, 3]]")
    events = {event["name"]: event for event in profile["events"]}
    ids = [event["id"] for event in profile["events"]]
    assert ids == sorted(ids)
    assert events["aten::ones"]["parent"] == events["mine"]["id"]
    assert events["mine"]["end_ns"] > events["mine"]["start_ns"] >= 0
    assert while_running["events"] == [] and while_running["totals"] == profile["totals"]


def test_only_so_many_are_kept_one_by_one(session: SessionClient) -> None:
    session.tensor("x", [1.0])
    session.run({"op": "start_profile", "attrs": {"max_events": 2}})
    session.run(*[{"op": "sin", "in": ["x"], "out": [f"y{i}"]} for i in range(5)], {"op": "stop_profile"})
    profile = session.get("/profile", params={"events": True}).json()
    assert (len(profile["events"]), profile["events_dropped"], profile["totals"][0]["count"]) == (2, 3, 5)


def test_without_one(session: SessionClient) -> None:
    found = problem(session.get("/profile"), 404, "not-found")
    assert "start_profile" in found["detail"]


@pytest.mark.parametrize(
    ("instructions", "slug"),
    [
        ([{"op": "stop_profile"}], "invalid-operation"),
        ([START, START], "invalid-operation"),
        ([{"op": "start_profile", "attrs": {"max_events": 10**9}}], "invalid-value"),
        ([START, *[{"op": "begin_range", "attrs": {"name": "r"}}] * 1001], "invalid-operation"),
    ],
)
def test_what_makes_no_sense(session: SessionClient, instructions: list[dict[str, Any]], slug: str) -> None:
    problem(session.run(*instructions), 422, slug)
    session.assert_usable()
