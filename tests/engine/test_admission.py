"""What an op takes while it runs is what it declares, and it is granted before, by a session and by the process.

Internals: the memory of a process is granted by this object, which sessions share.
"""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from telegrad_engine.errors import TooLarge
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
