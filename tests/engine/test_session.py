"""Programs in a session: what runs, what an error says, what is left after it and counted, and how they are stopped.

Internals: programs come in the encodings of the wire, the counts are read by the server, and programs are stopped by a
token, which only a session's host has.
"""

from __future__ import annotations

import gc
import json
import threading
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from telegrad_engine import errors
from telegrad_engine.cancellation import CancellationToken, cancelled_by
from telegrad_engine.compile import Compiler
from telegrad_engine.errors import Cancelled, TelegradError, TimeLimitExceeded
from telegrad_engine.program import VERBS, Instruction, json_codec, parse_program, safetensors, wire
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.session.session import Session
from telegrad_engine.session.statistics import Statistics, family_of


def run(session: Session, *instructions: dict[str, Any]) -> dict[str, Any]:
    """Run a program in the wire's form, through its JSON encoding, and give the fetched values as lists."""
    body = json_codec.dumps({"instructions": list(instructions)})
    answer = session.run(wire.decode_message(body, wire.JSON).programs[0])
    return {name: json_codec.to_lists(v.array) for name, v in answer.values.items() if v.array is not None}


def upload(name: str, data: Any, **attrs: Any) -> dict[str, Any]:
    return {"op": "tensor", "out": [name], "attrs": {"data": data, **attrs}}


def fetch(*names: str) -> dict[str, Any]:
    return {"op": "fetch", "in": [list(names)]}


@pytest.fixture
def session() -> Session:
    session = Session(seed=0)
    run(session, upload("x", [1.0, 2.0, 3.0], requires_grad=True), upload("m", [[1.0, 2.0], [3.0, 4.0]]))
    return session


def test_forward_backward_and_gradient(session: Session) -> None:
    got = run(
        session,
        {"op": "mul", "in": ["x", "x"], "out": ["y"]},
        {"op": "sum", "in": ["y"], "out": ["z"]},
        {"op": "backward", "in": [["z"]]},
        {"op": "grad_of", "in": ["x"], "out": ["g"]},
        fetch("z", "g"),
    )
    assert got == {"z": 14.0, "g": [2.0, 4.0, 6.0]}


def test_grad_mode_holds_for_one_instruction(session: Session) -> None:
    run(
        session,
        {"op": "mul", "in": ["x", 2.0], "out": ["a"], "grad_mode": "no_grad"},
        {"op": "mul", "in": ["x", 2.0], "out": ["b"]},
    )
    assert not session.get("a").requires_grad
    assert session.get("b").requires_grad


def test_second_order(session: Session) -> None:
    got = run(
        session,
        {"op": "pow", "in": ["x", 3], "out": ["y"]},
        {"op": "sum", "in": ["y"], "out": ["s"]},
        {"op": "grad", "in": [["s"], ["x"]], "out": ["g"], "attrs": {"create_graph": True}},
        {"op": "sum", "in": ["g"], "out": ["gs"]},
        {"op": "grad", "in": [["gs"], ["x"]], "out": ["h"]},
        fetch("g", "h"),
    )
    assert got == {"g": [3.0, 12.0, 27.0], "h": [6.0, 12.0, 18.0]}


def test_a_value_is_that_of_its_fetch(session: Session) -> None:
    got = run(session, fetch("m"), {"op": "mul_", "in": ["m", 10.0]}, fetch("m"))
    assert got["m"] == [[10.0, 20.0], [30.0, 40.0]]
    body = json_codec.dumps({"instructions": [fetch("m"), {"op": "zero_", "in": ["m"]}]})
    answer = session.run(wire.decode_message(body, wire.JSON).programs[0])
    assert answer.values["m"].array.tolist() == [[10.0, 20.0], [30.0, 40.0]]


def test_numbers_that_json_lacks(session: Session) -> None:
    got = run(session, upload("s", ["NaN", "Infinity", "-Infinity", 1.5]), fetch("s"))
    assert got["s"] == ["NaN", "Infinity", "-Infinity", 1.5]


def test_seeded_sessions_agree() -> None:
    program = ({"op": "randn", "out": ["r"], "attrs": {"size": [4]}}, fetch("r"))
    assert run(Session(seed=3), *program) == run(Session(seed=3), *program)
    assert run(Session(seed=3), *program) != run(Session(seed=4), *program)


def test_a_failure_says_where_and_leaves_what_came_before(session: Session) -> None:
    with pytest.raises(errors.ShapeMismatch, match="must match the size of tensor b") as caught:
        run(
            session,
            {"op": "mul", "in": ["x", 2.0], "out": ["a"]},
            {"op": "add", "in": ["a", "m"], "out": ["b"]},
            {"op": "mul", "in": ["x", 3.0], "out": ["c"]},
        )
    context = caught.value.context
    assert (context["instruction"], context["op"], context["ids"]) == (1, "add", ["a", "m"])
    assert context["shapes"] == {"a": [3], "m": [2, 2]}
    assert "a" in session.tensors
    assert "c" not in session.tensors


FAILURES = {
    "unknown op": ({"op": "mull", "in": ["x", "x"]}, errors.UnknownOp, "did you mean mul"),
    "unknown tensor": ({"op": "mul", "in": ["x", "q"]}, errors.UnknownTensor, "no tensor 'q'"),
    "missing input": ({"op": "mul", "in": ["x"]}, errors.InvalidArgument, "mul"),
    "too many inputs": ({"op": "exp", "in": ["x", "x"]}, errors.InvalidArgument, "exp"),
    "unknown attribute": ({"op": "exp", "in": ["x"], "attrs": {"q": 1}}, errors.InvalidArgument, "q"),
    "attribute of a wrong type": (
        {"op": "sum", "in": ["x"], "attrs": {"dim": "a"}},
        errors.InvalidArgument,
        "must be tuple of ints, not str",
    ),
    "a number for a tensor": ({"op": "matmul", "in": ["m", 3]}, errors.InvalidArgument, "must be Tensor"),
    "a list for a tensor": ({"op": "matmul", "in": ["m", ["m"]]}, errors.InvalidArgument, "must be Tensor"),
    "null for a tensor": ({"op": "matmul", "in": ["m", None]}, errors.InvalidArgument, "must be Tensor"),
    "a tensor for a list": ({"op": "cat", "in": ["m"]}, errors.InvalidArgument, "tuple of Tensors"),
    "too many names": ({"op": "exp", "in": ["x"], "out": ["a", "b"]}, errors.InvalidArgument, "1 outputs"),
    "a taken name": ({"op": "exp", "in": ["x"], "out": ["m"]}, errors.TensorExists, "'m'"),
    "huge": ({"op": "zeros", "attrs": {"size": [2**30, 2**30]}}, errors.TooLarge, "can't allocate memory"),
    "beyond the limit": ({"op": "zeros", "attrs": {"size": [2**20, 2**10]}}, errors.TooLarge, "allocate"),
    "huge by broadcasting": (
        {"op": "ones", "attrs": {"size": [2**62, 2**62]}},
        errors.TooLarge,
        "can't allocate memory",
    ),
    "ragged": (upload("r", [[1], [1, 2]]), errors.InvalidValue, "expected sequence of length"),
    "a word": (upload("r", ["one"]), errors.InvalidArgument, "invalid data type 'str'"),
    "null in data": (upload("r", [None]), errors.InvalidOperation, "dtype of NoneType"),
    "an object": (upload("r", {"a": 1}), errors.InvalidOperation, "dtype of dict"),
    "too long for an integer": (upload("r", [2**70]), errors.InvalidValue, "Overflow"),
    "complex": (upload("r", [1.0], dtype="complex64"), errors.DTypeMismatch, "complex"),
    "integers that require grad": (
        upload("r", [1], dtype="int64", requires_grad=True),
        errors.DTypeMismatch,
        "floating point",
    ),
    "no root": ({"op": "backward", "in": [[]]}, errors.InvalidArgument, "at least one"),
    "untracked root": ({"op": "backward", "in": [["m"]]}, errors.GradRequired, "does not require grad"),
    "an unknown optimizer": (
        {"op": "optim_step", "in": [["x"]], "attrs": {"algorithm": "best"}},
        errors.UnknownOp,
        "known: ",
    ),
    "a leaf in place": ({"op": "mul_", "in": ["x", 2.0]}, errors.InplaceOnLeaf, "a leaf Variable"),
}


@pytest.mark.parametrize(("instruction", "kind", "text"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failing_instruction(
    session: Session, instruction: dict[str, Any], kind: type[errors.TelegradError], text: str
) -> None:
    session.accounts.max_bytes = 2**24
    with pytest.raises(kind, match=text) as caught:
        run(session, instruction)
    assert caught.value.context["instruction"] == 0
    assert run(session, fetch("m"))["m"] == [[1.0, 2.0], [3.0, 4.0]]


MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"{",
    "not UTF-8": b'{"a": "\xff"}',
    "a list of numbers": b"[1]",
    "no instructions": b"{}",
    "an op that is no string": b'[{"op": 1}]',
    "no op": b"[{}]",
    "in that is no list": b'[{"op": "exp", "in": "x"}]',
    "out that is no list": b'[{"op": "exp", "out": "x"}]',
    "attrs that are no object": b'[{"op": "exp", "attrs": []}]',
    "a foreign key": b'[{"op": "exp", "input": ["x"]}]',
    "an input that is an object": b'[{"op": "exp", "in": [{}]}]',
    "inputs nested deeper": b'[{"op": "exp", "in": [[[["x"]]]]}]',
    "an id with a slash": b'[{"op": "exp", "in": ["x"], "out": ["a/b"]}]',
    "an empty id": b'[{"op": "exp", "in": ["x"], "out": [""]}]',
    "an unknown grad_mode": b'[{"op": "exp", "in": ["x"], "grad_mode": "maybe"}]',
    "nested 50,000 deep": b"[" * 50_000,
    "closed 50,000 deep": b"[" * 50_000 + b"]" * 50_000,
    "a bare NaN": b'[{"op": "mul", "in": ["x", NaN]}]',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_program(body: bytes) -> None:
    with pytest.raises(errors.MalformedRequest):
        wire.decode_message(body, wire.JSON)


def test_memory_is_counted_until_the_last_holder_lets_go() -> None:
    session = Session()
    run(session, {"op": "ones", "out": ["a"], "attrs": {"size": [1000]}})
    assert session.accounts.used_bytes == 4000
    run(session, {"op": "requires_grad_", "in": ["a"]}, {"op": "exp", "in": ["a"], "out": ["b"]})
    assert session.accounts.used_bytes == 8000
    run(session, {"op": "mul", "in": ["b", "b"], "out": ["c"]}, {"op": "free", "in": [["b"]]})
    assert session.accounts.used_bytes == 12000, "the graph still needs b"
    run(session, {"op": "sum", "in": ["c"], "out": ["s"]}, {"op": "free", "in": [["c"]]})
    run(session, {"op": "backward", "in": [["s"]]})
    gc.collect()
    assert session.accounts.used_bytes < 9000, "backward freed what it had saved"


def test_memory_is_refused_before_it_is_allocated() -> None:
    session = Session(max_bytes=1000)
    run(session, {"op": "ones", "out": ["a"], "attrs": {"size": [200]}})
    with pytest.raises(errors.TooLarge):
        run(session, {"op": "exp", "in": ["a"], "out": ["b"]})
    with pytest.raises(errors.TooLarge):
        run(session, upload("c", [0.0] * 200))
    run(session, {"op": "free", "in": [["a"]]})
    run(session, upload("c", [0.0] * 200))


def test_programs_travel_in_both_encodings() -> None:
    rest = [{"op": "mul", "in": ["x", 2.0], "out": ["y"]}, fetch("y")]
    text = json_codec.dumps({"instructions": [{"op": "tensor", "out": ["x"]}, *rest]}).decode()
    bodies = {
        wire.JSON: json_codec.dumps({"instructions": [upload("x", [1.0, 2.0], dtype="float64"), *rest]}),
        wire.SAFETENSORS: safetensors.encode({"program": text}, {"x": np.array([1.0, 2.0])}),
    }
    for media_type, body in bodies.items():
        answer = Session().run(wire.decode_message(body, media_type).programs[0])
        assert answer.values["y"].array.tolist() == [2.0, 4.0]
        if media_type == wire.SAFETENSORS:
            got = wire.decode_answer(wire.encode_answer(answer))
            assert got.values["y"].array.dtype == np.float64
            assert got.values["y"].array.tolist() == [2.0, 4.0]
            assert got.values["y"].description["shape"] == [2]


def test_a_view_is_bounded_too(session: Session) -> None:
    with pytest.raises(errors.TooLarge):
        run(session, {"op": "expand", "in": ["x"], "out": ["e"], "attrs": {"size": [2**50, 3]}})


def test_numbers_alone_are_no_operands(session: Session) -> None:
    with pytest.raises(errors.InvalidArgument, match="must be a Tensor"):
        run(session, {"op": "mul", "in": [1, 2]})


# Statistics ----------------------------------------------------------------------------------------------------------


ONES = Instruction("ones", (), ["x"], {"size": [2]})


def test_every_instruction_has_a_family_of_a_fixed_set() -> None:
    names = [name for op in CATALOGUE if not op.private for name in (op.key, op.name, *op.aliases)]
    assert {family_of(name) for name in names} == {"math", "shape", "linalg", "nn", "random"}
    assert family_of("add_") == family_of("add") == "math" and family_of("relu_") == "nn"
    for verb in VERBS:
        assert family_of(verb) == ("function" if verb == "apply" else verb)
    for name in ("", "_", "evil", "evil_", "telegrad_engine.ops.math"):
        assert family_of(name) == "unknown"


def test_what_ran_of_a_program_that_failed() -> None:
    session = Session()
    with pytest.raises(TelegradError):
        session.run([ONES, Instruction("neg", ["nope"], ["y"]), Instruction("neg", ["x"], ["z"])])
    counts = session.statistics.programs["", "interpreted"]
    assert (counts.count, counts.instructions) == (1, 2) and counts.seconds > 0
    assert session.statistics.families == {"shape": 1, "math": 1}


def test_tiers_and_many_programs() -> None:
    memory = ProgramCache()
    session = Session(memory=memory, compiler=Compiler())
    session.source = "test"
    session.run([ONES])
    total = Statistics()
    for number in range(35):
        text = json.dumps([{"op": "mul_", "in": ["_0", number]}, {"op": "relu_", "in": ["_0"]}])
        memory.read(text, None, 64)
        for _ in range(5):
            session.run(memory.find(sha256(text.encode()).hexdigest()).bind(["x"], {}))
    programs = session.statistics.programs
    assert programs["test", "planned"].count > programs["test", "interpreted"].count > 0
    runs = 5 * (35)
    assert sum(each.count for each in programs.values()) == session.programs == runs + 1
    assert sum(each.instructions for each in programs.values()) == session.instructions == 2 * runs + 1
    assert session.statistics.families == {"shape": 1, "math": runs, "nn": runs}
    for _ in range(2):
        total.merge(session.statistics)
    assert total.families == {"shape": 2, "math": 2 * runs, "nn": 2 * runs}
    assert memory.hits == runs and memory.misses == 0 and len(memory) == 35 and memory.nbytes > 0


# Stopped by a deadline, or by another thread -------------------------------------------------------------------------


BIG = {"op": "ones", "out": ["x"], "attrs": {"size": [400, 400]}}


def endless(instructions: int = 20_000) -> list[dict[str, Any]]:
    return [{"op": "matmul", "in": ["x", "x"]}] * instructions


FOREVER_CONDITION = {
    "inputs": ["a"],
    "instructions": [
        {"op": "sum", "in": ["a"], "out": ["s"]},
        {"op": "gt", "in": ["s", -1.0], "out": ["goes_on"]},
    ],
    "outputs": ["goes_on"],
}
FOREVER_BODY = {
    "inputs": ["a"],
    "instructions": [
        {"op": "matmul", "in": ["a", "a"], "out": ["c"]},
        {"op": "sigmoid", "in": ["c"], "out": ["b"]},
    ],
    "outputs": ["b"],
}
FOREVER_STEP = {
    "op": "while_loop",
    "in": [["x"]],
    "out": ["y"],
    "attrs": {"cond": FOREVER_CONDITION, "body": FOREVER_BODY},
}
FOREVER = {"name": "forever", "forward": {"inputs": ["x"], "instructions": [FOREVER_STEP], "outputs": ["y"]}}


def test_a_program_that_takes_too_long_is_stopped_and_the_session_goes_on() -> None:
    session = Session(max_program_s=0.3)
    session.run(parse_program([BIG]))
    with pytest.raises(TimeLimitExceeded, match=r"0\.3 seconds") as caught:
        session.run(parse_program(endless()))
    assert 0 < caught.value.context["instruction"] < 20_000
    assert session.run(parse_program([{"op": "fetch", "in": [["x"]]}])).values["x"].array.shape == (400, 400)


def test_a_loop_that_never_ends_is_stopped() -> None:
    session = Session(max_program_s=0.3)
    session.run(parse_program([{"op": "register_function", "attrs": {"definition": FOREVER}}]))
    session.run(parse_program([BIG]))
    with pytest.raises(TimeLimitExceeded):
        session.run(parse_program([{"op": "apply", "in": [["x"]], "out": ["y"], "attrs": {"function": "forever"}}]))


def test_a_long_backward_pass_is_stopped() -> None:
    token = CancellationToken()
    session = Session(memory=ProgramCache())
    setup = [BIG, {"op": "requires_grad_", "in": ["x"]}]
    steps = [{"op": "mul", "in": [f"y{i}" if i else "x", 1.0], "out": [f"y{i + 1}"]} for i in range(3000)]
    end = [{"op": "sum", "in": ["y3000"], "out": ["s"]}]
    session.run(parse_program([*setup, *steps, *end]))
    started = threading.Event()

    def cancel() -> None:
        started.wait(30)
        token.cancel("enough")

    session.get("y2999").register_hook(lambda grad: started.set())
    thread = threading.Thread(target=cancel)
    thread.start()
    with cancelled_by(token), pytest.raises(Cancelled, match="enough"):
        for _ in range(1000):
            session.run(parse_program([{"op": "backward", "in": [["s"]], "attrs": {"retain_graph": True}}]))
    thread.join()


def test_nothing_runs_under_a_cancelled_token() -> None:
    token = CancellationToken()
    token.cancel("over")
    session = Session()
    with cancelled_by(token), pytest.raises(Cancelled, match="over"):
        session.run(parse_program([BIG]))
    assert not session.tensors
    session.run(parse_program([BIG]))
