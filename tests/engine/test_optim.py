"""Optimizer steps with settings and states that no training comes to: refused, in the caller's words."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_engine.errors import DTypeMismatch, InvalidArgument, InvalidValue, TelegradError
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


@pytest.mark.parametrize(
    ("state", "value", "words"),
    [
        ("t", [0.0, 0.0], "state 't' has shape (2,), but is one number"),
        ("momentum_buffer", [0.0, 0.0], "state 'momentum_buffer' has shape (2,), its parameter (1,)"),
        ("momentum_buffer", [0], "state 'momentum_buffer' has dtype int64, its parameter float32"),
        ("momentum_buffer", None, "state 'momentum_buffer' must be Tensor, not NoneType"),
        ("t", 3.0, "state 't' must be Tensor, not float"),
    ],
)
def test_a_wrong_state_is_named(state: str, value: Any, words: str) -> None:
    session = Session()
    made = {"w": [1.0], "g": [1.0], "momentum_buffer": [0.0], "t": 0.0}
    states: dict[str, Any] = {name: (name,) for name in ("momentum_buffer", "t")}
    if value is None or isinstance(value, float):
        states[state] = (value,)
    else:
        made[state] = value
    session.run([Instruction("tensor", [], [name], {"data": data}) for name, data in made.items()])
    session.run([Instruction("set_grad", ["w", "g"])])
    step = Instruction("optim_step", [("w",), tuple(states.values())], attrs={"algorithm": "sgd_momentum"})
    with pytest.raises((InvalidArgument, DTypeMismatch), match=re.escape(f"sgd_momentum: {words}")):
        session.run([step])
    assert session.get("w").tolist() == [1.0]


def test_states_that_are_no_lists_are_named() -> None:
    session = Session()
    session.run([Instruction("tensor", [], [name], {"data": [1.0]}) for name in ("w", "m", "t")])
    for states in [("m", "t"), (("m",), ()), (("m", "m"), ("t",))]:
        step = Instruction("optim_step", [("w",), states], attrs={"algorithm": "sgd_momentum"})
        with pytest.raises(InvalidArgument, match=r"state '(momentum_buffer|t)' is a list of tensors, one for each"):
            session.run([step])


TORCH = {
    "sgd": "SGD", "sgd_momentum": "SGD", "asgd": "ASGD", "adam": "Adam", "adamw": "AdamW", "adam_amsgrad": "Adam",
    "rmsprop": "RMSprop", "adagrad": "Adagrad", "adadelta": "Adadelta", "adamax": "Adamax", "nadam": "NAdam",
    "radam": "RAdam", "rprop": "Rprop", "adafactor": "Adafactor", "adafactor_vector": "Adafactor", "muon": "Muon",
}  # fmt: skip


@pytest.mark.parametrize("name", optim.OPTIMIZERS)
def test_defaults_are_torchs(name: str) -> None:
    """Torch 2.13 has a default for every setting, ``lr`` of SGD included."""
    ours = {"decoupled": "decoupled_weight_decay", "match_rms_adamw": ""}
    theirs = inspect.signature(getattr(torch.optim, TORCH[name])).parameters
    for setting, default in optim.get(name).defaults.items():
        option = ours.get(setting, setting)
        if option not in theirs or (name == "sgd_momentum" and setting == "momentum"):
            continue
        expected = theirs[option].default
        if isinstance(default, tuple):  # the first number of Adafactor's eps depends on the dtype
            assert all(b is None or a == b for a, b in zip(default, expected, strict=True)), setting
        else:
            assert default == expected, setting
