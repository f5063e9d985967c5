"""Settings of the engine's tests."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from telegrad_engine.devices import on


@pytest.hookimpl(tryfirst=True)  # before xdist, which reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of an op together on a device: JAX compiles each op for each shape once."""
    if config.getoption("--device") == "cpu":
        return
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if "op" in params:
            item.add_marker(pytest.mark.xdist_group(params["op"].key))  # for --dist loadgroup


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The device of the run, on which every test makes its tensors."""
    name: str = request.config.getoption("--device")
    with on(name):
        yield name


@pytest.fixture(autouse=True)
def little_compiled(device: str) -> Iterator[None]:
    """JAX keeps what it compiled, some megabytes an op and shape: forgotten now and then, or all cases are too many."""
    yield
    if device == "jax" and next(_tests) % 20 == 0:
        import jax

        jax.clear_caches()


_tests = count(1)


@pytest.fixture(autouse=True)
def quiet_numpy() -> Iterator[None]:
    """Dividing by zero is an ordinary thing to do to a tensor; warnings are otherwise errors."""
    with np.errstate(all="ignore"):
        yield
