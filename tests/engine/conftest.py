"""Settings of the engine's tests."""

from collections.abc import Iterator

import numpy as np
import pytest


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
