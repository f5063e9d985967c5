"""Settings of the engine's tests."""

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def quiet_numpy() -> Iterator[None]:
    """Dividing by zero is an ordinary thing to do to a tensor; warnings are otherwise errors."""
    with np.errstate(all="ignore"):
        yield
