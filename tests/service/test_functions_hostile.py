"""Registrations that are broken, or meant to break the server: each is refused in words, and the session goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from .conftest import SessionClient, problem, served_with

ROOM = 64 * 2**20
"""Bytes that a session of the small server may hold."""


def step(op: str, inputs: Any = ("x",), outputs: Any = ("y",), **attrs: Any) -> dict[str, Any]:
    return {"op": op, "in": inputs, "out": outputs, "attrs": attrs}


def function(*steps: Any, name: str = "f", outputs: Any = ("y",), **members: Any) -> dict[str, Any]:
    forward = {"inputs": ["x"], "instructions": steps, "outputs": outputs}
    return {"name": name, "forward": forward, **members}


DOUBLE = step("mul", ["x", 2])
AS_IT_IS = {"inputs": ["v"], "instructions": [], "outputs": ["v"]}
LISTS = [[1] * 1000] * 3000
"""10 MB of nested lists, most of them."""


def send(session: SessionClient, definition: Any) -> httpx.Response:
    """Register a definition, which may be nothing that httpx would encode."""
    return session.request(
        "POST", "/functions", content=json.dumps(definition), headers={"content-type": "application/json"}
    )


# Refused where it is registered -------------------------------------------------------------------

BROKEN = {
    "an unknown op": (function(step("mull")), "unknown op 'mull'; did you mean mul", "forward[0]"),
    "an op of Python": (function(DOUBLE, step("__class__", ["y"], ["z"])), "unknown op", "forward[1]"),
    "an op with a long name": (function(step("m" * 100_000)), "unknown op", "forward[0]"),
    "its own output": (function(step("add", ["x", "y"])), "no tensor 'y' before this instruction", "forward[0]"),
    "a later output": (
        function(step("add", ["z", 1]), step("mul", ["y", 2], ["z"])),
        "no tensor 'z' before this instruction",
        "forward[0]",
    ),
    "an output of a branch": (
        function(
            step("cond", ["x"], ["c"], then={"instructions": [DOUBLE], "outputs": ["y"]}, **{"else": {"outputs": "x"}}),
            outputs=["c"],
        ),
        "outputs is a list",
        "forward[0].else.outputs",
    ),
    "a name given twice": (function(DOUBLE, DOUBLE), "each name is given once", "forward[1]"),
    "too few gradients": (
        function(DOUBLE, backward={"inputs": ["g"], "outputs": []}),
        "incorrect number of gradients (expected 1, got 0)",
        "backward.outputs",
    ),
    "too many gradients": (
        function(DOUBLE, backward={"inputs": ["g"], "outputs": ["g", "g"]}),
        "incorrect number of gradients (expected 1, got 2); give null where there is none",
        "backward.outputs",
    ),
    "too many incoming gradients": (
        function(DOUBLE, backward={"inputs": ["g", "h"], "outputs": ["g"]}),
        "0 and 1 inputs, not 2",
        "backward.inputs",
    ),
    "a number as gradient": (
        function(DOUBLE, backward={"inputs": ["g"], "outputs": [{"ndim": "g"}]}),
        "are tensors, or null",
        "backward.outputs",
    ),
    "itself": (function(step("apply", [["x"]], function="f")), "never itself", "forward[0]"),
    "an unknown attribute": (function(step("sum", dims=0)), "'dims'", "forward[0]"),
    "an attribute of the wrong type": (function(step("sum", dim="a")), "tuple of ints", "forward[0]"),
    "attributes that are a list": (function({**DOUBLE, "attrs": []}), "attrs is an object", "forward[0]"),
    "inputs that are a word": (function({**DOUBLE, "in": "xx"}), "inputs and outputs are lists", "forward[0]"),
    "outputs that are a word": (function({**DOUBLE, "out": "y"}), "inputs and outputs are lists", "forward[0]"),
    "instructions that are a word": ({"name": "f", "forward": {"instructions": "x", "outputs": []}}, "a list", None),
    "a number beyond 64 bits": (function(step("mul", ["x", 10**400])), "more than 64 bits", "forward[0]"),
    "a size beyond 64 bits": (function(step("reshape", shape=[10**30])), "more than 64 bits", "forward[0]"),
    "a verb": (function(step("free", [["x"]], [])), "no instruction of a function", "forward[0]"),
    "a backward pass": (function(step("backward", [["x"]], [])), "no instruction of a function", "forward[0]"),
    "too few inputs": (function(step("mul")), "missing required input", "forward[0]"),
    "too many inputs": (function(step("exp", ["x", "x"])), "at most 1 inputs", "forward[0]"),
    "an unknown parameter": (function(step("mul", ["x", {"param": "q"}])), "no attribute 'q'", "forward[0]"),
    "the shape of no tensor": (function(step("mul", ["x", {"shape": "q"}])), "unknown tensor", "forward[0]"),
    "an unknown expression": (function(step("mul", ["x", {"eval": "1"}])), "unknown expression", "forward[0]"),
    "a loop without a condition": (function(step("while_loop", [["x"]])), "needs cond", "forward[0]"),
    "an instruction that is a word": (function("mul"), "an instruction is", "forward[0]"),
    "a program that is a list": ({"name": "f", "forward": []}, "a program is", None),
    "an attribute of an unknown type": (
        function(DOUBLE, attrs=[{"name": "p", "type": "tensor"}]),
        "known: number",
        None,
    ),
    "a default that is no number": (function(DOUBLE, attrs=[{"name": "p", "default": []}]), "is no number", None),
    "an attribute that is an input": (function(DOUBLE, attrs=[{"name": "x"}]), "both an input", None),
    "no input": ({"name": "f", "forward": {"outputs": ["x"]}}, "no tensor of this program", "forward.outputs"),
    "a name with a slash": (function(DOUBLE, name="a/b"), "a name matches", None),
    "a name in Greek": (function(DOUBLE, name="ωμέγα"), "a name matches", None),
    "a name that ends in a line": (function(DOUBLE, name="f\n"), "a name matches", None),
    "a name of 10,000 letters": (function(DOUBLE, name="n" * 10_000), "a name matches", None),
    "a tensor of 10,000 letters": (function(step("neg", ["x"], ["y" * 10_000])), "a name matches", "forward[0]"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken(session: SessionClient, case: str) -> None:
    definition, text, path = BROKEN[case]
    found = problem(send(session, definition), 422, "invalid-function")
    assert text in found["detail"]
    assert len(json.dumps(found)) < 2_000
    if path is not None:
        assert found["where"]["path"] == path
        assert found["detail"].startswith(path)
        assert found["where"]["program"] == path.partition("[")[0].partition(".")[0]
        number = re.match(r"\w+\[(\d+)\]", path)
        assert found["where"].get("instruction") == (int(number[1]) if number else None)
    session.assert_usable()


def loop(**attrs: Any) -> dict[str, Any]:
    return step("while_loop", [["x"]], cond=AS_IT_IS, body=AS_IT_IS, **attrs)


def deep_branches(depth: int) -> dict[str, Any]:
    block: dict[str, Any] = {"outputs": ["x"]}
    for level in range(depth):
        inner = step("cond", ["x"], [f"y{level}"], then=block, **{"else": {"outputs": ["x"]}})
        block = {"instructions": [inner], "outputs": [f"y{level}"]}
    return {"name": "f", "forward": {"inputs": ["x"], **block}}


HUGE = {
    "a loop of 10**12 turns": function(loop(max_iterations=10**12)),
    "a loop without end": function(loop(max_iterations="Infinity")),
    "branches in branches": deep_branches(14),
    "10 MB of inputs": function(step("mul", ["x", LISTS])),
    "10 MB of attributes": function(step("reshape", shape=LISTS)),
    "10 MB of numbers": function(step("tensor", [], data=LISTS)),
    "10 MB of empty lists": function(step("tensor", [], data=[[[]] * 1000] * 3000)),
    "10 MB as a default": function(DOUBLE, parameters=[{"name": "p", "type": "list", "default": LISTS}]),
    "10 MB of text": function(DOUBLE, doc="d" * 10_000_000),
    "10 MB of a message": function(step("require", [True], [], message="m" * 10_000_000), DOUBLE),
    "10 MB of names": function(step("neg", ["x"], ["y"] * 2_000_000)),
    "300,000 instructions": function(*[step("neg", outputs=())] * 300_000),
    "11,000 instructions": function(*[step("neg", outputs=())] * 11_000),
    "1,001 outputs": function(DOUBLE, outputs=["y"] * 1_001),
    "1,001 parameters": function(DOUBLE, parameters=[{"name": "p"}] * 1_001),
    "5,000 numbers in a constant": function(step("tensor", [], data=[0.0] * 5_000)),
    "a long description": function(DOUBLE, doc="d" * 10_001),
    "a verification of 10**9 numbers": function(DOUBLE, verify=True, shapes=[[10**9]]),
    "a verification that gives 10**6 numbers": function(
        step("zeros", [], ["z"], size=[10**6]), step("sum", ["x"], ["s"]), step("add", ["s", "z"]), verify=True
    ),
}


LIMITS = {"branches in branches": "at most 12 deep", "5,000 numbers in a constant": "4096"}
"""What the errors of some of them say."""


@pytest.mark.parametrize("case", HUGE)
def test_what_is_too_large(session: SessionClient, case: str) -> None:
    found = problem(send(session, HUGE[case]), 422, "limit-exceeded")
    assert LIMITS.get(case, "") in found["detail"] and len(found["detail"]) < 1_000
    problem(session.get("/functions/f"), 404, "unknown-function")
    session.assert_usable()


@pytest.mark.parametrize("opening", [b"[", b'{"forward":', b'{"neg":['])
def test_a_body_nested_100_000_deep(session: SessionClient, opening: bytes) -> None:
    body = b'{"name":"f","forward":' + opening * 100_000
    answer = session.request("POST", "/functions", content=body, headers={"content-type": "application/json"})
    assert "levels deep" in problem(answer, 400, "malformed-request")["detail"]
    session.assert_usable()


def test_what_is_refused_leaves_nothing_behind(session: SessionClient) -> None:
    for case in ("an unknown op", "too many gradients"):
        problem(send(session, BROKEN[case][0]), 422, "invalid-function")
    assert session.post("/functions", function(DOUBLE)).status_code == 201


# Refused where it is called -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Iterator[httpx.Client]:
    """A server whose sessions hold little, so that what would fill a machine shows soon."""
    with served_with(max_session_bytes=ROOM) as client:
        yield client


@pytest.fixture
def cramped(small: httpx.Client) -> SessionClient:
    return SessionClient(small)


def call(session: SessionClient, *steps: Any, data: Any = 1.0, requires_grad: bool = False) -> httpx.Response:
    """Register a function of these instructions and apply it to a new tensor."""
    answer = send(session, function(*steps))
    assert answer.status_code == 201, answer.text
    session.tensor("x", data, requires_grad=requires_grad)
    return session.post("/functions/f/apply", {"inputs": ["x"], "outputs": ["y"]})


def nested_loops(depth: int) -> dict[str, Any]:
    """Loops without end within each other, the innermost of which does nothing at all."""
    body: Any = AS_IT_IS
    for level in range(depth):
        never = {"inputs": ["v"], "instructions": [step("lt", ["v", 2], ["goes"])], "outputs": ["goes"]}
        one_more = {"inputs": ["v"], "instructions": [step("add", ["v", 0.01], ["w"])], "outputs": ["w"]}
        inner = step("while_loop", [["v"]], [f"u{level}"], cond=never, body=one_more if level == 0 else body)
        again = step("mul", [f"u{level}", 0.0], [f"z{level}"])
        body = {"inputs": ["v"], "instructions": [inner, again], "outputs": [f"z{level}"]}
    return step("while_loop", [["x"]], cond=never, body=body)


def rotating_loops(depth: int, count: int = 900) -> list[dict[str, Any]]:
    """Loops in loops of which each turn has no instruction: what they carry goes round until a zero comes first."""

    def names(prefix: str) -> list[str]:
        return [f"{prefix}_{number}" for number in range(count)]

    instructions: list[Any] = []
    for level in range(depth):
        given = names(f"v{level}")
        turn = {"inputs": given, "instructions": instructions, "outputs": [*given[1:], given[0]]}
        goes_on = {"inputs": given, "instructions": [], "outputs": given[:1]}
        carried = names(f"v{level + 1}") if level < depth - 1 else ["x"] * (count - 1) + ["zero"]
        instructions = [step("while_loop", [carried], names(f"u{level}"), cond=goes_on, body=turn)]
    return [step("mul", ["x", 0.0], ["zero"]), *instructions, DOUBLE]


def many_turns(body: dict[str, Any]) -> dict[str, Any]:
    """A loop whose body is one instruction, from ``v`` to ``w``, and which goes on for as long as it may."""
    forever = {"inputs": ["v"], "instructions": [step("ones", [], ["one"], size=[1])], "outputs": ["one"]}
    return step("while_loop", [["x"]], cond=forever, body={"inputs": ["v"], "instructions": [body], "outputs": ["w"]})


RUNAWAY: dict[str, tuple[list[Any], Any, bool, str]] = {
    "a loop without end": ([many_turns(step("neg", ["v"], ["w"]))], 1.0, False, "limit-exceeded"),
    "loops in loops": ([nested_loops(3)], 1.0, False, "limit-exceeded"),
    "loops of empty turns": (rotating_loops(4), 1.0, False, "limit-exceeded"),
    "a tensor of 4 TB": ([step("zeros", [], ["z"], size=[10**12]), DOUBLE], 1.0, False, "too-large"),
    "a size that is computed": (
        [step("zeros", [], ["z"], size=[{"pow": [10, {"add": [{"ndim": "x"}, 13]}]}]), DOUBLE],
        1.0,
        False,
        "too-large",
    ),
    "a power of powers": (
        [step("mul", ["x", {"pow": [{"add": [{"ndim": "x"}, 10]}, {"pow": [10, 10]}]}])],
        1.0,
        False,
        "invalid-value",
    ),
    "outputs that a scan stacks": (
        [
            step(
                "scan",
                [[], ["x"]],
                body={"inputs": ["s"], "instructions": [step("ones", [], ["w"], size=[10**5])], "outputs": ["w"]},
            )
        ],
        [1.0] * 1_000,
        False,
        "too-large",
    ),
    "a graph that grows in a loop": ([many_turns(step("sin", ["v"], ["w"]))], [0.5] * 100_000, True, "too-large"),
    "a division by zero": ([step("mul", ["x", {"div": [1, {"ndim": "x"}]}])], 1.0, False, "invalid-value"),
    "words that are multiplied": ([step("mul", ["x", {"mul": ["a", 10**9]}])], 1.0, False, "invalid-value"),
}


@pytest.mark.parametrize("case", RUNAWAY)
def test_what_runs_away(cramped: SessionClient, case: str) -> None:
    steps, data, requires_grad, slug = RUNAWAY[case]
    answer = call(cramped, *steps, data=data, requires_grad=requires_grad)
    found = problem(answer, 413 if slug == "too-large" else 422, slug)
    assert found["where"]["path"].startswith("forward[")
    problem(cramped.get("/tensors/y"), 404, "unknown-tensor")
    cramped.assert_usable()


def test_what_the_graph_keeps_of_a_call_counts(cramped: SessionClient) -> None:
    # Each call keeps a megabyte for its derivative and gives one number.
    steps = step("sin", outputs=["s"]), step("exp", ["s"], ["e"]), step("sum", ["e"])
    assert send(cramped, function(*steps)).status_code == 201
    cramped.tensor("x", [0.5] * 250_000, requires_grad=True)
    for made in range(100):
        answer = cramped.post("/functions/f/apply", {"inputs": ["x"], "outputs": [f"y{made}"]})
        if answer.status_code != 200:
            problem(answer, 413, "too-large")
            break
    else:
        pytest.fail("the graph holds more than the session may")
    assert 32 < made < 70
    for index in range(made):
        assert cramped.request("DELETE", f"/tensors/y{index}").status_code == 204
    assert cramped.post("/functions/f/apply", {"inputs": ["x"], "outputs": ["y"]}).status_code == 200


# Functions of functions ---------------------------------------------------------------------------


def applies(other: str, name: str) -> dict[str, Any]:
    return function(step("apply", [["x"]], function=other), name=name)


def test_functions_that_would_apply_each_other(session: SessionClient) -> None:
    """The first cannot name what is not there yet; registered again it is another, and the second keeps the old one."""
    assert "no function 'b'" in problem(send(session, applies("b", "a")), 422, "invalid-function")["detail"]
    assert send(session, function(DOUBLE, name="a")).status_code == 201
    assert send(session, applies("a", "b")).status_code == 201
    assert session.request("DELETE", "/functions/a").status_code == 204
    assert send(session, applies("b", "a")).status_code == 201
    session.tensor("x", 3.0)
    for name in ("a", "b"):
        (y,) = session.post(f"/functions/{name}/apply", {"inputs": ["x"]}, params={"data": True}).json()["outputs"]
        assert y["data"] == 6.0


def test_a_long_chain_of_functions(session: SessionClient) -> None:
    assert send(session, function(DOUBLE, name="f0")).status_code == 201
    for level in range(1, 1_000):
        answer = send(session, applies(f"f{level - 1}", f"f{level}"))
        if answer.status_code != 201:
            break
    found = problem(answer, 422, "limit-exceeded")
    assert (found["where"]["path"], level > 10) == ("forward[0]", True)
    # The longest that was taken runs, and is differentiated.
    session.tensor("x", 0.0, requires_grad=True)
    assert session.post(f"/functions/f{level - 1}/apply", {"inputs": ["x"], "outputs": ["y"]}).status_code == 200
    grads = session.post("/grad", {"outputs": ["y"], "inputs": ["x"]}).json()["grads"]
    assert grads[0]["data"] == 2.0


def test_removed_while_a_graph_needs_it(session: SessionClient) -> None:
    square = function(
        step("mul", ["x", "x"]),
        backward={
            "inputs": ["x", "g"],
            "instructions": [step("mul", ["x", "g"], ["xg"]), step("mul", ["xg", 2], ["gx"])],
            "outputs": ["gx"],
        },
    )
    square["forward"]["saves"] = ["x"]
    assert send(session, square).status_code == 201
    session.tensor("x", 3.0, requires_grad=True)
    assert session.post("/functions/f/apply", {"inputs": ["x"], "outputs": ["y"]}).status_code == 200
    assert session.request("DELETE", "/functions/f").status_code == 204
    assert send(session, function(step("neg"), name="f")).status_code == 201
    options = {"create_graph": True, "names": ["g"]}
    answer = session.post("/grad", {"outputs": ["y"], "inputs": ["x"], **options})
    assert answer.json()["grads"][0]["data"] == 6.0
    assert session.post("/grad", {"outputs": ["g"], "inputs": ["x"]}).json()["grads"][0]["data"] == 2.0


def test_10_000_registrations(session: SessionClient, new_session: Callable[..., SessionClient]) -> None:
    definitions = [function(DOUBLE, name=f"f{number}") for number in range(10_000)]
    program = [{"op": "register_function", "attrs": {"definition": definition}} for definition in definitions]
    found = problem(session.run(*program), 422, "limit-exceeded")
    assert (found["instruction"], found["op"]) == (1_000, "register_function")
    assert "remove some" in found["detail"]
    assert len(session.get("/functions", params={"limit": 1_000}).json()["items"]) == 1_000
    problem(session.post("/functions", function(DOUBLE, name="one_more")), 422, "limit-exceeded")
    problem(session.post("/functions", function(DOUBLE, name="f7")), 409, "function-exists")
    assert session.request("DELETE", "/functions/f7").status_code == 204
    assert session.post("/functions", function(DOUBLE, name="one_more")).status_code == 201
    assert new_session().post("/functions", function(DOUBLE)).status_code == 201
    session.assert_usable()


@pytest.mark.full
def test_large_definitions_are_not_taken_without_end(session: SessionClient) -> None:
    """Each is within the limits; together they would be kept for as long as the session."""
    steps = [step("mul", ["x", 2], [f"a_tensor_with_a_name_that_is_very_long_{i}"]) for i in range(8_000)]
    for number in range(100):
        answer = send(session, function(*steps, outputs=steps[0]["out"], name=f"f{number}"))
        if answer.status_code != 201:
            break
    assert "remove some" in problem(answer, 422, "limit-exceeded")["detail"]
    assert number > 10
    assert session.request("DELETE", "/functions/f0").status_code == 204
    assert send(session, function(*steps, outputs=steps[0]["out"])).status_code == 201


@pytest.mark.parametrize("name", ["a%2Fb", "%C3%A4", "%00", "n" * 10_000, "%F0%9F%92%A5"])
def test_names_that_no_function_can_have(session: SessionClient, name: str) -> None:
    for method, path in (("GET", name), ("DELETE", name), ("POST", f"{name}/apply")):
        answer = session.request(method, f"/functions/{path}", json={"inputs": []} if method == "POST" else None)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.text) < 11_000
    session.assert_usable()
