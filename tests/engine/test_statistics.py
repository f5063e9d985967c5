"""What a session counts of the programs that it runs.

Internals: the counts are read by the server, and are not part of the SDK.
"""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from telegrad_engine.compile import Compiler
from telegrad_engine.errors import TelegradError
from telegrad_engine.program import VERBS, Instruction
from telegrad_engine.program.program import ProgramCache
from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.session.session import Session
from telegrad_engine.session.statistics import Statistics, family_of

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
