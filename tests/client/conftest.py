"""Imports all of torch before the tests count or compare anything."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def oracle_is_imported() -> None:
    """Make torch import the modules that it imports with the first optimizer.

    From a cold disk the import takes seconds. A session would then send its old instructions in an extra message, which
    a test would count.
    """
    torch.optim.SGD([torch.zeros(1)])
