"""Example programs of the instructions that are no ops. Each runs in a session, and frees what it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .markdown import compact

Instruction = dict[str, Any]


def do(op: str, inputs: Sequence[Any] = (), outputs: Sequence[str] = (), **attrs: Any) -> Instruction:
    """An instruction without its empty members."""
    members = {"inputs": list(inputs), "outputs": list(outputs), "attrs": attrs}
    return {"op": op, **{name: value for name, value in members.items() if value}}


def leaf(name: str, data: Any) -> Instruction:
    """A tensor that requires grad."""
    return do("tensor", outputs=[name], data=data, requires_grad=True)


def data(name: str, values: Any) -> Instruction:
    """A tensor."""
    return do("tensor", outputs=[name], data=values)


def fetch(*names: str) -> Instruction:
    """Tensors in the answer."""
    return do("fetch", [list(names)])


X = leaf("x", [1.5, 2.5])
LOSS = [do("mul", ["x", "x"], ["y"]), do("sum", ["y"], ["loss"])]
BACKWARD = do("backward", [["loss"]])
RANDOM = [
    do("manual_seed", seed=7),
    do("get_rng_state", outputs=["state"]),
    do("rand", outputs=["first"], size=[2]),
    do("set_rng_state", ["state"]),
    do("rand", outputs=["again"], size=[2]),
    fetch("first", "again"),
]
PROFILE = [
    do("start_profile", record_shapes=True),
    do("begin_range", name="forward"),
    data("x", [1.5, 2.5]),
    do("exp", ["x"], ["y"]),
    do("end_range"),
    do("stop_profile"),
]
HOOK = [
    X,
    do("mul", ["x", 2], ["y"]),
    do("client_hook", ["y"], hook="on-y"),
    do("sum", ["y"], ["loss"]),
    do("backward", [["loss"]], ["g"], next_call="c1", next_ctx="on-y"),
    do("mul", ["g", 0.5], ["smaller"]),
    do("resume", [["smaller"]], call="c1"),
    do("grad_of", ["x"], ["dx"]),
    fetch("dx"),
    do("remove_client_hook", hook="on-y"),
]
CHECKPOINT = [
    X,
    do("checkpoint", [["x"]], checkpoint="c"),
    do("exp", ["x"], ["y"]),
    do("sin", ["y"], ["z"]),
    do("end_checkpoint", checkpoint="c"),
    do("sum", ["z"], ["loss"]),
    BACKWARD,
]
PROCEDURE = [
    do(
        "define",
        name="affine",
        program={
            "inputs": ["x", "slope"],
            "instructions": [do("mul", ["x", "slope"], ["p"]), do("add", ["p", 1], ["y"])],
            "outputs": ["y"],
        },
    ),
    data("x", [1.5, 2.5]),
    do("call", [["x", 3.0]], ["y"], name="affine"),
    fetch("y"),
    do("undefine", name="affine"),
]
FUNCTION = [
    do(
        "register_function",
        definition={
            "name": "twice",
            "forward": {"inputs": ["x"], "instructions": [do("mul", ["x", 2], ["y"])], "outputs": ["y"]},
            "backward": {"inputs": ["grad"], "instructions": [do("mul", ["grad", 2], ["dx"])], "outputs": ["dx"]},
        },
    ),
    X,
    do("apply", [["x"]], ["y"], function="twice"),
    fetch("y"),
    do("remove_function", name="twice"),
]
EXAMPLES: dict[str, list[Instruction]] = {
    "tensor": [do("tensor", outputs=["x"], data=[[1, 2], [3, 4]], dtype="float32", requires_grad=True), fetch("x")],
    "set_data": [data("x", [1.5, 2.5]), do("set_data", ["x"], data=[3.5, 4.5]), fetch("x")],
    "share_data": [data("x", [1.5, 2.5]), data("y", [0.5]), do("share_data", ["y", "x"]), fetch("y")],
    "free": [data("x", [1.5]), data("y", [2.5]), do("free", [["x", "y"]])],
    "fetch": [X, *LOSS, fetch("y", "loss")],
    "alias": [data("x", [1.5, 2.5]), do("alias", ["x"], ["same"]), fetch("same")],
    "gradient_edge": [X, *LOSS, do("gradient_edge", ["y"], ["edge"]), do("grad", [["loss"], ["edge"]], ["g"])],
    "refresh": [
        X,
        do("mul", ["x", 2], ["base"]),
        do("select", ["base"], ["view"], dim=0, index=0),
        do("mul_", ["base", 3]),
        do("refresh", ["view"]),
    ],
    "detach": [X, do("detach", ["x"], ["constant"]), fetch("constant")],
    "detach_": [X, do("mul", ["x", 2], ["y"]), do("detach_", ["y"]), fetch("y")],
    "requires_grad_": [data("x", [1.5, 2.5]), do("requires_grad_", ["x"]), fetch("x")],
    "manual_seed": [do("manual_seed", seed=7), do("rand", outputs=["x"], size=[2]), fetch("x")],
    "get_rng_state": RANDOM,
    "set_rng_state": RANDOM,
    "set_default_dtype": [
        do("set_default_dtype", dtype="float64"),
        data("x", [1.5]),
        fetch("x"),
        do("set_default_dtype", dtype="float32"),
    ],
    "backward": [X, *LOSS, BACKWARD, do("grad_of", ["x"], ["dx"]), fetch("dx")],
    "grad": [X, *LOSS, do("grad", [["loss"], ["x"]], ["dx"]), fetch("dx")],
    "grad_of": [X, *LOSS, BACKWARD, do("grad_of", ["x"], ["dx"]), fetch("loss", "dx")],
    "set_grad": [X, data("g", [0.5, 0.5]), do("set_grad", ["x", "g"]), do("grad_of", ["x"], ["dx"]), fetch("dx")],
    "zero_grad": [X, *LOSS, BACKWARD, do("zero_grad", [["x"]])],
    "retain_grad": [X, LOSS[0], do("retain_grad", ["y"]), LOSS[1], BACKWARD, do("grad_of", ["y"], ["dy"]), fetch("dy")],
    "optim_step": [
        X,
        do("zeros_like", ["x"], ["momentum"]),
        do("zeros", outputs=["t"], size=[]),
        *LOSS,
        BACKWARD,
        do(
            "optim_step",
            [["x"], [["momentum"], ["t"]]],
            algorithm="sgd_momentum",
            settings={"lr": 0.1, "momentum": 0.9},
        ),
        do("zero_grad", [["x"]]),
        fetch("x"),
    ],
    **dict.fromkeys(("start_profile", "stop_profile", "begin_range", "end_range"), PROFILE),
    "client_function": [
        X,
        do("detach", ["x"], ["inside"]),
        do("exp", ["inside"], ["y"]),
        do("client_function", [["x"], ["y"]], function="MyExp", ctx="my-exp"),
        do("sum", ["y"], ["loss"]),
        do("backward", [["loss"]], ["g"], next_call="c1", next_ctx="my-exp"),
        do("mul", ["g", "y"], ["dx"]),
        do("resume", [["dx"]], call="c1"),
    ],
    **dict.fromkeys(("client_hook", "remove_client_hook", "resume"), HOOK),
    "client_node_hook": [X, *LOSS, do("client_node_hook", ["loss"], hook="on-mul", path=[0])],
    "cancel": [
        X,
        do("mul", ["x", 2], ["y"]),
        do("client_hook", ["y"], hook="on-y"),
        do("sum", ["y"], ["loss"]),
        do("backward", [["loss"]], ["g"], next_call="c1", next_ctx="on-y"),
        do("cancel", call="c1"),
    ],
    "checkpoint": CHECKPOINT,
    "end_checkpoint": CHECKPOINT,
    "save_results": [
        X,
        do("checkpoint", [["x"]], checkpoint="c", selective=True),
        do("exp", ["x"], ["y"]),
        do("save_results", [["y"]], checkpoint="c"),
        do("sin", ["y"], ["z"]),
        do("end_checkpoint", checkpoint="c"),
        do("sum", ["z"], ["loss"]),
        BACKWARD,
    ],
    **dict.fromkeys(("define", "call", "undefine"), PROCEDURE),
    **dict.fromkeys(("register_function", "apply", "remove_function"), FUNCTION),
}


def example_program(verb: str) -> str:
    """A command that runs the example of a verb and frees what is left of it."""
    program = EXAMPLES[verb]
    freed = {name for each in program if each["op"] == "free" for name in each["inputs"][0]}
    made = [name for each in program for name in each.get("outputs", ()) if name not in freed]
    lines = ",\n  ".join(compact(each) for each in [*program, *([do("free", [made])] if made else [])])
    return f"curl $programs --json '{{\"instructions\": [\n  {lines}\n]}}'"
