"""No op that a client may name can crash the process, or fail for a reason that no rule foresaw."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from telegrad_engine import errors
from telegrad_engine.arrays import NUMPY
from telegrad_engine.program import Instruction
from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.session.session import Session

pytestmark = pytest.mark.full

PRIVATE = [op.key for op in CATALOGUE if op.private]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits of a process's memory")
@pytest.mark.parametrize("seed", [1, 2])
def test_every_op_survives_hostile_arguments(seed: int) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.hostile_calls", str(seed), "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(done.stdout.split()[-3]) > 5000


@pytest.mark.parametrize("key", PRIVATE)
def test_what_serves_derivatives_alone_cannot_be_named(key: str) -> None:
    session = Session()
    session.run([Instruction("arange", [], ["x"], {"start": 12})])
    with pytest.raises(errors.UnknownOp, match=f"unknown op '{key}'"):
        session.run([Instruction(key, ["x"], ["y"], {"shape": (2,), "stride": (2**40,)})])
    assert len(PRIVATE) >= 3
    assert session.get("x").shape == (12,)


@pytest.mark.parametrize(
    ("shape", "stride", "offset"),
    [((2,), (2**40,), 0), ((2,), (12,), 0), ((12,), (1,), 1), ((2, 7), (1, 2), 0), ((1,), (0,), 12), ((3,), (-1,), 2)],
)
def test_a_strided_view_stays_in_its_memory(shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
    array = np.arange(12.0)
    with pytest.raises((errors.ShapeMismatch, errors.InvalidOperation)):
        NUMPY.as_strided(array, shape, stride, offset)
    unstrided = CATALOGUE.get("unstrided")
    with pytest.raises((errors.ShapeMismatch, errors.InvalidOperation)):
        unstrided.rule(np.zeros(shape), shape=(12,), stride=stride, storage_offset=offset)


def test_a_chain_of_views_is_checked_before_it_is_followed() -> None:
    rule = CATALOGUE.get("view_scatter").rule
    chains: list[Any] = [(1,), ("t",), (("t", {}, 0),), ((CATALOGUE.get("t"), {}),)]
    for chain in chains:
        with pytest.raises(errors.InvalidArgument, match="chain of views"):
            rule(np.zeros((2, 3)), np.zeros((3, 2)), chain=chain)
    with pytest.raises(errors.ShapeMismatch):
        rule(np.zeros((2, 3)), np.zeros((2, 3)), chain=((CATALOGUE.get("t"), {}, 0),))


@pytest.mark.parametrize("target", [1, 0.5, True])
def test_a_number_cannot_be_changed_in_place(target: float) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"add_\(\): argument 'input' must be Tensor, not"):
        Session().run([Instruction("add_", [target, 1], ["y"])])


@pytest.mark.parametrize(
    "index",
    [(True,), (1.5,), ("a",), (("slice", 1, 2),), (("slice", 0, 2, 0),), ("...", "..."), (("slice", "a", 1, 1),)],
)
def test_what_is_no_index_is_refused(index: tuple[object, ...]) -> None:
    session = Session()
    session.run([Instruction("arange", [], ["x"], {"start": 12})])
    with pytest.raises((errors.InvalidArgument, errors.InvalidValue, errors.IndexOutOfRange)):
        session.run([Instruction("getitem", ["x"], ["y"], {"index": index})])
