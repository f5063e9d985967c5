"""The oracle is all there before anything is counted or compared."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def oracle_is_imported() -> None:
    """Make torch import the half of itself that it leaves to its first optimizer.

    From a cold disk that takes seconds, and what a session has recorded by then is sent for its age,
    in a message more than a test counts.
    """
    torch.optim.SGD([torch.zeros(1)])
