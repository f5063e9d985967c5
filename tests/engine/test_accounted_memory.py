"""What a session holds takes no more memory than is on its account, whatever it holds.

Internals: the account of a session is compared with the memory of the process.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from telegrad_engine.errors import LimitExceeded, TooLarge
from telegrad_engine.program import parse_program
from telegrad_engine.session.session import Session

MIB = 2**20
COUNT = 60_000
RATIO, BASE = 1.3, 8 * MIB
"""What a session may take of what is on its account, and what the process takes for itself meanwhile."""
Instructions = list[dict[str, Any]]


def op(name: str, inputs: list[Any], out: str, **attrs: Any) -> dict[str, Any]:
    return {"op": name, "in": inputs, "out": [out], "attrs": attrs}


def ones(out: str, size: int = 1) -> dict[str, Any]:
    return op("ones", [], out, size=[size])


def chain(number: int, name: str, **attrs: Any) -> Instructions:
    """An op on the result of the last one, whose name is freed: only the graph keeps it, if anything does."""
    last = f"y{number - 1}" if number else "x"
    free = [{"op": "free", "in": [[last]]}] if number else []
    return [op(name, [last], f"y{number}", **attrs), *free]


def gradients(number: int) -> Instructions:
    """A leaf with a gradient."""
    leaf, loss = f"y{number}", f"z{number}"
    grad = [{"op": "requires_grad_", "in": [leaf]}, op("mul", [leaf, 2.0], loss), {"op": "backward", "in": [[loss]]}]
    return [ones(leaf), *grad, {"op": "free", "in": [[loss]]}]


WAYS: dict[str, Callable[[int], Instructions]] = {
    "tensors": lambda number: [ones(f"y{number}")],
    "tensors with long names": lambda number: [ones(f"{'n' * 100}{number}")],
    "tensors of a kilobyte": lambda number: [ones(f"y{number}", 256)],
    "a graph that saves tensors": lambda number: chain(number, "sin"),
    "a graph that saves nothing": lambda number: chain(number, "neg"),
    "a graph of views": lambda number: chain(number, "squeeze" if number % 2 else "unsqueeze", dim=0),
    "a graph with names": lambda number: [op("mul", [f"y{number - 1}" if number else "x", "x"], f"y{number}")],
    "views with names": lambda number: [op("unsqueeze", ["x"], f"y{number}", dim=0)],
    "gradients": gradients,
    "in-place changes": lambda number: [{"op": "mul_", "in": ["w", "x"]}],
}
PREPARED: Instructions = [ones("x"), {"op": "requires_grad_", "in": ["x"]}, op("add", ["x", 1.0], "w")]


def profile(session: Session) -> None:
    session.run(parse_program([{"op": "start_profile", "attrs": {"record_shapes": True}}]))
    for _ in range(COUNT // 500):
        session.run(parse_program([op("add_", ["w", 1.0], "w") | {"out": []}] * 500))


def functions(session: Session) -> None:
    for number in range(6):
        steps = [op("add", [f"t{i - 1}" if i else "x", 1.0], f"t{i}") for i in range(9000)]
        forward = {"inputs": ["x"], "instructions": steps, "outputs": ["t8999"]}
        definition = {"name": f"f{number}", "forward": forward}
        session.run(parse_program([{"op": "register_function", "attrs": {"definition": definition}}]))


OTHERS: dict[str, Callable[[Session], None]] = {"a profile": profile, "functions": functions}


def fill(session: Session, way: str, count: int = COUNT) -> None:
    """Fill a session in a way."""
    session.run(parse_program(PREPARED))
    if way in OTHERS:
        OTHERS[way](session)
        return
    for program in programs(way, count):
        session.run(parse_program(program))


def programs(way: str, count: int) -> Iterator[Instructions]:
    for start in range(0, count, 200):
        yield [instruction for number in range(start, start + 200) for instruction in WAYS[way](number)]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(way: str) -> None:
    """Print the bytes that a session takes which is filled in this way, and those on its account."""
    session = Session(max_bytes=2**40)
    fill(session, "gradients" if way in OTHERS else way, 200)
    before, counted = resident(), session.accounts.total_bytes
    session = Session(max_bytes=2**40)
    fill(session, way)
    session.run([])
    gc.collect()
    print(resident() - before, session.accounts.total_bytes - counted)
    sys.stdout.flush()
    os._exit(0)


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("way", [*WAYS, *OTHERS])
def test_memory_is_at_most_what_is_on_the_account(way: str) -> None:
    command = [sys.executable, "-m", __name__, way]
    taken, counted = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert taken < RATIO * counted + BASE, f"{taken / MIB:.0f} MiB for {counted / MIB:.0f} on the account"
    assert counted < 5 * taken + BASE, "much more is on the account than is taken"


@pytest.mark.parametrize("way", WAYS)
def test_a_session_is_full_in_time_however_small_the_things_that_it_holds(way: str) -> None:
    session = Session(max_bytes=4 * MIB)
    with pytest.raises(TooLarge):
        fill(session, way, 100_000)
    assert session.accounts.total_bytes < 64 * MIB


def test_functions_fill_a_session() -> None:
    session = Session(max_bytes=8 * MIB)
    definition = {
        "name": "f",
        "forward": {
            "inputs": ["x"],
            "instructions": [op("neg", ["x"], f"t{i}") for i in range(9000)],
            "outputs": ["t0"],
        },
    }
    with pytest.raises((TooLarge, LimitExceeded), match="8388608"):
        for number in range(3):
            definition["name"] = f"f{number}"
            session.run(parse_program([{"op": "register_function", "attrs": {"definition": definition}}]))


if __name__ == "__main__":
    measure(sys.argv[1])
