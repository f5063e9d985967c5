"""Procedures: a program under a name, run on other tensors; what is refused, what fails, and what is left after it.

Internals: the limits are no settings, and a session knows its programs by this cache, as a server's does.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from telegrad_engine import errors
from telegrad_engine.program import Instruction
from telegrad_engine.program.procedures import MAX_INSTRUCTIONS, MAX_PROCEDURES
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.session.session import Session

from .compiled.verification import VerifyingCompiler
from .templates import bound
from .test_session import fetch, run, upload

LOSS: dict[str, Any] = {
    "in": ["a", "w", "scale"],
    "instructions": [
        {"op": "mul", "in": ["a", "w"], "out": ["h"]},
        {"op": "mul", "in": ["h", "scale"], "out": ["s"]},
        {"op": "sum", "in": ["s"], "out": ["loss"]},
        {"op": "backward", "in": [["loss"]]},
        {"op": "grad_of", "in": ["w"], "out": ["g"]},
    ],
    "out": ["loss", "g"],
}


def define(name: str, program: dict[str, Any]) -> dict[str, Any]:
    return {"op": "define", "attrs": {"name": name, "program": program}}


def call(name: str, inputs: list[Any], *out: str, **options: Any) -> dict[str, Any]:
    return {"op": "call", "in": [inputs], "out": list(out), "attrs": {"name": name}, **options}


@pytest.fixture
def session() -> Session:
    session = Session(seed=0)
    run(session, upload("x", [1.0, 2.0, 3.0]), upload("w", [1.0, 1.0, 1.0], requires_grad=True), define("f", LOSS))
    return session


def test_it_runs_on_other_tensors_and_numbers(session: Session) -> None:
    got = run(session, call("f", ["x", "w", 2.0], "l", "g"), fetch("l", "g"))
    assert got == {"l": 12.0, "g": [2.0, 4.0, 6.0]}
    got = run(session, upload("x2", [1.0, 0.0, 0.0]), call("f", ["x2", "w", -1.0], "l2", "g2"), fetch("l2", "g2"))
    assert got == {"l2": -1.0, "g2": [1.0, 4.0, 6.0]}  # accumulated


def test_nothing_of_it_is_left(session: Session) -> None:
    names, used = set(session.tensors), session.accounts.used_bytes
    run(session, call("f", ["x", "w", 2.0], "l", "g"))
    assert set(session.tensors) == names | {"l", "g"}
    run(session, {"op": "free", "in": [["l", "g"]]}, {"op": "zero_grad", "in": [["w"]]})
    gc.collect()
    assert session.accounts.used_bytes == used


def test_its_names_are_its_own(session: Session) -> None:
    run(session, upload("h", [7.0]), upload("a", [8.0]), call("f", ["x", "w", 1.0], "loss", "s"))
    assert run(session, fetch("h", "a", "loss"))["h"] == [7.0]


def test_what_fails_inside_says_where_and_leaves_nothing(session: Session) -> None:
    names = set(session.tensors)
    run(session, upload("x5", [1.0] * 5))
    with pytest.raises(errors.ShapeMismatch, match="size of tensor a") as caught:
        run(session, fetch("x"), call("f", ["x5", "w", 1.0], "l"))
    context = caught.value.context
    assert (context["instruction"], context["op"]) == (1, "call")
    assert (context["procedure"], context["step"], context["step_op"]) == ("f", 0, "mul")
    assert set(session.tensors) == names | {"x5"}
    assert run(session, call("f", ["x", "w", 1.0], "l"), fetch("l")) == {"l": 6.0}


def test_what_ran_before_an_error_stands(session: Session) -> None:
    program = {
        "in": ["p", "q"],
        "instructions": [
            {"op": "add_", "in": ["p", 1.0], "grad_mode": "no_grad"},
            {"op": "matmul", "in": ["p", "q"], "out": ["r"]},
        ],
        "out": ["r"],
    }
    run(session, define("g", program), upload("m", [[1.0]]))
    with pytest.raises(errors.TelegradError):
        run(session, call("g", ["x", "m"], "r"))
    assert run(session, fetch("x")) == {"x": [2.0, 3.0, 4.0]}


def test_grad_mode_of_a_call_is_that_of_its_instructions(session: Session) -> None:
    program = {
        "in": ["a"],
        "instructions": [
            {"op": "mul", "in": ["a", 2.0], "out": ["b"]},
            {"op": "mul", "in": ["a", 2.0], "out": ["c"], "grad_mode": "enable_grad"},
        ],
        "out": ["b", "c"],
    }
    run(session, define("g", program), call("g", ["w"], "b", "c", grad_mode="no_grad"), call("g", ["w"], "d"))
    assert [session.get(name).requires_grad for name in "bcd"] == [False, True, True]


def test_an_optimizers_numbers_are_inputs(session: Session) -> None:
    step = {"op": "optim_step", "in": [["p"], []], "attrs": {"algorithm": "sgd", "settings": {"lr": "lr"}}}
    program = {"in": ["p", "lr"], "instructions": [step], "out": []}
    run(session, define("step", program), call("f", ["x", "w", 1.0]), call("step", ["w", 0.5]))
    assert run(session, fetch("w")) == {"w": [0.5, 0.0, -0.5]}
    run(session, call("step", ["w", 1.0]))
    assert run(session, fetch("w")) == {"w": [-0.5, -2.0, -3.5]}
    with pytest.raises(errors.InvalidArgument, match="lr is a number, not a tensor"):
        run(session, call("step", ["w", "x"]))


def test_numbers_are_no_tensors_of_the_session() -> None:
    session = Session()
    muls = [step("mul", f"_{i}", "k", out=f"_{i + 1}") for i in range(5000)]  # so many nodes that they are counted
    run(session, upload("w", [2.0], requires_grad=True))
    run(session, define("f", {"in": ["_0", "k"], "instructions": muls, "out": ["_5000"]}), call("f", ["w", 1.0], "y"))
    run(session, define("g", {"in": ["k"], "instructions": [], "out": ["k"]}), call("g", ["w"], "z"))
    assert run(session, fetch("y", "z")) == {"y": [2.0], "z": [2.0]}
    with pytest.raises(errors.InvalidArgument, match="the output 'k' is a number, not a tensor"):
        run(session, call("g", [1.0], "n"))


def test_a_number_may_stand_where_a_tensor_is_freed(session: Session) -> None:
    steps = [step("mul", "a", "a", out="b"), step("free", ["a", "k"])]
    run(session, define("g", {"in": ["a", "k"], "instructions": steps, "out": ["b"]}), call("g", ["x", 2.0], "b"))
    assert run(session, fetch("b")) == {"b": [1.0, 4.0, 9.0]}


def test_random_numbers_go_on(session: Session) -> None:
    program = {"in": [], "instructions": [{"op": "rand", "out": ["r"], "attrs": {"size": [4]}}], "out": ["r"]}
    other = Session(seed=0)
    run(session, define("r", program), call("r", [], "a"), call("r", [], "b"))
    run(other, program["instructions"][0] | {"out": ["a"]}, program["instructions"][0] | {"out": ["b"]})  # type: ignore[index]
    assert run(session, fetch("a", "b")) == run(other, fetch("a", "b"))


def test_an_unused_inputs_gradient_leaves_the_name_free(session: Session) -> None:
    program = {
        "in": ["a", "b"],
        "instructions": [
            {"op": "sum", "in": ["a"], "out": ["s"]},
            {"op": "grad", "in": [["s"], ["a", "b"]], "out": ["ga", "gb"], "attrs": {"allow_unused": True}},
        ],
        "out": ["ga", "gb"],
    }
    run(session, define("g", program), upload("v", [1.0], requires_grad=True), call("g", ["w", "v"], "ga", "gb"))
    assert "ga" in session.tensors
    assert "gb" not in session.tensors


def test_memory_is_freed_as_it_runs() -> None:
    session = Session(max_bytes=40_000)
    steps = [{"op": "add", "in": [f"_{i}", 1.0], "out": [f"_{i + 1}"]} for i in range(50)]
    run(session, upload("x", [0.0] * 2000), define("f", {"in": ["_0"], "instructions": steps, "out": ["_50"]}))
    assert run(session, call("f", ["x"], "y"), {"op": "sum", "in": ["y"], "out": ["s"]}, fetch("s")) == {"s": 100_000.0}
    with pytest.raises(errors.TooLarge):  # as a program whose names are all kept
        run(session, *[i | {"in": [i["in"][0].replace("_0", "x"), 1.0]} for i in steps])  # type: ignore[attr-defined]


def step(op: str, *inputs: Any, out: str | None = None, **attrs: Any) -> dict[str, Any]:
    return {"op": op, "in": list(inputs), "out": [out] if out else [], "attrs": attrs}


REFUSED = {
    "unknown op": ({"instructions": [step("mull", "a", out="b")]}, errors.UnknownOp, "mull"),
    "unknown attribute": ({"instructions": [step("sum", "a", out="b", axes=1)]}, errors.InvalidArgument, "axes"),
    "before it is made": ({"instructions": [step("sum", "b", out="c")]}, errors.InvalidValue, "'b' is used before"),
    "after it is freed": (
        {"instructions": [step("free", ["a"]), step("sum", "a", out="c")]},
        errors.InvalidValue,
        "'a' is used before",
    ),
    "made twice": ({"instructions": [step("sum", "a", out="a")]}, errors.InvalidValue, "there already"),
    "output never made": ({"out": ["z"]}, errors.InvalidValue, "the output 'z' is never made"),
    "nested definition": (
        {"instructions": [step("define", name="x", program={})]},
        errors.InvalidValue,
        "cannot be part",
    ),
    "nested call": ({"instructions": [step("call", ["a"], name="f")]}, errors.InvalidValue, "cannot be part"),
    "a value": ({"instructions": [step("fetch", ["a"])]}, errors.InvalidValue, "cannot be part"),
    "client": ({"instructions": [step("client_hook", "a", hook="h")]}, errors.InvalidValue, "cannot be part"),
    "two of a name": ({"in": ["a", "a"]}, errors.InvalidValue, "same name"),
    "no list": ({"in": "a"}, errors.InvalidValue, "list of names"),
    "no name": ({"out": ["no name"]}, errors.MalformedRequest, "not a tensor id"),
    "no program": ({"instructions": 3}, errors.MalformedRequest, "a program is"),
    "more keys": ({"inn": []}, errors.InvalidValue, "no member 'inn'"),
    "unknown number": (
        {"instructions": [step("optim_step", ["a"], [], algorithm="sgd", settings={"lr": "z"})]},
        errors.InvalidValue,
        "no input",
    ),
    "an operand": (
        {"instructions": [step("apply", ["a"], out="b", function="f", params={"k": {"operand": 0}})]},
        errors.InvalidValue,
        "operands",
    ),
    "too long": (
        {"instructions": [step("sin_", "a")] * (MAX_INSTRUCTIONS + 1)},
        errors.LimitExceeded,
        "at most",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_procedure_is_refused_when_it_is_defined(session: Session, what: str) -> None:
    changes, error, text = REFUSED[what]
    with pytest.raises(error, match=text):
        run(session, define("bad", {"in": ["a"], "instructions": [], "out": [], **changes}))  # type: ignore[dict-item]
    with pytest.raises(errors.UnknownResource, match="no procedure 'bad'"):
        run(session, call("bad", ["x"]))


def test_a_call_that_does_not_fit_is_refused(session: Session) -> None:
    with pytest.raises(errors.InvalidArgument, match="takes 3 inputs, but 1 were given"):
        run(session, call("f", ["x"], "l"))
    with pytest.raises(errors.InvalidArgument, match="2 outputs, but 3 names"):
        run(session, call("f", ["x", "w", 1.0], "a", "b", "c"))
    with pytest.raises(errors.TensorExists):
        run(session, call("f", ["x", "w", 1.0], "x"))
    with pytest.raises(errors.UnknownTensor):
        run(session, call("f", ["nothing", "w", 1.0], "y"))


def test_names_are_taken_until_they_are_given_back(session: Session) -> None:
    with pytest.raises(errors.ProcedureExists, match="there is a procedure 'f' already"):
        run(session, define("f", LOSS))
    run(session, {"op": "undefine", "attrs": {"name": "f"}}, define("f", LOSS))
    with pytest.raises(errors.UnknownResource):
        run(session, {"op": "undefine", "attrs": {"name": "g"}})


@pytest.mark.full
def test_there_is_an_end_to_how_many_are_kept(session: Session) -> None:
    empty: dict[str, Any] = {"in": [], "instructions": [], "out": []}
    with pytest.raises(errors.LimitExceeded, match="at most"):
        run(session, *[define(f"p{i}", empty) for i in range(MAX_PROCEDURES)])
    large = {"in": [], "instructions": [upload("t", [0.5] * 200_000)], "out": ["t"]}
    run(session, {"op": "undefine", "attrs": {"name": "p0"}})
    fresh = Session()
    with pytest.raises(errors.LimitExceeded, match="bytes"):
        run(fresh, *[define(f"p{i}", large) for i in range(20)])


def test_a_pass_that_would_wait_for_the_client_is_refused(session: Session) -> None:
    hook = {"op": "client_hook", "in": ["w"], "attrs": {"hook": "h"}}
    with pytest.raises(errors.NotSupported, match="what the client evaluates"):
        run(session, hook, call("f", ["x", "w", 1.0], "l"))
    assert not session.suspensions.waiting
    run(session, {"op": "remove_client_hook", "attrs": {"hook": "h"}})
    assert run(session, call("f", ["x", "w", 1.0], "l"), fetch("l")) == {"l": 6.0}


def test_in_a_checkpoint_it_is_run_again(session: Session) -> None:
    program = {
        "in": ["a"],
        "instructions": [{"op": "sin", "in": ["a"], "out": ["b"]}, {"op": "exp", "in": ["b"], "out": ["c"]}],
        "out": ["c"],
    }
    run(session, define("g", program), {"op": "checkpoint", "in": [["w"]], "attrs": {"checkpoint": "k"}})
    run(session, call("g", ["w"], "c"), {"op": "end_checkpoint", "attrs": {"checkpoint": "k"}})
    run(session, {"op": "sum", "in": ["c"], "out": ["s"]}, {"op": "backward", "in": [["s"]]})
    got = run(session, {"op": "grad_of", "in": ["w"], "out": ["g"]}, fetch("g"))["g"]
    other = Session()
    run(other, upload("w", [1.0, 1.0, 1.0], requires_grad=True), *program["instructions"][:0])  # type: ignore[index]
    run(other, define("g", program), call("g", ["w"], "c"), {"op": "sum", "in": ["c"], "out": ["s"]})
    run(other, {"op": "backward", "in": [["s"]]}, {"op": "grad_of", "in": ["w"], "out": ["g"]})
    assert got == run(other, fetch("g"))["g"]


# Planned -------------------------------------------------------------------------------------

TRAIN: dict[str, Any] = {
    "in": ["x", "y", "w", "unused", "lr", "scale", "maximize", "spare"],
    "instructions": [
        {"op": "zero_grad", "in": [["w"]]},
        {"op": "tensor", "out": ["c"], "attrs": {"data": [0.5, 0.25]}},
        {"op": "matmul", "in": ["x", "w"], "out": ["h"]},
        {"op": "mul", "in": ["h", "scale"], "out": ["guess"]},
        {"op": "free", "in": [["h"]]},
        {"op": "mse_loss", "in": ["guess", "y"], "out": ["loss"]},
        {"op": "backward", "in": [["loss"]]},
        {"op": "grad_of", "in": ["w"], "out": ["g"]},
        {
            "op": "optim_step",
            "in": [["w"], []],
            "attrs": {"algorithm": "sgd", "settings": {"lr": "lr", "maximize": "maximize", "weight_decay": 0.01}},
        },
        {"op": "add_", "in": ["x", "scale"], "grad_mode": "no_grad"},
        {"op": "mul_", "in": ["c", "lr"]},
        {"op": "sum", "in": ["w"], "out": ["s"]},
        {"op": "grad", "in": [["s"], ["w", "unused"]], "out": ["gw", "gn"], "attrs": {"allow_unused": True}},
        {"op": "rand", "out": ["r"], "attrs": {"size": [2]}},
        {"op": "grad_of", "in": ["unused"], "out": ["never"]},
        {"op": "exp", "in": ["w"], "out": ["e"]},
    ],
    "out": ["loss", "g", "gw", "gn", "c", "r", "e"],
}
OUT = ["loss", "g", "gw", "c", "r", "e"]


def planning() -> Session:
    compiler = VerifyingCompiler(after=2, choose=False)
    return Session(seed=0, memory=ProgramCache(), compiler=compiler)


def reports(session: Session) -> list[Any]:
    return session.compiler.reports(session)  # type: ignore[return-value]


@pytest.mark.parametrize("mode", [None, "enable_grad"])
def test_called_often_it_is_planned_with_the_same_bits(mode: str | None) -> None:
    results = []
    for session in (Session(seed=0), planning()):
        run(
            session,
            upload("x", [[0.1, 0.7], [0.3, -0.9]]),
            upload("y", [[1.0], [2.0]]),
            upload("w", [[0.2], [0.4]], requires_grad=True),
            upload("unused", [1.0], requires_grad=True),
            define("train", TRAIN),
        )
        names, found = set(session.tensors), []
        for i in range(7):
            given = ["x", "y", "w", "unused", 0.1 / (i + 1), 1.0 + i / 7, False, i]
            step = call("train", given, "loss", "g", "gw", "gn", "c", "r", "e")
            step = step if mode is None else {**step, "grad_mode": mode}
            found.append(run(session, step, fetch(*OUT, "w", "x"), {"op": "free", "in": [OUT]}))
            assert set(session.tensors) == names
            found[-1]["versions"] = [session.get(name)._version for name in ("w", "x")]
        assert session.programs == 8
        results.append(found)
    assert results[0] == results[1]
    (report,) = reports(session)
    assert (report.runs, report.planned_runs, report.reason) == (7, 5, None)


def test_a_call_without_gradients_is_a_template_of_its_own() -> None:
    session = planning()
    program = {
        "in": ["a", "k"],
        "instructions": [step("mul", "a", "k", out="b"), step("exp", "b", out="c")],
        "out": "c",
    }
    run(session, upload("w", [1.0, 2.0], requires_grad=True), define("f", {**program, "out": ["c"]}))
    for i in range(5):
        for k in (2.0 + i, True):
            run(session, call("f", ["w", k], "a"), call("f", ["w", k], "b", grad_mode="no_grad"))
            assert [session.get(name).requires_grad for name in "ab"] == [True, False]
            assert session.get("a").tolist() == session.get("b").tolist() == np.exp(np.float32([k, 2 * k])).tolist()
            run(session, {"op": "free", "in": [["a", "b"]]})
    assert [report.planned_runs for report in reports(session)] == [3] * 4


def test_planned_an_error_says_where_and_what_ran_before_it_stands() -> None:
    program = {
        "in": ["x", "index"],
        "instructions": [
            step("add_", "x", 1.0),
            step("exp", "x", out="e"),
            step("index_select", "x", "index", out="y", dim=0),
        ],
        "out": ["y"],
    }
    session = planning()
    run(session, upload("x", [1.0, 2.0]), upload("i", [1]), upload("bad", [2]), define("pick", program))
    for _ in range(4):
        run(session, call("pick", ["x", "i"], "y"), {"op": "free", "in": [["y"]]})
    assert reports(session)[0].planned_runs == 2
    with pytest.raises(errors.TelegradError) as caught:
        run(session, fetch("x"), call("pick", ["x", "bad"], "y"))
    context = caught.value.context
    assert (context["instruction"], context["op"], context["ids"]) == (1, "call", ["x", "bad"])
    assert (context["procedure"], context["step"], context["step_op"]) == ("pick", 2, "index_select")
    assert session.get("x").tolist() == [6.0, 7.0]
    assert run(session, call("pick", ["x", "i"], "y"), fetch("y")) == {"y": [8.0]}
    assert reports(session)[0].planned_runs == 3


def test_what_is_not_planned_runs_as_ever() -> None:
    session, other = planning(), Session()
    program = {"in": ["a"], "instructions": [step("sin", "a", out="b"), step("exp", "b", out="c")], "out": ["c"]}
    for each in (session, other):
        run(each, upload("w", [1.0, 1.0], requires_grad=True), define("g", program))
        for i in range(4):
            run(each, call("g", ["w"], f"c{i}"))
        run(each, {"op": "checkpoint", "in": [["w"]], "attrs": {"checkpoint": "k"}}, call("g", ["w"], "c"))
    (report,) = reports(session)
    assert (report.planned_runs, report.reason) == (2, "somebody watches every instruction")
    for each in (session, other):
        run(each, step("end_checkpoint", checkpoint="k"), step("sum", "c", out="s"))
        run(each, step("backward", ["s"]), step("grad_of", "w", out="grad"))
    assert run(session, fetch("grad")) == run(other, fetch("grad"))
    run(session, step("start_profile"), call("g", ["w"], "p"), step("stop_profile"))
    assert {event.key for event in session.last_profile().key_averages()} >= {"aten::sin", "aten::exp"}
    run(session, {"op": "client_hook", "in": ["w"], "attrs": {"hook": "h"}}, call("g", ["w"], "h"))
    (report,) = reports(session)
    assert (report.planned_runs, report.reason) == (2, "a has hooks")


@pytest.mark.parametrize("inputs", [["x"], ["x", None, 2.0], ["x", "x", [1.0]]])
def test_a_call_that_does_not_fit_is_refused_each_time(session: Session, inputs: list[Any]) -> None:
    for _ in range(4):
        with pytest.raises(errors.TelegradError) as caught:
            run(session, call("f", inputs, "l"))
        assert caught.value.context["op"] == "call"


@pytest.mark.parametrize("attrs", [{"name": ["f"]}, {"name": "f", "more": 1}, {}])
def test_a_call_has_a_name_and_nothing_else(session: Session, attrs: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        run(session, {"op": "call", "attrs": attrs})


def test_a_template_can_define_and_call() -> None:
    session, memory = Session(), ProgramCache()
    run(session, upload("x", [1.0, 2.0]), upload("w", [1.0, 1.0], requires_grad=True))
    session.run(bound(memory, [Instruction("define", attrs={"name": "f", "program": LOSS})]))
    session.run(bound(memory, [Instruction("call", [("x", "w", 2.0)], ["l", "g"], {"name": "f"})]))
    assert run(session, fetch("l", "g")) == {"l": 6.0, "g": [2.0, 4.0]}
