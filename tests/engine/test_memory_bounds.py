"""What programs leave in memory is bounded, however many there are and whatever they run on.

``TELEGRAD_SOAK_LOOPS=3000 pytest tests/engine/test_memory_bounds.py`` runs more of them.

Internals: a session's host sets these bounds.
"""

from __future__ import annotations

import gc
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from telegrad_engine.compile import Compiler
from telegrad_engine.program import json_codec
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.session.session import Session

pytestmark = pytest.mark.full

MIB = 2**20
STEPS, RUNS, SIZES = 20, 4, 40


def program(number: float) -> str:
    """The text of a small loop's program, which is another for each number."""
    instructions: list[dict[str, Any]] = [{"op": "tensor", "out": ["_0"], "attrs": {"requires_grad": True}}]
    for i in range(STEPS):
        inputs = [f"_{i}", number] if i % 2 else [f"_{i}"]
        instructions.append({"op": "mul" if i % 2 else "sin", "in": inputs, "out": [f"_{i + 1}"]})
    instructions.append({"op": "sum", "in": [f"_{STEPS}"], "out": [f"_{STEPS + 1}"]})
    instructions.append({"op": "backward", "in": [[f"_{STEPS + 1}"]]})
    instructions.append({"op": "free", "in": [[f"_{i}" for i in range(STEPS + 2)]]})
    return json_codec.dumps({"instructions": instructions}).decode()


def run(session: Session, number: float, sizes: list[int]) -> None:
    remembered = session.memory.find(session.memory.read(program(number), None, 64).digest)
    for size in sizes:
        arrays = {"_0": np.ones(size, np.float32)}
        session.run(remembered.bind([f"x{i}" for i in range(STEPS + 2)], arrays))


@pytest.fixture
def grown() -> Iterator[Callable[[], int]]:
    """How many bytes more there are than at the first call, garbage left out."""
    tracemalloc.start()
    yield lambda: gc.collect() * 0 + tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_many_different_programs_take_no_more_than_is_granted(grown: Callable[[], int]) -> None:
    session = Session(memory=ProgramCache(10**6, MIB), compiler=Compiler(2, 10**6, choose=False, most_bytes=MIB))
    run(session, 0.5, [4] * RUNS)
    before = grown()
    for number in range(120):  # without bounds they take 12 MiB
        run(session, float(number), [4] * RUNS)
    assert grown() - before < 3 * MIB


def test_a_program_on_tensors_of_many_sizes_counts_with_all_of_them(grown: Callable[[], int]) -> None:
    memory = ProgramCache(10**6, 4 * MIB)
    session = Session(memory=memory)
    sizes = [size for size in range(1, SIZES) for _ in range(2)]
    run(session, 0.5, sizes)
    before = grown()
    for number in range(5):  # each of them takes 2.5 MiB
        run(session, float(number), sizes)
    assert grown() - before < 8 * MIB


# Many loops ----------------------------------------------------------------------------------------------------------


LOOPS = int(os.environ.get("TELEGRAD_SOAK_LOOPS", "60"))
PROGRAMS = max(6, LOOPS // 10)
ROUNDS = 4


def _loop(number: int) -> str:
    """A program that no other loop has."""
    step: list[dict[str, Any]] = [
        {"op": "mul", "in": ["_0", 1.0 + number], "out": ["_1"]},
        *[{"op": "sin", "in": [f"_{i}"], "out": [f"_{i + 1}"]} for i in range(1, 20)],
        {"op": "sum", "in": ["_20"], "out": ["_21"]},
        {"op": "free", "in": [[f"_{i}" for i in range(1, 22)]]},
    ]
    return json.dumps({"instructions": step})


@pytest.mark.full
def test_different_loops_end_where_they_were() -> None:
    memory = ProgramCache(PROGRAMS)
    compiler = Compiler(2, PROGRAMS)
    taken: list[int] = []
    tracemalloc.start()
    try:
        for number in range(LOOPS):
            session = Session(memory=memory, compiler=compiler)
            session.run_instructions([])
            session.run(
                memory.read(
                    json.dumps({"instructions": [{"op": "ones", "out": ["_0"], "attrs": {"size": [8]}}]}), None, 64
                ).bind(["x"], {})
            )
            program = memory.find(memory.read(_loop(number), None, 64).digest)
            for round in range(ROUNDS):
                session.run(program.bind(["x", *[f"y{round}_{i}" for i in range(21)]], {}))
            if number % (LOOPS // 4) == LOOPS // 4 - 1:
                del session, program
                gc.collect()
                taken.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # The first quarter fills what is remembered.
    assert taken[3] < 1.1 * taken[1] + 2**18, taken
