"""Optimizer steps with settings and states that no training comes to: refused, in the caller's words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad_engine.errors import InvalidArgument, InvalidValue, TelegradError
from telegrad_engine.optim import algorithms as optim
from telegrad_engine.program import Instruction
from telegrad_engine.session.session import Session


def step(algorithm: str, settings: dict[str, Any], shape: tuple[int, ...] = (2, 3), **states: Any) -> Any:
    """One step of a fresh parameter, its states zeros unless given."""
    session = Session()
    labels = optim.get(algorithm).states
    arrays = {
        name: np.asarray(states.get(name, np.zeros(optim.state_shape(name, shape))), np.float64) for name in labels
    }
    program = [
        Instruction("tensor", [], ["w"], {"data": np.ones(shape), "requires_grad": True}),
        Instruction("sum", ["w"], ["loss"], {}),
        Instruction("backward", [("loss",)], [], {}),
        *[Instruction("tensor", [], [name], {"data": array}) for name, array in arrays.items()],
        Instruction(
            "optim_step", [("w",), tuple((n,) for n in labels)], [], {"algorithm": algorithm, "settings": settings}
        ),
        Instruction("fetch", [("w",)], [], {}),
    ]
    return session.run(program).values["w"].array


@pytest.mark.parametrize(
    ("algorithm", "settings", "states"),
    [
        ("muon", {"ns_steps": 10**9}, {}),
        ("muon", {"ns_coefficients": [1.0, float("inf"), 2.0]}, {}),
        ("muon", {"momentum": -1.0}, {}),
        ("adafactor", {"beta2_decay": float("nan")}, {}),
        ("adafactor", {"eps": [-1.0, 0.0]}, {}),
        ("adafactor", {}, {"t": -1.0}),
        ("adafactor", {"beta2_decay": 1e9}, {"t": 1e9}),
        ("asgd", {"lr": 1e300, "alpha": 1e10}, {"t": 1.0}),
        ("rprop", {"etas": [0.5, -1.0]}, {}),
        ("adam", {}, {"t": -1.0}),
    ],
)
def test_settings_and_states_out_of_range(algorithm: str, settings: dict[str, Any], states: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        step(algorithm, settings, **states)


@pytest.mark.parametrize(
    ("algorithm", "shape", "states"),
    [
        ("muon", (3,), {}),
        ("muon", (2, 3, 4), {}),
        ("adafactor", (2, 3), {"row_var": np.zeros((2, 3))}),
        ("adafactor", (2, 3), {"col_var": np.zeros((2, 1))}),
        ("rprop", (2, 3), {"prev": np.zeros(3)}),
    ],
)
def test_shapes_that_do_not_fit(algorithm: str, shape: tuple[int, ...], states: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        step(algorithm, {}, shape, **states)


@pytest.mark.parametrize("algorithm", optim.OPTIMIZERS)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1,), ()])
def test_every_algorithm_takes_every_shape_or_says_why(algorithm: str, shape: tuple[int, ...]) -> None:
    try:
        moved = step(algorithm, {}, shape)
    except TelegradError as error:
        assert algorithm in ("muon", "adafactor"), error
    else:
        assert moved.shape == shape
