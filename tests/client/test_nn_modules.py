"""Every module, compared with torch's: with the same state and input, output, gradients and repr are the same.

A row of a table is a module and the inputs that it is called with.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.common_modules import module_db

import telegrad as tg

from .nn_table import MODULES, STATEFUL
from .parity import check

pytestmark = pytest.mark.usefixtures("session")


class Pair:
    """A Telegrad module and a torch module in float64, with the same state, and inputs for both."""

    def __init__(self, row: str) -> None:
        expression, inputs = MODULES[row]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.theirs = expression(torch).double()
            self.ours = expression(tg).double()
        self.shapes = [(name, tuple(p.shape)) for name, p in self.ours.state_dict().items()]
        if self.shapes:
            self.ours.load_state_dict(self.theirs.state_dict())
        rng = np.random.default_rng(0)
        arrays = [make(rng) for make in inputs]
        self.our_inputs, self.their_inputs = ([each(lib, a) for a in arrays] for lib in (tg, torch))

    def train(self, mode: bool) -> None:
        self.ours.train(mode)
        self.theirs.train(mode)


def each(lib: Any, array: Any) -> Any:
    """Convert an array to a tensor, which requires grad if floating; tuples are converted recursively, None is kept."""
    if isinstance(array, tuple):
        return tuple(each(lib, a) for a in array)
    if array is None:
        return None
    tensor = lib.tensor(array)
    return tensor.requires_grad_() if array.dtype.kind == "f" else tensor


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from leaves(v)
    elif value is not None:
        yield value


def gradients(module: Any, inputs: list[Any]) -> tuple[Any, list[Any]]:
    """Return the module's result, and the gradients of inputs and parameters for a weighted sum of the outputs."""
    result = module(*inputs)
    total: Any = 0
    for output in leaves(result):
        if output.requires_grad:
            total = total + (output * output.detach().cos()).sum()
    if not isinstance(total, int):
        total.backward()
    tracked = [t for t in leaves(inputs) if t.requires_grad]
    return result, [t.grad for t in (*tracked, *module.parameters())]


@pytest.mark.parametrize("row", MODULES)
def test_it_is_torchs(row: str) -> None:
    pair = Pair(row)
    assert repr(pair.ours) == repr(pair.theirs)
    assert pair.shapes == [(name, tuple(p.shape)) for name, p in pair.theirs.state_dict().items()]
    assert [name for name, _ in pair.ours.named_parameters()] == [name for name, _ in pair.theirs.named_parameters()]
    for name, value in vars(pair.theirs).items():
        if not name.startswith("_") and isinstance(value, (int, float, str, type(None))) and name not in APART:
            assert getattr(pair.ours, name) == value, name
    pair.train(row in STATEFUL)
    ours, our_grads = gradients(pair.ours, pair.our_inputs)
    theirs, their_grads = gradients(pair.theirs, pair.their_inputs)
    check(ours, theirs, 1e-9)
    check(our_grads, their_grads, 1e-7)  # torch's hardsigmoid has a slope of 1/6 in float32
    check(list(pair.ours.buffers()), list(pair.theirs.buffers()), 1e-9)
    pair.train(False)
    check(pair.ours(*pair.our_inputs), pair.theirs(*pair.their_inputs), 1e-9)


APART = {"use_nested_tensor", "activation_relu_or_gelu"}
"""Attributes of torch's encoder for a fast path that Telegrad does not have."""


def test_the_table_has_every_module() -> None:
    exported = {name for name, value in vars(tg.nn).items() if isinstance(value, type)}
    tried = {type(part).__name__ for expression, _ in MODULES.values() for part in _quietly(expression).modules()}
    elsewhere = {"Module", "Parameter", "RNNBase", "ParameterList", "ParameterDict", "AlphaDropout"}
    # test_nn_protocol.py tests these.
    elsewhere |= {"AdaptiveLogSoftmaxWithLoss", "Buffer", "Container", "CrossMapLRN2d", "LinearCrossEntropyOptions"}
    elsewhere |= {"NLLLoss2d", "TransformerDecoder", "RNNCellBase", "UninitializedBuffer", "UninitializedParameter"}
    lazy = {name for name in exported if name.startswith("Lazy")}
    assert exported - tried - lazy - {info.module_cls.__name__ for info in module_db} <= elsewhere
    assert all(hasattr(torch.nn, name) for name in exported)


def _quietly(expression: Callable[[Any], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return expression(tg)


@pytest.mark.parametrize("row", ["Conv2d", "BatchNorm2d", "LSTM deep", "MultiheadAttention"])
def test_it_is_copied_with_its_state(row: str) -> None:
    pair = Pair(row)
    pair.train(False)
    copied = copy.deepcopy(pair.ours)
    expected = pair.theirs(*pair.their_inputs)
    with tg.no_grad():
        for parameter in pair.ours.parameters():
            parameter.zero_()
    check(copied(*pair.our_inputs), expected, 1e-9)


WITH_PARAMETERS = [row for row, (make, _) in MODULES.items() if " " not in row and list(make(torch).parameters())]


@pytest.mark.parametrize("row", WITH_PARAMETERS)
def test_it_starts_as_torchs_does(row: str) -> None:
    """Initial values have the same range, mean and standard deviation as torch's, over many draws."""
    expression, _ = MODULES[row]
    torch.manual_seed(0)  # the session has a seed already; without one, a few draws of a short bias vary much
    modules = [_quietly(expression) for _ in range(8)]
    theirs = [expression(torch) for _ in range(8)]
    for name, _ in modules[0].named_parameters():
        ours = np.concatenate([dict(m.named_parameters())[name].detach().numpy().ravel() for m in modules])
        others = np.concatenate([dict(m.named_parameters())[name].detach().numpy().ravel() for m in theirs])
        assert ours.dtype == others.dtype
        if np.ptp(others) == 0:
            np.testing.assert_array_equal(ours, others)
        else:
            assert 0.5 < np.abs(ours).max() / np.abs(others).max() < 2, name
            assert 0.6 < ours.std() / others.std() < 1.7, name
