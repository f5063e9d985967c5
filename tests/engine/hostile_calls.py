"""Calls of every op that a client may name, with arguments of the right kinds and hostile values.

As a script it makes so many calls of each op, in a process whose memory is limited, and prints those that failed for
a reason that no rule foresaw: ``python -m tests.engine.hostile_calls SEED CALLS``.

Internals: which parameters have a default is read from the declarations of the ops.
"""

from __future__ import annotations

import logging
import random
import resource
import sys
from typing import Any

import numpy as np

from telegrad_engine.errors import TelegradError
from telegrad_engine.program import Instruction
from telegrad_engine.schema import parameters as params
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.schema.signature import REQUIRED
from telegrad_engine.session.session import Session

ADDRESS_SPACE = 6 * 2**30
SESSION_BYTES = 64 * 2**20
FLOATS = {
    "scalar": np.float32(2.0),
    "vector": np.float32([1, 2, 3]),
    "matrix": np.float32([[1, 2, 3], [4, 5, 6]]),
    "square": np.float32([[1, 2], [3, 4]]),
    "symmetric": np.float64([[2.0, 1], [1, 3]]),
    "signal": np.ones((2, 3, 4), np.float32),
    "image": np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4),
    "volume": np.ones((1, 2, 3, 3, 3), np.float32),
    "special": np.float32([np.nan, np.inf, -np.inf]),
    "rows_of_nothing": np.zeros((2, 0), np.float32),
    "no_rows": np.zeros((0, 3), np.float32),
}
OTHERS = {
    "index": np.array([0, 1, 2]),
    "indices": np.array([[0, 1, 1], [1, 0, 5]]),
    "number": np.int64(-3),
    "far": np.array([2**62, -(2**63), 7]),
    "bytes": np.uint8([1, 2, 3]),
    "mask": np.array([True, False, True]),
}
TENSORS: dict[str, Any] = {**FLOATS, **OTHERS}
NAMES = list(TENSORS)
INTS = [0, 1, 2, 3, -1, -2, -3, 4, 5, 7, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), -(2**31)]
NUMBERS = [0, 1, -1, 2, 0.5, -0.5, 1e-3, 3, 10, 1e30, float("nan"), float("inf"), -float("inf"), 2**62, True, False]
WORDS = (  # noqa: SIM905  # a list would have a line a word
    "mean sum none max fro nuc constant reflect replicate circular nearest bilinear bicubic linear trilinear area "
    "zeros border floor trunc tanh relu same valid cpu ij xy ij,jk ii ...i->i i,i abc-> prod amax amin left right "
    "reduced complete lower"
).split(" ")
DTYPES = ["float32", "float64", "int64", "bool", "uint8", "float16", "bfloat16"]


class Caller:
    """Draws arguments, and makes calls in a session of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.session = self.fresh()

    def fresh(self) -> Session:
        """A session with the tensors that calls are made with."""
        session = Session(max_bytes=SESSION_BYTES)
        attrs = {
            name: {"data": array, "requires_grad": name in FLOATS and self.rng.random() < 0.5}
            for name, array in TENSORS.items()
        }
        session.run([Instruction("tensor", [], [name], each) for name, each in attrs.items()])
        self.changed = False
        return session

    def call(self, op: Op) -> Instruction:
        """Call an op, and differentiate what comes out. Raises what it raises."""
        if self.changed:
            self.session = self.fresh()
        rng = self.rng
        given = [p for p in op.tensor_params if p.default is REQUIRED or rng.random() < 0.5]
        inputs = [self.tensor(p.kind) if p in given else None for p in op.tensor_params]
        attrs = {p.name: self.value(p.kind) for p in op.attr_params if p.default is REQUIRED or rng.random() < 0.6}
        self.changed = op.inplace and rng.random() < 0.3
        instruction = Instruction(
            op.key + "_" * self.changed, inputs, None, {k: v for k, v in attrs.items() if v is not None}
        )
        self.session.run([instruction])
        self.differentiate(instruction.outputs)
        return instruction

    def differentiate(self, outputs: list[Any]) -> None:
        """Run backward from the first of the outputs that requires grad, and free them all."""
        made = [name for name in outputs if name is not None]
        try:
            for name in made:
                if self.session.tensors[name].requires_grad:
                    self.session.run([Instruction("sum", [name], ["loss"]), Instruction("backward", [("loss",)])])
                    break
        finally:
            self.session.run([Instruction("free", [tuple(made) + ("loss",) * ("loss" in self.session.tensors)])])

    def tensor(self, kind: params.Kind) -> Any:
        """A tensor's name, a number or a list of names."""
        if isinstance(kind, params.OperandKind) and self.rng.random() < 0.2:
            return self.rng.choice(NUMBERS)
        if isinstance(kind, params.TensorListKind):
            return tuple(self.rng.choice(NAMES) for _ in range(self.rng.randint(0, 3)))
        return self.rng.choice(NAMES)

    def value(self, kind: params.Kind) -> Any:
        """A value of a kind: of the right type, however senseless."""
        rng = self.rng
        takes_word = isinstance(kind, (params.IntsOrStrKind, params.NumberOrStrKind))
        if isinstance(kind, params.StrKind) or (takes_word and rng.random() < 0.3):
            return rng.choice(WORDS)
        if isinstance(kind, params.IntsKind):
            count = rng.choice([0, 1, 1, 2, 2, 2, 3, 4, 5])
            return tuple(rng.choice(INTS) if rng.random() < 0.4 else rng.randint(-2, 4) for _ in range(count))
        if isinstance(kind, params.IntKind):
            return rng.choice(INTS) if rng.random() < 0.5 else rng.randint(-2, 4)
        if isinstance(kind, params.NumberKind):
            return rng.choice(NUMBERS)
        if isinstance(kind, params.BoolKind):
            return rng.random() < 0.5
        if isinstance(kind, params.DTypeKind):
            return rng.choice(DTYPES)
        if isinstance(kind, params.ListKind):
            return tuple(self.item() for _ in range(rng.randint(0, 4)))
        return None

    def item(self, depth: int = 0) -> Any:
        """A part of an index, or something like it."""
        rng = self.rng
        bounds = [None, 0, 1, -1, 2, 2**40, -(2**40)]
        drawn = rng.randrange(6)
        if drawn == 0 and depth < 2:
            return tuple(self.item(depth + 1) for _ in range(rng.randint(0, 3)))
        if drawn == 1:
            return ("slice", *[rng.choice(bounds) for _ in range(rng.choice([3, 3, 2, 4]))])
        return rng.choice([None, "...", "a", True, 1.5, *INTS])


def run(seed: int, calls: int) -> tuple[int, list[str]]:
    """How many calls succeeded, and what failed for a reason that no rule foresaw."""
    faults: list[str] = []

    class Unforeseen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert record.exc_info is not None
            faults.append(f"{op.key}: {record.exc_info[1]!r:.200}")

    logger = logging.getLogger("telegrad_engine.session")
    logger.addHandler(Unforeseen())
    logger.propagate = False
    caller, succeeded = Caller(seed), 0
    for op in CATALOGUE:
        for _ in range(0 if op.private else calls):
            try:
                caller.call(op)
                succeeded += 1
            except TelegradError:
                pass
            except Exception as error:
                faults.append(f"{op.key}: raised {error!r:.200}")
    return succeeded, sorted(set(faults))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    succeeded, faults = run(*map(int, sys.argv[1:]))
    print(*faults, f"{succeeded} calls succeeded", sep="\n")
    sys.exit(bool(faults))
