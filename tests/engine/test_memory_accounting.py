"""What an op takes is what it declares, and is granted before; what a session holds is on its account.

Internals: the memory of a process is granted by this object, which sessions share, and the account of a session is
compared with the memory of the process.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telegrad_engine.errors import LimitExceeded, TooLarge
from telegrad_engine.program import parse_program
from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.session.memory_accounting import Quota
from telegrad_engine.session.session import Session
from telegrad_engine.shapes import Spec

MIB = 2**20
# Sessions ------------------------------------------------------------------------------------------------


def run(session: Session, *instructions: dict[str, Any]) -> Any:
    return session.run(parse_program(list(instructions)))


def peak(function: Callable[[], object]) -> int:
    """Bytes that NumPy and Python allocated at most beside what there was."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def zeros(name: str, *size: int, **attrs: Any) -> dict[str, Any]:
    return {"op": "zeros", "out": [name], "attrs": {"size": [*size], **attrs}}


def op(name: str, inputs: list[Any], out: str = "y", **attrs: Any) -> dict[str, Any]:
    return {"op": name, "in": inputs, "out": [out], "attrs": attrs}


def wide(name: str, *shape: int) -> list[dict[str, Any]]:
    """A view of one number that stands for many."""
    return [zeros("one", 1), op("expand", ["one"], name, size=[*shape])]


GREEDY: dict[str, list[dict[str, Any]]] = {
    "adaptive_avg_pool2d without columns": [
        zeros("x", 1, 1, 2, 2),
        op("adaptive_avg_pool2d", ["x"], output_size=[2**31, 0]),
    ],
    "conv2d of much padding": [
        zeros("x", 1, 1, 8, 8),
        zeros("w", 1, 1, 2, 2),
        op("conv2d", ["x", "w", None], padding=[5000, 5000]),
    ],
    "attention with dropout": [
        zeros("q", 8, 8192, 1),
        op("scaled_dot_product_attention", ["q", "q", "q", None], dropout_p=0.5),
    ],
    "combinations": [zeros("x", 15_000), op("combinations", ["x"])],
    "more combinations": [zeros("x", 15_000), op("combinations", ["x"], r=7_500)],
    "svd": [zeros("x", 20_000, 2), {"op": "linalg_svd", "in": ["x"], "attrs": {"full_matrices": True}}],
    "norm of a view": [*wide("x", 2**28), op("norm", ["x"])],
    "std of a view": [*wide("x", 2**28), op("std", ["x"])],
    "logsumexp of a view": [*wide("x", 2**28), op("logsumexp", ["x"], dim=[0])],
    "mse_loss of a view": [*wide("x", 2**28), op("mse_loss", ["x", "one"])],
    "l1_loss of a broadcast": [zeros("x", 2**15, 1), zeros("t", 2**15), op("l1_loss", ["x", "t"])],
    "unique of a view": [*wide("x", 2**27), op("unique", ["x"])],
    "block_diag": [zeros("x", 4096, 4096), op("block_diag", [["x"] * 3])],
    "randperm": [op("randperm", [], n=2**27)],
    "grid_sample": [
        zeros("x", 1, 1, 4, 4),
        zeros("g", 1, 4096, 4096, 2),
        op("grid_sample", ["x", "g"], mode="bicubic"),
    ],
    "reshape of a view": [
        *wide("x", 2**14, 2**14),
        op("transpose", ["x"], "t", dim0=0, dim1=1),
        op("reshape", ["t"], shape=[-1]),
    ],
    "names": [*wide("x", 2**20), {"op": "unbind", "in": ["x"]}],
}


@pytest.mark.parametrize("name", GREEDY)
def test_what_there_is_no_room_for_is_refused_before_it_is_allocated(name: str) -> None:
    session = Session(max_bytes=512 * MIB)

    def refused() -> None:
        with pytest.raises(TooLarge):
            run(session, *GREEDY[name])

    assert peak(refused) < 640 * MIB
    run(session, zeros("usable", 3))


def test_indices_of_no_elements_take_no_memory() -> None:
    session = Session()
    assert peak(lambda: run(session, op("tril_indices", [], row=2**31, col=0))) < MIB
    assert session.get("y").shape == (2, 0)


def test_a_process_has_a_limit_of_its_own() -> None:
    process = Quota(64 * MIB, lambda limit, nbytes: TooLarge(f"{nbytes} more, {limit} together"))
    first, second = (Session(max_bytes=48 * MIB, quota=process) for _ in range(2))
    run(first, zeros("x", 10, MIB))
    with pytest.raises(TooLarge, match="together"):
        run(second, zeros("x", 10, MIB))
    run(first, {"op": "free", "in": [["x"]]})
    run(second, zeros("x", 10, MIB))
    assert 40 * MIB <= process.used < 41 * MIB
    del second
    assert process.used < MIB


SAVING: dict[str, list[dict[str, Any]]] = {
    "cross_entropy": [
        {"op": "zeros", "out": ["t"], "attrs": {"size": [1024], "dtype": "int64"}},
        op("cross_entropy", ["x", "t"]),
    ],
    "dropout": [op("dropout", ["x"], p=0.5), op("sum", ["y"], "z")],
    "cosine_similarity": [op("cosine_similarity", ["x", "x"])],
    "cdist": [op("narrow", ["x"], "few", dim=0, start=0, length=64), op("cdist", ["few", "few"])],
    "scaled_dot_product_attention": [op("scaled_dot_product_attention", ["x", "x", "x", None])],
}


@pytest.mark.parametrize("name", SAVING)
def test_what_the_graph_keeps_is_on_the_account(name: str) -> None:
    session = Session()
    run(session, {"op": "randn", "out": ["x"], "attrs": {"size": [1024, 256]}}, {"op": "requires_grad_", "in": ["x"]})
    before = session.accounts.used_bytes
    tracemalloc.start()
    try:
        run(session, *SAVING[name])
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert session.accounts.used_bytes - before >= 0.9 * kept - 2**16
    run(session, {"op": "free", "in": [[each for each in session.tensors if each != "x"]]})
    assert session.accounts.used_bytes == before


def test_gradients_are_on_the_account() -> None:
    session = Session()
    run(session, zeros("x", MIB), {"op": "requires_grad_", "in": ["x"]}, op("sum", ["x"], "s"))
    before = session.accounts.used_bytes
    run(session, {"op": "backward", "in": [["s"]]})
    assert session.accounts.used_bytes - before >= 4 * MIB


def test_a_declared_formula_is_that_of_the_call() -> None:
    conv = CATALOGUE.ops["convolution"]
    assert callable(conv.scratch)
    x, w = Spec((1, 1, 64, 64), np.dtype(np.float32)), Spec((1, 1, 3, 3), np.dtype(np.float32))
    attrs = {"stride": (1, 1), "dilation": (1, 1), "transposed": False, "output_padding": (0, 0), "groups": 1}
    few, many = (conv.scratch(x, w, None, padding=(p, p), **attrs) for p in (1, 100))
    assert many > 10 * few


# Other threads ---------------------------------------------------------------------------------------------

HOLDING: dict[str, list[dict[str, Any]]] = {
    "combinations": [zeros("x", 3000), op("combinations", ["x"])],
    "triu_indices": [op("triu_indices", [], row=8000, col=8000)],
    "unique": [
        {"op": "randn", "out": ["x"], "attrs": {"size": [1_000_000, 4]}},
        op("round", ["x"], "r"),
        op("unique", ["r"], dim=0),
    ],
}


@pytest.mark.full
@pytest.mark.parametrize("name", HOLDING)
def test_other_threads_run_while_a_kernel_does(name: str) -> None:
    def shares() -> bool:
        """Whether another thread runs several times, and never waits for most of the time that the kernel takes."""
        done = threading.Event()
        gaps: list[float] = []

        def tick() -> None:
            last = time.perf_counter()
            while not done.is_set():
                time.sleep(1e-3)
                now = time.perf_counter()
                gaps.append(now - last)
                last = now

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            run(Session(), *HOLDING[name])
        finally:
            done.set()
            thread.join()
        return len(gaps) >= 3 and max(gaps) < 0.5 * sum(gaps)

    # All of these held the interpreter for most of their time, each time. Other processes may hold it now and then.
    assert any(shares() for _ in range(10))


def test_a_backward_pass_is_granted_its_memory() -> None:
    session = Session(max_bytes=40 * MIB)
    leaf = [zeros("w", 2 * MIB), {"op": "requires_grad_", "in": ["w"]}]
    run(session, *leaf, op("sigmoid", ["w"], "s"), op("sum", ["s"], "loss"))
    assert session.accounts.used_bytes < 17 * MIB
    session.accounts.max_bytes = 20 * MIB
    with pytest.raises(TooLarge):
        run(session, {"op": "backward", "in": [["loss"]], "attrs": {"retain_graph": True}})
    session.accounts.max_bytes = 64 * MIB
    run(session, {"op": "backward", "in": [["loss"]]})


# Whatever a session holds, it takes no more memory than is on its account --------------------------------------------


COUNT = 25_000
RATIO, BASE = 1.3, 8 * MIB
"""What a session may take of what is on its account, and what the process takes for itself meanwhile."""
Instructions = list[dict[str, Any]]


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
    for number in range(2):
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


@pytest.mark.full
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
