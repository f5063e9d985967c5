"""A server that runs ever other loops comes to an end of what it remembers of them.

``TELEGRAD_SOAK_LOOPS=3000 pytest tests/engine/test_soak.py`` runs more of them.

Internals: a session knows its programs by this cache, as a server's does.
"""

from __future__ import annotations

import gc
import json
import os
import tracemalloc
from typing import Any

import pytest

from telegrad_engine.compile import Compiler
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.session.session import Session

pytestmark = pytest.mark.full

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
