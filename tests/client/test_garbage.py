"""Neither a training step nor an error leaves garbage for the collector, in the client or in the server.

A reference cycle keeps its tensors until a collection: in the client their ids are freed late, which changes the next
message; in the server their memory stays in use.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import telegrad as tg

from ..in_process import serving
from .test_nn_modules import WITHOUT_LAZY, case_of, quietly, tensors

PLAN_AFTER, WARM_UP, STEPS, ROUNDS = 2, 8, 2, 10
"""The fifth step runs as planned, or the seventh if another module's plan was almost usable. Creating a plan leaves
garbage once. How many steps go into a message, and so when the last plan is created, depends on time; so one of the
rounds must leave nothing."""


@pytest.fixture(scope="module")
def serving_here() -> Iterator[str]:
    """Run a server in this process, so that one collection finds the garbage of both sides."""
    with serving(plan_after=PLAN_AFTER) as url:
        yield url


@pytest.fixture(params=["local", "http"])
def address(request: pytest.FixtureRequest, serving_here: str) -> str:
    """The address of a local session, which has no plans, or of a server."""
    return "local://" if request.param == "local" else serving_here


def is_ours(value: Any) -> bool:
    """Whether the value is a frame, a function or an object of this library."""
    if isinstance(value, types.FrameType):
        return str(value.f_globals["__name__"]).startswith("telegrad")
    return (getattr(value, "__module__", None) or type(value).__module__ or "").startswith("telegrad")


def garbage(run: Callable[[], None]) -> list[Any]:
    """The objects of this library that a run leaves and that only the garbage collector frees."""
    gc.freeze()  # existing objects are ignored, garbage or not
    gc.disable()
    try:
        run()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [value for value in gc.garbage if is_ours(value)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("name", WITHOUT_LAZY)
def test_a_training_step_leaves_no_garbage(name: str, session: tg.Session) -> None:
    case = case_of(name)
    module = quietly(lambda: case.make(tg).double())
    parameters = list(module.parameters())
    optimizer = tg.optim.SGD(parameters, 1e-3) if parameters else None

    def step() -> None:
        args, kwargs = case.inputs(tg)
        total: Any = tg.zeros(1, dtype=tg.float64)
        for output in tensors(module(*args, **kwargs)):
            if output.requires_grad:
                total = total + (output * output.detach().cos()).sum()
        if total.requires_grad:
            total.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        total.item()

    repeat(step, WARM_UP)
    assert least_garbage(lambda: repeat(step, STEPS)) == []


def least_garbage(run: Callable[[], None]) -> list[Any]:
    """What the first of the rounds leaves that leaves nothing, or else the last one."""
    found: list[Any] = []
    for _ in range(ROUNDS):
        found = garbage(run)
        if not found:
            break
    return found


def repeat(step: Callable[[], None], times: int) -> None:
    for _ in range(times):
        step()


def _fails_on_the_server(x: tg.Tensor) -> None:
    tg.linalg.inv(x * 0.0).sum().item()


def _uses_what_failed(x: tg.Tensor) -> None:
    lost = tg.linalg.inv(x * 0.0)
    with suppress(RuntimeError):
        lost.sum().item()
    lost.sum()


def _goes_back_twice(x: tg.Tensor) -> None:
    y = (x * x).sum()
    y.backward()
    y.backward()


ERRORS: dict[str, Callable[[tg.Tensor], Any]] = {
    "no overload": lambda x: tg.max(x, "a", "b"),
    "an argument": lambda x: tg.exp("a"),
    "shapes": lambda x: x @ tg.ones(4, 2),
    "a name": lambda x: tg.no_such_op,
    "too large": lambda x: tg.zeros(10**7, 10**7),
    "an index": lambda x: x[tg.tensor([5])].sum().item(),
    "on the server": _fails_on_the_server,
    "of what failed": _uses_what_failed,
    "backward twice": _goes_back_twice,
}


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_leaves_no_garbage(kind: str, session: tg.Session) -> None:
    x = tg.ones(3, 3, requires_grad=True)

    def attempt() -> None:
        with pytest.raises((RuntimeError, TypeError, IndexError, AttributeError)):
            ERRORS[kind](x)
        session.flush()

    repeat(attempt, WARM_UP)
    assert least_garbage(attempt) == []
