"""Functions and hooks that a client evaluates, by plain HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from .conftest import SessionClient, problem, served_with

Instruction = dict[str, Any]


def attach(inputs: list[str], results: list[str | None], **attrs: Any) -> Instruction:
    attrs = {"function": "MyCube", "ctx": "first", **attrs}
    return {"op": "client_function", "in": [inputs, results], "attrs": attrs}


CUBE: list[Instruction] = [
    {"op": "tensor", "out": ["x"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
    {"op": "mul", "in": ["x", 2], "out": ["a"]},
    {"op": "pow", "in": ["a", 3], "out": ["y"], "grad_mode": "no_grad"},
    attach(["a"], ["y"]),
    {"op": "mul", "in": ["y", 10], "out": ["z"]},
    {"op": "sum", "in": ["z"], "out": ["loss"]},
]


@pytest.fixture
def cube(session: SessionClient) -> SessionClient:
    """loss = sum(10 * (2 x) ** 3), where the cube is the client's own function."""
    answer = session.run(*CUBE)
    assert answer.status_code == 200, answer.text
    return session


def started(session: SessionClient, **body: Any) -> dict[str, Any]:
    """Start a backward of ``loss`` and return the call that it waits for."""
    answer = session.post("/backward", {"tensors": ["loss"], **body})
    assert answer.status_code == 202, answer.text
    pending: dict[str, Any] = answer.json()["pending"]
    assert answer.headers["location"] == f"{session.path}/pending/{pending['call']}"
    return pending


def compute(session: SessionClient, out: str, *steps: Instruction) -> None:
    answer = session.run(*steps)
    assert answer.status_code == 200, answer.text
    assert session.get(f"/tensors/{out}").status_code == 200


def cube_gradient(session: SessionClient, pending: dict[str, Any], out: str) -> str:
    """3 a² times the gradient that has arrived."""
    (grad,) = pending["gradients"]
    compute(
        session,
        out,
        {"op": "pow", "in": ["a", 2], "out": [f"{out}_square"]},
        {"op": "mul", "in": [f"{out}_square", 3], "out": [f"{out}_slope"]},
        {"op": "mul", "in": [f"{out}_slope", grad], "out": [out]},
    )
    return out


def resume(session: SessionClient, pending: dict[str, Any], *gradients: str | None) -> httpx.Response:
    return session.post(f"/pending/{pending['call']}/resume", {"gradients": list(gradients)})


def waiting(session: SessionClient) -> list[str]:
    return [item["call"] for item in session.get("/pending").json()["items"]]


def test_a_functions_backward_is_evaluated_by_the_client(cube: SessionClient) -> None:
    assert cube.get("/tensors/y").json()["grad_fn"] == "MyCubeBackward"
    pending = started(cube)
    assert {k: pending[k] for k in ("kind", "function", "ctx", "outputs")} == {
        "kind": "backward",
        "function": "MyCube",
        "ctx": "first",
        "outputs": [],
    }
    assert cube.data(pending["gradients"][0]) == [10, 10]
    assert cube.get("/pending").json() == {"items": [pending], "next_cursor": None}
    assert cube.get(f"/pending/{pending['call']}").json() == pending
    assert cube.get("/tensors/x/grad").status_code == 404
    answer = resume(cube, pending, cube_gradient(cube, pending, "ga"))
    assert (answer.status_code, answer.json()) == (200, {"pending": None, "outputs": []})
    assert cube.get("/tensors/x/grad").json()["data"] == [240, 960]
    assert waiting(cube) == []
    cube.assert_usable()


def test_grad_gives_its_results_when_it_is_done(cube: SessionClient) -> None:
    cube.tensor("unused", 1.0, requires_grad=True)
    body = {"outputs": ["loss"], "inputs": ["x", "unused"], "allow_unused": True}
    answer = cube.post("/grad", {**body, "names": ["gx", "gu"]})
    assert answer.status_code == 202
    pending = answer.json()["pending"]
    assert (answer.json()["grads"], pending["outputs"]) == ([], ["gx", "gu"])
    done = resume(cube, pending, cube_gradient(cube, pending, "ga")).json()
    assert done["pending"] is None
    assert (done["outputs"][0]["id"], done["outputs"][0]["data"], done["outputs"][1]) == ("gx", [240, 960], None)
    assert cube.data("gx") == [240, 960]


def test_a_program_stops_and_says_where(cube: SessionClient) -> None:
    steps: list[Instruction] = [
        {"op": "fetch", "in": [["loss"]]},
        {"op": "grad", "in": [["loss"], ["x"]], "out": ["g"], "attrs": {"create_graph": True}},
        {"op": "fetch", "in": [["g"]]},
    ]
    answer = cube.run(*steps).json()
    assert set(answer["values"]) == {"loss"}
    pending = answer["pending"]
    assert (pending["instruction"], pending["outputs"]) == (1, ["g"])
    cube_gradient(cube, pending, "ga")
    rest: list[Instruction] = [{"op": "resume", "in": [["ga"]], "attrs": {"call": pending["call"]}}, *steps[2:]]
    answer = cube.run(*rest).json()
    assert (answer["pending"], answer["values"]["g"]["data"]) == (None, [240, 960])
    # The client's gradient was recorded, so it can be differentiated again: 60 * 8 x.
    again = cube.post("/grad", {"outputs": ["g"], "inputs": ["x"], "grad_outputs": ["x"]})
    pending = again.json()["pending"]
    assert pending is None or pending["function"] == "MyCube"
    if pending is not None:
        again = resume(cube, pending, cube_gradient(cube, pending, "gb"))
        assert again.status_code == 200, again.text
    assert (again.json().get("grads") or again.json()["outputs"])[0]["data"] == [480, 1920]


ON_THE_WAY: list[Instruction] = [
    {"op": "tensor", "out": ["x"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
    {"op": "mul", "in": ["x", 2], "out": ["a"]},
    {"op": "client_hook", "in": ["a"], "attrs": {"hook": "on_a"}},
    {"op": "client_hook", "in": ["x"], "attrs": {"hook": "on_x"}},
    {"op": "sum", "in": ["a"], "out": ["loss"]},
]
AT_A, AT_X = {"next_call": "first", "next_ctx": "on_a"}, {"next_call": "second", "next_ctx": "on_x"}


def test_a_program_goes_on_at_stops_that_the_client_knows(session: SessionClient) -> None:
    answer = session.run(
        *ON_THE_WAY,
        {"op": "grad", "in": [["loss"], ["x"]], "out": ["g", "at_a"], "attrs": AT_A},
        {"op": "mul", "in": ["at_a", 3], "out": ["for_a"]},
        {"op": "resume", "in": [["for_a"]], "out": ["at_x"], "attrs": {"call": "first", **AT_X}},
        {"op": "mul", "in": ["at_x", 10], "out": ["for_x"]},
        {"op": "fetch", "in": [["at_a", "at_x"]]},
    ).json()
    assert answer["pending"] is None
    assert {name: value["data"] for name, value in answer["values"].items()} == {"at_a": [1, 1], "at_x": [6, 6]}
    (pending,) = session.get("/pending").json()["items"]
    assert pending == {
        "call": "second", "kind": "hook", "function": None, "ctx": "on_x", "gradients": ["at_x"], "outputs": ["g"]
    }  # fmt: skip
    done = resume(session, pending, "for_x").json()
    assert (done["pending"], done["outputs"][0]["data"]) == (None, [60, 60])
    assert waiting(session) == []


@pytest.mark.parametrize(
    ("attrs", "outputs"),
    [
        ({**AT_A, "next_ctx": "on_x"}, ["at_a"]),
        ({"next_call": "first"}, ["at_a"]),
        (AT_A, []),
        (AT_A, ["at_a", "more"]),
        ({**AT_A, "next_call": "taken"}, ["at_a"]),
    ],
)
def test_a_program_ends_at_another_stop(session: SessionClient, attrs: dict[str, Any], outputs: list[str]) -> None:
    start: Instruction = {"op": "backward", "in": [["loss"]], "attrs": {"retain_graph": True}}
    session.run(
        *ON_THE_WAY,
        {**start, "out": ["before"], "attrs": {**start["attrs"], **AT_A, "next_call": "taken"}},
    )
    assert waiting(session) == ["taken"]
    answer = session.run({**start, "out": outputs, "attrs": {**start["attrs"], **attrs}}, {"op": "exp", "in": ["a"]})
    pending = answer.json()["pending"]
    assert (pending["instruction"], pending["ctx"], pending["outputs"]) == (0, "on_a", [])
    assert session.data(pending["gradients"][0]) == [1, 1]
    assert len(waiting(session)) == 2
    assert resume(session, pending).json()["pending"]["ctx"] == "on_x"
    session.assert_usable()


def test_a_pass_that_does_not_stop_is_refused_the_gradients(session: SessionClient) -> None:
    session.run(*ON_THE_WAY[:2], ON_THE_WAY[4])
    found = session.run({"op": "backward", "in": [["loss"]], "out": ["at_a"], "attrs": AT_A})
    assert (
        problem(found, 422, "invalid-argument")["detail"] == "backward has 0 outputs, but 1 names were given for them"
    )
    assert waiting(session) == []


def test_an_id_of_a_call_must_be_one(session: SessionClient) -> None:
    found = session.run(
        *ON_THE_WAY, {"op": "backward", "in": [["loss"]], "out": ["at_a"], "attrs": {**AT_A, "next_call": "a b"}}
    )
    assert problem(found, 400, "malformed-request")
    session.assert_usable()


def test_functions_and_hooks_one_after_another(session: SessionClient) -> None:
    session.run(
        *CUBE,
        {"op": "client_hook", "in": ["a"], "attrs": {"hook": "on_a"}},
        {"op": "client_hook", "in": ["x"], "attrs": {"hook": "on_x", "post_accumulate": True}},
    )
    first = started(session, retain_graph=True)
    second = resume(session, first, cube_gradient(session, first, "ga"))
    assert second.status_code == 202
    second = second.json()["pending"]
    assert (second["kind"], second["ctx"], second["function"]) == ("hook", "on_a", None)
    assert session.data(second["gradients"][0]) == [120, 480]
    compute(session, "half", {"op": "mul", "in": [second["gradients"][0], 0.5], "out": ["half"]})
    third = resume(session, second, "half").json()["pending"]
    assert (third["kind"], third["ctx"], third["gradients"]) == ("post_accumulate_grad_hook", "on_x", [])
    assert session.get("/tensors/x/grad").json()["data"] == [120, 480]
    assert resume(session, third).json()["pending"] is None
    session.run(
        {"op": "remove_client_hook", "attrs": {"hook": "on_a"}},
        {"op": "remove_client_hook", "attrs": {"hook": "on_x"}},
        {"op": "remove_client_hook", "attrs": {"hook": "never_was"}},
        {"op": "mul", "in": ["a", 1], "out": ["b"]},
        {"op": "sum", "in": ["b"], "out": ["total"]},
    )
    assert session.post("/backward", {"tensors": ["total"]}).status_code == 200


def test_a_hook_that_returns_nothing_keeps_the_gradient(session: SessionClient) -> None:
    session.run(*CUBE[:2], {"op": "client_hook", "in": ["x"], "attrs": {"hook": "h"}})
    session.post("/ops/sum", {"inputs": ["a"], "outputs": ["loss"]})
    pending = started(session)
    session.post("/ops/add_", {"inputs": [pending["gradients"][0], 1]})  # in place, as hooks may
    assert resume(session, pending).status_code == 200
    assert session.get("/tensors/x/grad").json()["data"] == [3, 3]


def test_several_outputs_materialized_or_not(session: SessionClient) -> None:
    for name, attrs in (("filled", {}), ("bare", {"materialize_grads": False})):
        session.run(
            {"op": "tensor", "out": [f"x_{name}"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
            {"op": "mul", "in": [f"x_{name}", 2], "out": [f"a_{name}"], "grad_mode": "no_grad"},
            {"op": "mul", "in": [f"x_{name}", 3], "out": [f"b_{name}"], "grad_mode": "no_grad"},
            {"op": "mul", "in": [f"x_{name}", 4], "out": [f"c_{name}"], "grad_mode": "no_grad"},
            attach(
                [f"x_{name}"],
                [f"a_{name}", None, f"b_{name}", f"c_{name}"],
                ctx=name,
                non_differentiable=[3],
                **attrs,
            ),
            {"op": "sum", "in": [f"b_{name}"], "out": [f"loss_{name}"]},
        )
        assert session.get(f"/tensors/c_{name}").json()["requires_grad"] is False
        pending = session.post("/backward", {"tensors": [f"loss_{name}"]}).json()["pending"]
        first, second, third, fourth = pending["gradients"]
        assert second is None
        assert session.data(third) == [1, 1]
        if name == "filled":
            assert session.data(first) == session.data(fourth) == [0, 0]
        else:
            assert (first, fourth) == (None, None)
        assert resume(session, pending, third).status_code == 200
        assert session.get(f"/tensors/x_{name}/grad").json()["data"] == [1, 1]


def test_an_input_changed_in_place_and_one_returned_as_it_is(session: SessionClient) -> None:
    session.run(
        *CUBE[:2],
        {"op": "mul_", "in": ["a", 3], "grad_mode": "no_grad"},
        attach(["a"], ["a"], dirty=[0]),
        {"op": "sum", "in": ["a"], "out": ["loss"]},
        {**attach(["x"], ["x"], ctx="same"), "out": ["x_again"]},
    )
    assert session.get("/tensors/a").json()["grad_fn"] == "MyCubeBackward"
    described = session.get("/tensors/x_again").json()
    assert (described["data"], described["is_leaf"]) == ([1, 2], False)
    pending = started(session)
    assert resume(session, pending, pending["gradients"][0]).status_code == 200
    assert session.get("/tensors/x/grad").json()["data"] == [2, 2]


def wrong_number(session: SessionClient, pending: dict[str, Any]) -> httpx.Response:
    return resume(session, pending, "a", "a")


def none_at_all(session: SessionClient, pending: dict[str, Any]) -> httpx.Response:
    return resume(session, pending)


def wrong_shape(session: SessionClient, pending: dict[str, Any]) -> httpx.Response:
    session.tensor("long", [1.0, 2.0, 3.0])
    return resume(session, pending, "long")


def unknown_tensor(session: SessionClient, pending: dict[str, Any]) -> httpx.Response:
    return resume(session, pending, "nothing")


@pytest.mark.parametrize(
    ("mistake", "status", "slug", "text"),
    [
        (
            wrong_number,
            422,
            "invalid-operation",
            "function MyCubeBackward returned an incorrect number of gradients (expected 1, got 2)",
        ),
        (
            none_at_all,
            422,
            "invalid-operation",
            "function MyCubeBackward returned an incorrect number of gradients (expected 1, got 0)",
        ),
        (
            wrong_shape,
            422,
            "shape-mismatch",
            "Function MyCubeBackward returned an invalid gradient at index 0 - got [3] but expected shape "
            "compatible with [2]",
        ),
        (unknown_tensor, 404, "unknown-tensor", "no tensor 'nothing' in this session; it was never made, or freed"),
    ],
)
def test_gradients_that_do_not_fit_are_refused_and_nothing_is_lost(
    cube: SessionClient, mistake: Callable[..., httpx.Response], status: int, slug: str, text: str
) -> None:
    pending = started(cube)
    assert problem(mistake(cube, pending), status, slug)["detail"] == text
    assert waiting(cube) == [pending["call"]]
    assert resume(cube, pending, cube_gradient(cube, pending, "ga")).status_code == 200
    assert cube.get("/tensors/x/grad").json()["data"] == [240, 960]


def test_a_hooks_gradient_that_does_not_fit(session: SessionClient) -> None:
    session.run(*CUBE[:2], {"op": "client_hook", "in": ["a"], "attrs": {"hook": "h"}})
    session.post("/ops/sum", {"inputs": ["a"], "outputs": ["loss"]})
    session.tensor("long", [1.0, 2.0, 3.0])
    session.tensor("double", [1.0, 2.0], dtype="float64")
    pending = started(session)
    found = problem(resume(session, pending, "long"), 422, "invalid-operation")
    assert found["detail"] == "hook 'h' has changed the size of value"
    found = problem(resume(session, pending, "double"), 422, "invalid-operation")
    assert "changed the type of value" in found["detail"]
    assert problem(resume(session, pending, "a", "a"), 422, "invalid-operation")
    assert resume(session, pending, None).status_code == 200


def test_unknown_calls(cube: SessionClient) -> None:
    pending = started(cube)
    resume(cube, pending, cube_gradient(cube, pending, "ga"))
    for call in (pending["call"], "call99"):
        problem(cube.get(f"/pending/{call}"), 404, "unknown-call")
        problem(cube.request("DELETE", f"/pending/{call}"), 404, "unknown-call")
        problem(resume(cube, {"call": call}, "ga"), 404, "unknown-call")
    found = problem(cube.run({"op": "resume", "in": [["ga"]], "attrs": {"call": "call1"}}), 404, "unknown-call")
    assert (found["instruction"], found["op"]) == (0, "resume")


def test_a_cancelled_pass_is_gone(cube: SessionClient) -> None:
    used = cube.get().json()["used_bytes"]
    pending = started(cube, retain_graph=True)
    assert cube.request("DELETE", f"/pending/{pending['call']}").status_code == 204
    cube.run({"op": "free", "in": [pending["gradients"]]})
    assert (waiting(cube), cube.get().json()["used_bytes"]) == ([], used)
    problem(resume(cube, pending, "a"), 404, "unknown-call")
    assert cube.run({"op": "cancel", "attrs": {"call": pending["call"]}}).status_code == 200  # in a program: nothing
    pending = started(cube)
    assert resume(cube, pending, cube_gradient(cube, pending, "ga")).status_code == 200
    assert cube.get("/tensors/x/grad").json()["data"] == [240, 960]


def test_programs_and_passes_run_while_one_waits(cube: SessionClient) -> None:
    outer = started(cube, retain_graph=True)
    cube.assert_usable()
    cube.run(
        {"op": "tensor", "out": ["p"], "attrs": {"data": 3.0, "requires_grad": True}},
        {"op": "mul", "in": ["p", "p"], "out": ["q"]},
        {"op": "backward", "in": [["q"]]},
    )
    assert cube.get("/tensors/p/grad").json()["data"] == 6
    inner = started(cube, retain_graph=True)
    assert waiting(cube) == [outer["call"], inner["call"]]
    for number, pending in enumerate((inner, outer), 1):
        assert resume(cube, pending, cube_gradient(cube, pending, f"g{number}")).status_code == 200
        assert cube.get("/tensors/x/grad").json()["data"] == [240 * number, 960 * number]


def test_an_error_further_on_ends_the_pass(cube: SessionClient) -> None:
    """The client's gradients fit, but what comes after them fails."""
    cube.run(
        {"op": "exp", "in": ["x"], "out": ["e"]},
        {"op": "mul", "in": ["e", 2], "out": ["f"]},
        {"op": "pow", "in": ["f", 3], "out": ["h"], "grad_mode": "no_grad"},
        attach(["f"], ["h"], ctx="second"),
        {"op": "sum", "in": ["h"], "out": ["total"]},
        {"op": "add_", "in": ["e", 1], "grad_mode": "no_grad"},
    )
    pending = cube.post("/backward", {"tensors": ["total"]}).json()["pending"]
    problem(resume(cube, pending, pending["gradients"][0]), 409, "version-conflict")
    assert waiting(cube) == []
    cube.assert_usable()


@pytest.mark.parametrize(
    ("instruction", "status", "slug"),
    [
        (attach([], ["y"]), 422, "invalid-argument"),
        (attach(["a"], ["y"], function=""), 422, "invalid-value"),
        (attach(["a"], ["y"], function="x" * 200), 422, "invalid-value"),
        (attach(["a"], ["y"], ctx="1 2"), 400, "malformed-request"),
        (attach(["a"], ["y"], dirty=[1]), 422, "invalid-value"),
        (attach(["a"], ["y"], dirty=[0]), 422, "invalid-value"),
        (attach(["a"], ["y", None], non_differentiable=[1]), 422, "invalid-value"),
        (attach(["a"], ["nothing"]), 404, "unknown-tensor"),
        ({"op": "client_hook", "in": ["x"], "attrs": {"hook": "taken"}}, 422, "invalid-value"),
        ({"op": "client_hook", "in": ["c"], "attrs": {"hook": "h"}}, 422, "grad-required"),
        ({"op": "client_hook", "in": ["a"], "attrs": {"hook": "h", "post_accumulate": True}}, 422, "invalid-operation"),
        ({"op": "resume", "attrs": {"call": "call1"}}, 404, "unknown-call"),
    ],
)
def test_what_makes_no_sense(session: SessionClient, instruction: Instruction, status: int, slug: str) -> None:
    session.run(*CUBE[:3], {"op": "client_hook", "in": ["x"], "attrs": {"hook": "taken"}})
    session.tensor("c", [1.0])
    problem(session.run(instruction), status, slug)
    session.assert_usable()


def test_a_session_holds_only_so_many_passes(cube: SessionClient) -> None:
    last = {"op": "backward", "in": [["loss"]], "attrs": {"retain_graph": True}}
    answers = [cube.run(last) for _ in range(101)]
    assert {answer.status_code for answer in answers[:-1]} == {200}
    assert "wait for their client already" in problem(answers[-1], 422, "invalid-operation")["detail"]
    assert len(waiting(cube)) == 100
    cube.assert_usable()


def test_a_waiting_pass_counts_against_the_sessions_memory() -> None:
    with served_with(max_session_bytes=1_000_000) as client:
        session = SessionClient(client)
        session.run(
            {"op": "zeros", "out": ["x"], "attrs": {"size": [20000]}},
            {"op": "requires_grad_", "in": ["x"]},
            {"op": "mul", "in": ["x", 2], "out": ["y"], "grad_mode": "no_grad"},
            {"op": "mul", "in": ["x", 2], "out": ["w"]},
            attach(["x"], ["y"]),
            {"op": "add", "in": ["y", "w"], "out": ["z"]},
            {"op": "sum", "in": ["z"], "out": ["loss"]},
        )
        used = session.get().json()["used_bytes"]
        statuses = [
            session.post("/backward", {"tensors": ["loss"], "retain_graph": True}).status_code for _ in range(20)
        ]
        assert statuses[0] == 202
        assert statuses[-1] == 413
        for pending in session.get("/pending").json()["items"]:
            assert session.request("DELETE", f"/pending/{pending['call']}").status_code == 204
            session.run({"op": "free", "in": [pending["gradients"]]})
        assert session.get().json()["used_bytes"] == used


def test_the_session_is_deleted_meanwhile(client: httpx.Client) -> None:
    session = SessionClient(client)
    session.run(*CUBE)
    pending = started(session)
    assert client.delete(session.path).status_code == 204
    problem(resume(session, pending, "a"), 404, "unknown-session")


def test_a_client_that_goes_away_is_not_waited_for_forever() -> None:
    with served_with(pending_timeout_s=0.2) as client:
        session = SessionClient(client)
        session.run(*CUBE)
        used = session.get().json()["used_bytes"]
        pending = started(session, retain_graph=True)
        for _ in range(60):
            time.sleep(0.5)  # idle: every request is a sign of life
            if not waiting(session):
                break
        found = problem(resume(session, pending, "a"), 404, "unknown-call")
        assert "nobody resumed it in time" in found["detail"]
        session.run({"op": "free", "in": [pending["gradients"]]})
        assert session.get().json()["used_bytes"] == used
        pending = started(session)
        assert resume(session, pending, cube_gradient(session, pending, "ga")).status_code == 200
