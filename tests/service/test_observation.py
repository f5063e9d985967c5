"""``GET …/events?observe=true``: numbers as they are fetched, and steps with what they computed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import save

from ..servers import STOP_S
from .conftest import SessionClient, problem, served
from .streams import Talk
from .test_events import Listening

W, X = [[1.0, -2.0], [3.0, 0.5]], [0.5, 2.0]
LEAVES: list[dict[str, Any]] = [
    {"op": "tensor", "out": ["w"], "attrs": {"data": W, "requires_grad": True}},
    {"op": "tensor", "out": ["x"], "attrs": {"data": X}},
]
STEP: list[dict[str, Any]] = [
    {"op": "matmul", "in": ["w", "x"], "out": ["h"]},
    {"op": "tanh", "in": ["h"], "out": ["t"]},
    {"op": "sum", "in": ["t"], "out": ["loss"]},
    {"op": "backward", "in": [["loss"]]},
    {"op": "fetch", "in": [["loss", "t"]]},
    {"op": "free", "in": [["h", "t", "loss"]]},
]


@contextmanager
def observing(session: SessionClient, **params: Any) -> Iterator[Listening]:
    with session.client.stream("GET", f"{session.path}/events", params={"observe": "true", **params}) as answer:
        assert answer.status_code == 200
        yield Listening(answer)


def until(events: Listening, name: str) -> Any:
    """The data of the next event of this name."""
    while True:
        found, data = events.event()
        if found == name:
            return data


def step_of(session: SessionClient) -> dict[str, Any]:
    answer = session.get("/graph/folded", params={"source": "step"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_numbers_a_step_and_the_graph(session: SessionClient) -> None:
    session.run(*LEAVES)
    with observing(session) as events:
        session.run(*STEP, headers={"Telegrad-Sequence": "1"})
        program = until(events, "program")
        assert (program["kind"], program["planned"], program["digest"]) == ("program", False, None)
        assert program["queued_s"] >= 0 and program["seconds"] > 0
        scalars = until(events, "scalars")
        expected = float(np.tanh(np.array(W) @ X).sum())
        value = {"key": "loss", "label": "loss", "value": pytest.approx(expected, rel=1e-5)}
        assert (scalars["sequence"], scalars["values"]) == (1, [value]) and scalars["at"]
        step = until(events, "step")
        assert (step["sequence"], step["nodes"]) == (1, 5)
        assert until(events, "graph")["revision"] >= 1
        graph = step_of(session)
        assert (graph["source"], graph["sequence"], graph["revision"]) == ("step", 1, step["revision"])
        boxes = {box["label"]: box for box in graph["boxes"]}
        assert [boxes[label]["rank"] for label in ("w", "matmul", "tanh", "sum")] == [0, 1, 2, 3]
        slope = 1 - np.tanh(np.array(W) @ X) ** 2
        assert boxes["sum"]["number"] == pytest.approx(expected, rel=1e-5) and boxes["x"]["kind"] == "tensor"
        assert boxes["sum"]["grad_norm"] == 1.0 and boxes["w"]["tensors"] == ["w"]
        assert boxes["matmul"]["grad_norm"] == pytest.approx(np.linalg.norm(slope), rel=1e-4)
        assert boxes["w"]["grad_norm"] == pytest.approx(np.linalg.norm(np.outer(slope, X)), rel=1e-4)
        # The graph was freed, and nothing holds these values any more.
        details = session.get(f"/graph/nodes/{boxes['tanh']['id']}?source=step").json()
        assert details["value"]["preview"] == pytest.approx(np.tanh(np.array(W) @ X).tolist(), rel=1e-5)
        assert details["grad"]["preview"] == [1.0, 1.0] and details["saved"][0]["bytes"] == 8
        assert details["derivative"] and details["inputs"] == [boxes["matmul"]["id"]]
        problem(session.get("/graph/nodes/n999999999?source=step"), 404, "not-found")
        problem(session.get("/graph/folded?source=step&root=w"), 422, "invalid-argument")
    assert session.get("/tensors/w/grad").json()["data"] == [pytest.approx(row, rel=1e-4) for row in np.outer(slope, X)]


def test_a_forward_and_its_backward_are_one_step(session: SessionClient) -> None:
    session.run(*LEAVES)
    with observing(session) as events:
        session.run(*STEP[:3])
        first = until(events, "step")
        session.run(STEP[3])
        second = until(events, "step")
        assert second["revision"] == first["revision"] + 1 and second["nodes"] == first["nodes"] == 5
    boxes = {box["label"]: box for box in step_of(session)["boxes"]}
    assert boxes["w"]["grad_norm"] and boxes["tanh"]["grad_norm"] and boxes["sum"]["tensors"] == ["loss"]


def test_inputs_that_need_no_gradient_are_known_if_they_were_observed(session: SessionClient) -> None:
    session.run(*LEAVES)
    program = ({"op": "matmul", "in": ["w", "x"], "out": ["y"]}, {"op": "sub", "in": ["y", "x"], "out": ["error"]})
    with observing(session) as events:
        session.run(*program)
        until(events, "step")
        for source in ("live", "step"):
            graph = session.get("/graph/folded", params={"source": source}).json()
            label = {box["id"]: box["label"] for box in graph["boxes"]}
            edges = {(label[edge["source"]], label[edge["target"]]) for edge in graph["edges"]}
            assert edges == {("w", "matmul"), ("x", "matmul"), ("matmul", "sub"), ("x", "sub")}
            node = next(box["id"] for box in graph["boxes"] if box["label"] == "sub")
            assert "t:x" in session.get(f"/graph/nodes/{node}?source={source}").json()["inputs"]
    session.run({"op": "free", "in": [["x"]]})
    assert "t:x" not in {box["id"] for box in session.get("/graph/folded").json()["boxes"]}


def test_those_who_do_not_ask_get_no_steps(session: SessionClient) -> None:
    session.run(*LEAVES)
    with session.client.stream("GET", f"{session.path}/events") as answer:
        events = Listening(answer)
        for _ in range(3):
            session.run(*STEP)
            assert events.event()[0] == "program"
    problem(session.get("/graph/folded?source=step"), 404, "not-found")
    problem(session.get("/graph/nodes/t:w?source=step"), 404, "not-found")


def test_kinds_of_calls(session: SessionClient) -> None:
    with observing(session) as events:
        session.tensor("a", [1.0, 2.0], requires_grad=True)
        session.post("/ops/sum", {"inputs": ["a"], "outputs": ["s"]})
        session.post("/backward", {"tensors": ["s"]})
        session.get("/tensors/a")  # reads only
        session.client.delete(f"{session.path}/tensors/s")
        kinds = [until(events, "program")["kind"] for _ in range(4)]
    assert kinds == ["create_tensor", "op", "backward", "delete_tensor"]


def test_special_numbers_and_large_values(session: SessionClient) -> None:
    with observing(session) as events:
        session.run(
            {"op": "tensor", "out": ["n"], "attrs": {"data": ["NaN"], "requires_grad": True}},
            {"op": "tensor", "out": ["i"], "attrs": {"data": 7}},
            {"op": "zeros", "out": ["big"], "attrs": {"size": [200]}},
            {"op": "mul", "in": ["n", "big"], "out": ["p"]},
            {"op": "div", "in": ["n", 0.0], "out": ["q"]},
            {"op": "sum", "in": ["p"], "out": ["loss"]},
            {"op": "backward", "in": [["loss"]]},
            {"op": "fetch", "in": [["n", "i", "big"]]},
        )
        values = until(events, "scalars")["values"]
        assert [(each["key"], each["value"]) for each in values] == [("n", "NaN"), ("i", 7.0)]
        until(events, "step")
    boxes = {box["label"]: box for box in step_of(session)["boxes"]}
    assert boxes["mul"]["grad_norm"] == pytest.approx(200**0.5)


def test_steps_are_observed_now_and_then(session: SessionClient) -> None:
    session.run(*LEAVES)
    begun, programs = time.monotonic(), 100
    with observing(session) as events:
        for _ in range(programs):
            session.run(*STEP)
        took = time.monotonic() - begun
        session.client.delete(session.path)
        names = [events.event()[0]]
        while names[-1] != "ended":
            names.append(events.event()[0])
    assert 1 <= names.count("step") <= took + 2
    assert names.count("graph") <= 4 * took + 2


def test_a_listener_that_goes_away(session: SessionClient) -> None:
    session.run(*LEAVES)
    with observing(session) as events:
        session.run(*STEP)
        until(events, "step")
    answer = Calls(session, TEMPLATE).run(["w", "x", "h", "loss"])
    while "telegrad-observed" in answer.headers:  # the server notices soon; the test's time limit ends this
        answer = Calls(session, TEMPLATE).run(["w", "x", "h", "loss"])
    revision = step_of(session)["revision"]  # the last step stays
    session.run(*STEP)
    assert step_of(session)["revision"] == revision


def test_a_step_of_a_long_graph_is_bounded(session: SessionClient) -> None:
    program: list[dict[str, Any]] = [{"op": "tensor", "out": ["v0"], "attrs": {"data": [1.0], "requires_grad": True}}]
    program += [{"op": "mul", "in": [f"v{i}", 1.0], "out": [f"v{i + 1}"]} for i in range(12_000)]
    with observing(session) as events:
        answer = session.run(*program)
        assert answer.status_code == 200, answer.text
        assert until(events, "step")["nodes"] == 10_000
    graph = step_of(session)
    assert graph["omitted"] == 2001 and len(graph["boxes"]) < 1500
    last = session.get("/graph/folded?source=step&fold=op&expand=g:%23mul&expand=g:%23mul[19]").json()
    unsampled = next(box["id"] for box in reversed(last["boxes"]) if box["kind"] == "op")
    assert session.get(f"/graph/nodes/{unsampled}?source=step").json()["value"] is None


def test_a_step_after_a_long_history(session: SessionClient) -> None:
    program: list[dict[str, Any]] = [{"op": "tensor", "out": ["v0"], "attrs": {"data": [1.0], "requires_grad": True}}]
    program += [{"op": "mul", "in": [f"v{i}", 1.0], "out": [f"v{i + 1}"]} for i in range(12_000)]
    assert session.run(*program).status_code == 200
    with observing(session) as events:
        session.run({"op": "exp", "in": ["v12000"], "out": ["e"]}, {"op": "sum", "in": ["e"], "out": ["loss"]})
        until(events, "step")
        boxes = {box["label"]: box for box in step_of(session)["boxes"]}
        assert set(boxes) == {"exp", "sum"} and boxes["exp"]["rank"] == 0


def test_views_that_change_in_place(session: SessionClient) -> None:
    session.run(*LEAVES)
    with observing(session) as events:
        answer = session.run(
            {"op": "mul", "in": ["w", 1.0], "out": ["y"]},
            {"op": "select", "in": ["y"], "out": ["v"], "attrs": {"dim": 0, "index": 0}},
            {"op": "mul_", "in": ["v", 2.0]},
            {"op": "refresh", "in": ["v"]},
            {"op": "sum", "in": ["y"], "out": ["loss"]},
            {"op": "backward", "in": [["loss"]], "attrs": {"retain_graph": True}},
        )
        assert answer.status_code == 200, answer.text
        until(events, "step")
        for source in ("step", "live"):
            boxes = session.get("/graph/folded", params={"source": source}).json()["boxes"]
            assert {"mul", "sum"} <= {box["label"] for box in boxes}
            for box in boxes:
                details = session.get(f"/graph/nodes/{box['id']}", params={"source": source})
                assert details.status_code == 200, details.text
    assert session.get("/tensors/w/grad").json()["data"] == [[2.0, 2.0], [1.0, 1.0]]


@pytest.mark.full
@pytest.mark.one_process("the process has the log")
def test_an_observed_durable_session_is_restored_as_it_was(tmp_path: Path) -> None:
    flags = ("--data-dir", str(tmp_path), "--snapshot-after-s=600")
    with served(*flags) as (client, process):
        session = SessionClient(client, durable=True)
        with observing(session) as events:
            talk = Talk(session, "?sender=me")
            for number, program in enumerate([LEAVES, STEP, STEP], 1):
                assert talk.ask(number, *program)["sequence"] == number
            until(events, "step")
            expected = session.get("/tensors/w/grad").json()
            process.kill()
    with served(*flags) as (client, process):
        assert SessionClient.of(client, session.id).get("/tensors/w/grad").json() == expected
        process.terminate()
        assert "differs" not in process.communicate(timeout=STOP_S)[1]


class Calls:
    """Programs of one template, as the SDK sends them."""

    def __init__(self, session: SessionClient, instructions: list[dict[str, Any]]) -> None:
        self._session = session
        self._text = json.dumps({"instructions": instructions})
        self.digest = hashlib.sha256(self._text.encode()).hexdigest()

    def run(self, ids: list[str], **metadata: str) -> httpx.Response:
        fetch = [len(ids) - 1]
        calls = json.dumps([{"template": self.digest, "ids": ids, "fetch": fetch, "free": fetch}])
        body = save({}, {"calls": calls, f"template.{self.digest}": self._text, **metadata})
        media = {"Content-Type": "application/vnd.safetensors"}
        return self._session.request("POST", "/programs", content=body, headers=media)


TEMPLATE = [
    {"op": "matmul", "in": ["_0", "_1"], "out": ["_2"]},
    {"op": "sum", "in": ["_2"], "out": ["_3"]},
    {"op": "free", "in": [["_2"]]},
]


def test_lines_and_modules_that_the_client_tells(session: SessionClient) -> None:
    session.run(*LEAVES)
    calls = Calls(session, TEMPLATE)
    name = "<b>net</b>.0"
    origins = json.dumps({calls.digest: [[name, "train.py:12"], [None, "train.py:13"], None]})
    with observing(session) as events:
        answer = calls.run(["w", "x", "h", "loss"], origins=origins)
        assert answer.status_code == 200 and answer.headers["telegrad-observed"] == "true"
        value = until(events, "scalars")["values"][0]
        assert (value["key"], value["label"]) == ("train.py:13 sum", "sum train.py:13")
        until(events, "step")
        boxes = {box["label"]: box for box in step_of(session)["boxes"]}
        assert (boxes["matmul"]["module"], boxes["matmul"]["line"]) == (name, "train.py:12")
        assert (boxes["sum"]["module"], boxes["sum"]["line"]) == (None, "train.py:13")
        modules = session.get("/graph/folded?source=step&fold=module").json()
        assert {box["label"]: box["kind"] for box in modules["boxes"]} == {
            "<b>net</b>": "group",
            "train.py:13": "group",
        }
        inner = session.get(
            "/graph/folded", params={"source": "step", "fold": "module", "expand": "g:<b>net</b>"}
        ).json()
        assert name in {box["label"] for box in inner["boxes"]}
        for wrong in ("[", "[]", '{"a": 1}', '{"a": [1]}', '{"a": [["x"]]}', '{"a": [[1, null]]}'):
            problem(calls.run(["w", "x", "h2", "loss2"], origins=wrong), 400, "malformed-request")
    session.assert_usable()


def test_what_nobody_wants_to_know_is_not_read(session: SessionClient) -> None:
    session.run(*LEAVES)
    answer = Calls(session, TEMPLATE).run(["w", "x", "h", "loss"], origins="not JSON")
    assert answer.status_code == 200 and "telegrad-observed" not in answer.headers


def test_numbers_of_a_client_without_lines_have_a_stable_key(session: SessionClient) -> None:
    session.run(*LEAVES)
    calls = Calls(session, TEMPLATE)
    with observing(session) as events:
        for number in range(9):
            assert calls.run(["w", "x", f"h{number}", f"loss{number}"]).status_code == 200
        keys = {until(events, "scalars")["values"][0]["key"] for _ in range(3)}
    assert len(keys) == 1 and keys.pop().startswith(calls.digest[:16])
