"""One gradient of a registered function, Rosenbrock's in 1000 variables, against model servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import telegrad as tg

from .compiling import session
from .peers import peer, rosenbrock
from .timing import Side, Timed


def function(x: Any) -> Any:
    """Rosenbrock's function, as a user would register it."""
    left, right = x[:-1], x[1:]
    return (100 * (right - left**2) ** 2 + (1 - left) ** 2).sum()


@contextmanager
def sides(script: str) -> Iterator[tuple[Side, Side]]:
    """Upload a point and read its gradient, with both servers."""
    with session(), peer(script) as theirs:
        tg.register_function("rosenbrock", function)
        point = rosenbrock.point()

        def ours() -> Any:
            x = tg.tensor(point, requires_grad=True)
            (gradient,) = tg.autograd.grad(tg.ops.rosenbrock(x), x)
            return gradient.numpy()

        rosenbrock.check(ours())
        yield ours, theirs


SUITES = [
    Timed(
        "gradient of Rosenbrock over loopback, n = 1000, a registered function, one call",
        name,
        0.15,
        partial(sides, script),
    )
    for name, script in (("UM-Bridge", "rosenbrock_umbridge.py"), ("Tesseract", "rosenbrock_tesseract.py"))
]
