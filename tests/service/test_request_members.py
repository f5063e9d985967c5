"""The members of requests: one name for each thing, deprecated names that are still read, and hints for wrong ones."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from telegrad_service.app import create_app

from . import documented
from .conftest import SessionClient, problem

REGISTER = documented.request_examples("register_function")
POWER = {name: value for name, value in REGISTER["power"].items() if name != "verify"}
STEP = documented.request_examples("define_procedure")["step"]

ROOT = Path(__file__).parents[2]
OLD = {"inputs": "in", "outputs": "out"}


def with_old_names(value: Any) -> Any:
    """A program with the deprecated names of the members of its instructions, and of the program of a procedure."""
    if isinstance(value, list):
        return [*map(with_old_names, value)]
    if not isinstance(value, dict):
        return value
    own = OLD if "op" in value or {"inputs", "instructions", "outputs"} == value.keys() else {}
    return {own.get(name, name): with_old_names(member) for name, member in value.items()}


@pytest.fixture
def x(session: SessionClient) -> SessionClient:
    session.tensor("x", [1.0, 2.0], requires_grad=True)
    return session


@pytest.mark.parametrize("named", [copy.deepcopy, with_old_names], ids=["current", "deprecated"])
def test_programs_and_procedures(x: SessionClient, named: Any) -> None:
    program = [
        {"op": "mul", "inputs": ["x", 3], "outputs": ["y"]},
        {"op": "fetch", "inputs": [["y"]]},
    ]
    assert x.run(*named(program)).json()["values"]["y"]["data"] == [3.0, 6.0]
    made = x.post("/procedures", {"name": "step", "program": named(STEP["program"])})
    assert made.status_code == 201, made.text
    assert (made.json()["inputs"], made.json()["outputs"]) == (["x", "y", "w", "lr"], ["loss"])
    assert made.json()["program"] == named(STEP["program"])
    assert x.get("/procedures").json()["items"][0]["inputs"] == ["x", "y", "w", "lr"]
    x.tensor("w", [[1.0], [1.0]], requires_grad=True)
    for name in ("data", "labels"):
        x.tensor(name, [[1.0, 2.0]] if name == "data" else [[1.0]])
    answer = x.post("/procedures/step/apply", {"inputs": ["data", "labels", "w", 0.5]})
    assert answer.json()["outputs"][0]["shape"] == [], answer.text


def power(deprecated: bool) -> dict[str, Any]:
    text = json.dumps({**POWER, "forward": {**POWER["forward"]}})
    if deprecated:
        text = text.replace('{"attr":', '{"param":').replace('"attrs":', '"parameters":')
        for new, old in OLD.items():
            text = re.sub(rf'("op": "\w+", .*?)"{new}":', rf'\1"{old}":', text)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("deprecated", [False, True])
def test_functions(x: SessionClient, deprecated: bool) -> None:
    assert x.post("/functions", power(deprecated)).status_code == 201
    attrs = "params" if deprecated else "attrs"
    answer = x.post("/functions/my_power/apply", {"inputs": ["x"], attrs: {"power": 3}, "outputs": ["y"]})
    assert answer.status_code == 201 or answer.status_code == 200, answer.text
    inputs, outputs = ("in", "out") if deprecated else ("inputs", "outputs")
    call = {"op": "apply", inputs: [["x"]], outputs: ["z"], "attrs": {"function": "my_power", attrs: {"power": 3}}}
    assert x.run(call).status_code == 200
    outer = {
        "name": "applies_power",
        "forward": {"inputs": ["x"], "instructions": [{**call, outputs: ["y"]}], "outputs": ["y"]},
    }
    assert x.post("/functions", outer).status_code == 201
    x.post("/functions/applies_power/apply", {"inputs": ["x"], "outputs": ["w"]})
    assert x.data("y") == x.data("z") == x.data("w") == [1.0, 8.0]


TWICE: list[tuple[str, dict[str, Any], str]] = [
    ("/programs", {"instructions": [{"op": "neg", "inputs": ["x"], "in": ["x"]}]}, "inputs"),
    ("/programs", {"instructions": [{"op": "neg", "inputs": ["x"], "out": ["y"], "outputs": ["y"]}]}, "outputs"),
    ("/procedures", {"name": "p", "program": {**STEP["program"], "in": []}}, "inputs"),
    ("/functions", {**POWER, "parameters": []}, "attrs"),
    ("/functions/my_power/apply", {"inputs": ["x"], "attrs": {}, "params": {}}, "attrs"),
    (
        "/programs",
        {"instructions": [{"op": "apply", "inputs": [["x"]], "attrs": {"function": "f", "attrs": {}, "params": {}}}]},
        "attrs",
    ),
]


@pytest.mark.parametrize(("path", "body", "name"), TWICE)
def test_both_names_of_a_member_are_refused(x: SessionClient, path: str, body: Any, name: str) -> None:
    answer = x.post(path, body)
    assert answer.status_code in (400, 422) and repr(name) in answer.json()["detail"], answer.text
    assert x.get("/procedures").json()["items"] == []


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("/ops/softmax", {"inputs": ["x"], "attr": {"dim": 0}}, "attr", "attrs"),
    ("/ops/softmax", {"input": ["x"], "attrs": {"dim": 0}}, "input", "inputs"),
    ("/ops/softmax", {"args": ["x"], "attrs": {"dim": 0}}, "args", "inputs"),
    ("/ops/softmax", {"inputs": ["x"], "params": {"dim": 0}}, "params", "attrs"),
    ("/ops/softmax", {"in": ["x"], "attrs": {"dim": 0}}, "in", "inputs"),
    ("/ops/softmax", {"inputs": ["x"], "out": ["y"], "attrs": {"dim": 0}}, "out", "outputs"),
    ("/tensors", {"data": [1.0], "require_grad": True}, "require_grad", "requires_grad"),
    ("/tensors", {"factory": "zeros", "shapes": [1]}, "shapes", "shape"),
    ("/backward", {"tensor": ["x"]}, "tensor", "tensors"),
    ("/functions", {**POWER, "forwards": {}}, "forwards", "forward"),
    ("/functions", {**POWER, "forward": {**POWER["forward"], "save": []}}, "save", "saves"),
    ("/functions/f/apply", {"inputs": ["x"], "attr": {}}, "attr", "attrs"),
    ("/procedures", {"name": "p", "programs": {}}, "programs", "program"),
    ("/procedures", {"name": "p", "program": {**STEP["program"], "input": []}}, "input", "inputs"),
    ("/programs", {"instruction": []}, "instruction", "instructions"),
    ("/programs", {"instructions": [], "rolback": True}, "rolback", "rollback"),
    ("/programs", {"instructions": [{"op": "neg", "input": ["x"]}]}, "input", "inputs"),
    ("/programs", {"instructions": [{"op": "neg", "inputs": ["x"], "params": {}}]}, "params", "attrs"),
]


@pytest.mark.parametrize(("path", "body", "wrong", "right"), WRONG)
def test_the_error_of_a_wrong_member_names_the_right_one(
    x: SessionClient, path: str, body: Any, wrong: str, right: str
) -> None:
    answer = x.post(path, body)
    assert answer.status_code in (400, 422)
    assert f"no member {wrong!r}; did you mean {right!r}? The members are " in answer.json()["detail"]


def test_the_error_of_an_input_among_the_attributes_says_so(x: SessionClient) -> None:
    found = problem(x.post("/ops/mul", {"inputs": ["x"], "attrs": {"other": 2}}), 422, "invalid-argument")
    assert found["detail"] == "mul() got an unexpected attribute 'other'; it is one of the inputs"


def test_unknown_parameters_of_the_query_are_refused(session: SessionClient) -> None:
    for route in create_app().state.routes:
        path = re.sub(r"{\w+}", "x", route.path.replace("{session}", session.id))
        for method in {*route.methods, *({"HEAD"} if "GET" in route.methods else ())}:
            answer = session.client.request(method, path, params={"datas": "true"})
            if route.scope is None:
                assert answer.status_code < 400 or path.startswith("/console/"), (method, path)  # no such file
                continue
            assert answer.status_code == 422, (method, path, answer.text)
            if method != "HEAD":
                assert "no query parameter 'datas'" in problem(answer, 422, "invalid-argument")["detail"]
    assert session.client.put(f"{session.path}/tensors", params={"datas": "1"}).status_code == 405
    assert "did you mean 'data'?" in session.post("/ops/neg?datas=1", {"inputs": []}).json()["detail"]
    session.assert_usable()


def test_pages_without_parameters_of_their_own_take_any(client: httpx.Client) -> None:
    for path in ("/docs", "/openapi.json", "/asyncapi.json", "/healthz", "/readyz"):
        assert client.get(path, params={"v": "2"}).status_code == 200, path


def test_documents_use_the_current_names() -> None:
    schemas = json.loads((ROOT / "openapi/openapi.json").read_text())["components"]["schemas"]
    for name, schema in schemas.items():
        current = {member for member, own in schema.get("properties", {}).items() if not own.get("deprecated")}
        assert not current & {"in", "out", "params", "parameters", "param"}, name
    texts = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/functions/*"), ROOT / "README.md"]
    texts += [path for path in ROOT.glob("tests/clients/programs/*.*") if path.suffix != ".py"]
    for path in texts:
        assert not re.search(r'"(in|out|params|parameters|param)\\?": ?[\[{"]|\b(in|out): \[', path.read_text()), path
