"""Random instructions on the tensors of a session: many run, many fail, and all depend on the session's whole state."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from telegrad_engine.errors import TelegradError
from telegrad_engine.program import Instruction
from telegrad_engine.session.session import Session

RECENT = 14
"""Instructions are mostly on so many of the last tensors."""
SWISH: dict[str, Any] = {
    "name": "swish",
    "forward": {
        "inputs": ["x"],
        "instructions": [
            {"op": "sigmoid", "in": ["x"], "out": ["s"]},
            {"op": "mul", "in": ["x", "s"], "out": ["y"]},
        ],
        "outputs": ["y"],
        "saves": ["x", "s"],
    },
    "backward": {
        "inputs": ["x", "s", "g"],
        "instructions": [{"op": "mul", "in": ["g", "s"], "out": ["r"]}],
        "outputs": ["r"],
    },
}
LOOPED: dict[str, Any] = {
    "name": "looped",
    "forward": {
        "inputs": ["x"],
        "instructions": [
            {
                "op": "while_loop",
                "in": [["x"]],
                "out": ["y"],
                "attrs": {
                    "cond": {
                        "inputs": ["c"],
                        "instructions": [
                            {"op": "sum", "in": ["c"], "out": ["t"]},
                            {"op": "lt", "in": ["t", 20.0], "out": ["p"]},
                        ],
                        "outputs": ["p"],
                    },
                    "body": {
                        "inputs": ["c"],
                        "instructions": [
                            {"op": "apply", "in": [["c"]], "out": ["d"], "attrs": {"function": "swish"}},
                            {"op": "add", "in": ["d", 1.5], "out": ["e"]},
                        ],
                        "outputs": ["e"],
                    },
                    "max_iterations": 50,
                },
            }
        ],
        "outputs": ["y"],
    },
}
NOISY: dict[str, Any] = {
    "in": ["a", "b", "k"],
    "instructions": [
        {"op": "mul", "in": ["a", "k"], "out": ["t"]},
        {"op": "add", "in": ["t", "b"], "out": ["r"]},
        {"op": "rand_like", "in": ["r"], "out": ["q"]},
        {"op": "mul", "in": ["r", "q"], "out": ["z"]},
    ],
    "out": ["z"],
}
BINARY = ("add", "mul", "sub", "matmul", "div", "maximum")
UNARY: list[tuple[str, dict[str, Any]]] = [
    *[(name, {}) for name in ("exp", "tanh", "relu", "sigmoid", "neg", "sin", "square", "sum", "contiguous", "clone")],
    *[("softmax", {"dim": -1}), ("log_softmax", {"dim": 0}), ("cumsum", {"dim": 0}), ("mean", {"dim": 0})],
    *[("dropout", {"p": 0.3}), ("rand_like", {}), ("bernoulli", {}), ("clamp", {"min": -1.0, "max": float("inf")})],
    ("to", {"dtype": "float64"}),
]
VIEWS: list[tuple[str, dict[str, Any]]] = [
    ("transpose", {"dim0": 0, "dim1": -1}),
    ("reshape", {"shape": (-1,)}),
    ("expand", {"size": (4, 4)}),
    ("select", {"dim": 0, "index": 1}),
    ("narrow", {"dim": 0, "start": 1, "length": 2}),
    ("view", {"size": (2, -1)}),
    ("as_strided", {"size": (2, 2), "stride": (1, 1)}),
    ("unsqueeze", {"dim": 0}),
    ("diagonal", {}),
    ("detach", {}),
    ("detach", {"shares_version": False}),
    ("alias", {}),
]
IN_PLACE: list[tuple[str, list[Any], dict[str, Any]]] = [
    *[(name, [], {}) for name in ("relu_", "zero_", "exp_", "normal_", "t_", "squeeze_")],
    *[("mul_", [2.0], {}), ("fill_", [1.0], {}), ("div_", [3.0], {}), ("unsqueeze_", [], {"dim": 0})],
    ("clamp_", [], {"min": -2.0, "max": 2.0}),
]


class Programs:
    """An endless random program; equal seeds give equal programs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._made = 0
        self._names: list[str] = []
        self._checkpoints: list[str] = []

    def next(self) -> Instruction:
        """The next instruction."""
        if len(self._names) < 4 or self.random.random() < 0.08:
            return self._upload()
        kinds = [self._binary, self._unary, self._view, self._in_place, self._pass, self._housekeeping, self._scope]
        kind: Callable[[str, str], Instruction] = self.random.choices(kinds, [8, 6, 5, 8, 5, 7, 5])[0]
        instruction = kind(self._any(), self._any())
        instruction.grad_mode = self.random.choice([*[None] * 6, "no_grad", "enable_grad"])
        return instruction

    def _any(self) -> str:
        names = self._names
        return self.random.choice(names[-RECENT:] if self.random.random() < 0.8 else names)

    def _new(self) -> str:
        self._made += 1
        self._names.append(f"x{self._made}")
        return self._names[-1]

    def _upload(self) -> Instruction:
        shape = self.random.choice([(4, 4), (4, 4), (4,), (1, 4)])
        data = np.random.default_rng(self.random.randrange(10**6)).standard_normal(shape).astype(np.float32)
        return Instruction("tensor", [], [self._new()], {"data": data, "requires_grad": self.random.random() < 0.5})

    def _binary(self, a: str, b: str) -> Instruction:
        return Instruction(self.random.choice(BINARY), [a, b], [self._new()])

    def _unary(self, a: str, b: str) -> Instruction:
        op, attrs = self.random.choice(UNARY)
        return Instruction(op, [a], [self._new()], attrs)

    def _view(self, a: str, b: str) -> Instruction:
        op, attrs = self.random.choice(VIEWS)
        return Instruction(op, [a], [self._new()], attrs)

    def _in_place(self, a: str, b: str) -> Instruction:
        if self.random.random() < 0.4:
            return Instruction(self.random.choice(["add_", "sub_", "copy_", "mul_"]), [a, self.random.choice([a, b])])
        op, more, attrs = self.random.choice(IN_PLACE)
        return Instruction(op, [a, *more], [], attrs)

    def _pass(self, a: str, b: str) -> Instruction:
        if self.random.random() < 0.6:
            attrs = {"retain_graph": self.random.random() < 0.6, "create_graph": self.random.random() < 0.2}
            return Instruction("backward", [(a,)], [], attrs)
        attrs = {"allow_unused": True, "create_graph": self.random.random() < 0.5, "retain_graph": True}
        return Instruction("grad", [(a,), (b,)], [self._new()], attrs)

    def _housekeeping(self, a: str, b: str) -> Instruction:
        data = np.ones((4, 4), np.float32) * self.random.random()
        return self.random.choice(
            [
                lambda: Instruction("retain_grad", [a]),
                lambda: Instruction("detach_", [a]),
                lambda: Instruction("requires_grad_", [a], [], {"requires_grad": self.random.random() < 0.6}),
                lambda: Instruction("zero_grad", [(a, b)], [], {"set_to_none": self.random.random() < 0.5}),
                lambda: Instruction("grad_of", [a], [self._new()]),
                lambda: Instruction("set_grad", [a, b]),
                lambda: Instruction("optim_step", [(a,)], [], {"algorithm": "sgd", "settings": {"lr": 0.1}}),
                lambda: Instruction("set_data", [a], [], {"data": data}),
                lambda: Instruction("share_data", [a, b]),
                lambda: Instruction("fetch", [(a, b)]),
                lambda: self._free(a),
            ]
        )()

    def _free(self, a: str) -> Instruction:
        if len(self._names) > 8:
            self._names.remove(a)
            return Instruction("free", [(a,)])
        return Instruction("fetch", [(a,)])

    def _scope(self, a: str, b: str) -> Instruction:
        return self.random.choice(
            [
                lambda: Instruction("chunk", [a], [self._new(), self._new()], {"chunks": 2}),
                lambda: Instruction("register_function", [], [], {"definition": self.random.choice([SWISH, LOOPED])}),
                lambda: Instruction("apply", [(a,)], [self._new()], {"function": "swish"}),
                lambda: Instruction("apply", [(a,)], [self._new()], {"function": "looped"}),
                lambda: Instruction("define", [], [], {"name": "noisy", "program": NOISY}),
                lambda: Instruction("call", [(a, b, 1.5)], [self._new()], {"name": "noisy"}),
                lambda: self._checkpoint(a),
                lambda: self._end_checkpoint(),
            ]
        )()

    def _checkpoint(self, a: str) -> Instruction:
        self._made += 1
        self._checkpoints.append(f"c{self._made}")
        return Instruction("checkpoint", [(a,)], [], {"checkpoint": self._checkpoints[-1]})

    def _end_checkpoint(self) -> Instruction:
        name = self._checkpoints.pop() if self._checkpoints else "none"
        return Instruction("end_checkpoint", [], [], {"checkpoint": name})


def outcome(session: Session, instruction: Instruction) -> Any:
    """What an instruction gives in a session, or how it fails, in a form that can be compared."""
    i = instruction
    try:
        values = session.run([Instruction(i.op, i.inputs, i.outputs, i.attrs, i.grad_mode)]).values
    except TelegradError as error:
        return type(error), str(error), dict(error.context)
    return {
        name: (value.description, None if value.array is None else value.array.tobytes())
        for name, value in values.items()
    }


def run(session: Session, *instructions: tuple[Any, ...]) -> Any:
    """Run a program of the instructions with these arguments, and return what it fetched."""
    return session.run([Instruction(*i) for i in instructions]).values


def value(session: Session, name: str) -> Any:
    """Return the array of a tensor."""
    return run(session, ("fetch", [(name,)]))[name].array
