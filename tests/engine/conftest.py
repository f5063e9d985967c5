"""Settings of the engine's tests."""

from collections.abc import Iterator

import numpy as np
import pytest

from telegrad_engine.devices import on


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The device of the run, on which every test makes its tensors."""
    name: str = request.config.getoption("--device")
    with on(name):
        yield name


@pytest.fixture(autouse=True)
def quiet_numpy() -> Iterator[None]:
    """Dividing by zero is an ordinary thing to do to a tensor; warnings are otherwise errors."""
    with np.errstate(all="ignore"):
        yield
