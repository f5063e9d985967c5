"""Settings of the engine's tests."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

from telegrad_engine.devices import on

from ..op_cases import cases_of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="where the engine's tensors live: cpu, jax or cuda")


MASKED = "XLA takes a product with a mask for a choice, so infinity times 0 is 0"
APART_ON_JAX = {
    "test_derivative[lp_pool1d-2-float64-1]": MASKED,
    "test_derivative[nanmean-7-float64-1]": MASKED,
}
"""Where a device and torch are known to differ, and why."""


def concerns_device(item: Any) -> bool:
    """Whether a test says something of a device; of the ops' many some are the same on all devices.

    Held are the values and first derivatives of all cases in float64; of each op's first case also the values in
    float32, the second derivatives and the in-place form, which are the same kernels once more. Of an op that is
    written in others, which are held themselves, two cases are enough, and the derivative of the first.
    """
    if item.path.name != "test_ops.py":
        return True
    params = item.callspec.params if hasattr(item, "callspec") else {}
    op, case = params.get("op") or params.get("changing"), params.get("case") or params.get("arguments")
    if op is None or case is None:
        return False
    number, name = cases_of(op).index(case), item.originalname
    if name == "test_forward" and params["dtype"] == "float32":
        return number == 0 and not op.composite
    if params.get("dtype", params.get("kind")) != "float64":
        return False
    if name == "test_derivative":
        return number == 0 if op.composite or params["order"] == 2 else True
    if name == "test_in_place":
        return number == 0
    return name == "test_forward" and (number < 2 or not op.composite)


@pytest.hookimpl(tryfirst=True)  # before xdist, which reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a device keep the tests that concern it, those of an op together: JAX compiles each op for each shape once."""
    if config.getoption("--device", default="cpu") == "cpu":
        return
    config.hook.pytest_deselected(items=[item for item in items if not concerns_device(item)])
    items[:] = [item for item in items if concerns_device(item)]
    for item in items:
        if item.name in APART_ON_JAX and config.getoption("--device") == "jax":
            item.add_marker(pytest.mark.xfail(reason=APART_ON_JAX[item.name]))
        params = item.callspec.params if hasattr(item, "callspec") else {}
        op = params.get("op") or params.get("changing")
        if op is not None:
            item.add_marker(pytest.mark.xdist_group(op.key))  # for --dist loadgroup


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The device of the run, on which every test makes its tensors."""
    name: str = request.config.getoption("--device", default="cpu")
    with on(name):
        yield name


@pytest.fixture(autouse=True)
def little_compiled(device: str) -> Iterator[None]:
    """JAX keeps what it compiled, some megabytes an op and shape: forgotten now and then, or all cases are too many."""
    yield
    if device == "jax" and next(_tests) % 300 == 0:
        import jax

        jax.clear_caches()


_tests = count(1)


@pytest.fixture(autouse=True)
def quiet_numpy() -> Iterator[None]:
    """Dividing by zero is an ordinary thing to do to a tensor; warnings are otherwise errors."""
    with np.errstate(all="ignore"):
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many comparisons with torch, of an op, a case, a dtype and an order, were held."""
    held = sum(
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "held"
    )
    if held:
        terminalreporter.write_line(f"held against torch: {held} of (op, case, dtype, order)")
