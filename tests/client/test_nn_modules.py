"""Every module, compared with torch's: the repr, and of the same state and inputs the results, gradients and buffers.

The inputs are those of PyTorch's module database, ``torch.testing._internal.common_modules.module_db``, and those of a
table of what it does not have.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db

import telegrad as tg

from .nn_table import MODULES, STATEFUL
from .parity import check
from .torch_values import converted

NAMES = list(dict.fromkeys(info.module_cls.__name__ for info in module_db))
WITHOUT_LAZY = list(dict.fromkeys([name for name in [*NAMES, *MODULES] if not name.startswith("Lazy")]))
AT_MOST = 24
"""The most inputs to try per module, evenly spaced among all of them."""
APART = {"use_nested_tensor", "activation_relu_or_gelu"}
"""Attributes of torch's encoder for a fast path that Telegrad does not have."""


def seed() -> None:
    """Seed torch on the CPU; ``torch.manual_seed`` also formats the stack for each device that may come to be used."""
    torch.default_generator.manual_seed(0)


def inputs_of(name: str) -> Iterator[tuple[ModuleInfo, ModuleInput, bool]]:
    """The database's inputs of a module, in training and in evaluation mode."""
    for info in [info for info in module_db if info.module_cls.__name__ == name]:
        for training in (True, False):
            seed()
            made = info.module_inputs_func(
                info, device="cpu", dtype=torch.float64, requires_grad=True, training=training
            )
            usable = [m for m in made if m.forward_input is not None]
            if not (training or info.train_and_eval_differ):
                usable = usable[:1]
            for each in usable[:: 1 + len(usable) // AT_MOST]:
                yield info, each, training


def tensors(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    return [value] if isinstance(value, (torch.Tensor, tg.Tensor)) else []


def quietly(make: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


class Case(NamedTuple):
    """A module and the inputs that it is called with."""

    name: str
    make: Callable[[Any], Any]
    """Makes the module in a library."""
    inputs: Callable[[Any], tuple[Any, Any]]
    """Makes the arguments in a library."""
    training: bool


def of_database(info: ModuleInfo, given: ModuleInput, training: bool) -> Case:
    name, built, called = info.module_cls.__name__, given.constructor_input, given.forward_input

    def make(lib: Any) -> Any:
        return getattr(lib.nn, name)(*converted(lib, built.args), **converted(lib, built.kwargs))

    def inputs(lib: Any) -> tuple[Any, Any]:
        return converted(lib, called.args), converted(lib, called.kwargs)

    return Case(f"{name} ({given.desc}, {'training' if training else 'evaluation'})", make, inputs, training)


def of_table(row: str, training: bool) -> Case:
    make, makers = MODULES[row]
    rng = np.random.default_rng(0)
    arrays = [each(rng) for each in makers]
    return Case(row, make, lambda lib: ([leaf(lib, array) for array in arrays], {}), training)


def case_of(name: str) -> Case:
    """The table's case of this name, or the first of the database."""
    return of_table(name, True) if name in MODULES else of_database(*next(inputs_of(name)))


def leaf(lib: Any, array: Any) -> Any:
    """Convert an array to a tensor, which requires grad if floating; tuples are converted recursively."""
    if isinstance(array, tuple):
        return tuple(leaf(lib, a) for a in array)
    tensor = lib.tensor(array)
    return tensor.requires_grad_() if array.dtype.kind == "f" else tensor


def pair(case: Case) -> tuple[Any, Any]:
    """A Telegrad module and a torch module in float64, which are of torch's class, look alike and have its state."""
    seed()
    mine, theirs = (quietly(lambda: case.make(lib).double().train(case.training)) for lib in (tg, torch))  # noqa: B023
    alike(case, mine, theirs)
    if hasattr(theirs, "initialize_parameters"):  # the first call creates the parameters
        for lib, module in ((tg, mine), (torch, theirs)):
            args, kwargs = case.inputs(lib)
            module(*args, **kwargs)
        alike(case, mine, theirs)
    mine.load_state_dict(theirs.state_dict())
    return mine, theirs


def alike(case: Case, mine: Any, theirs: Any) -> None:
    assert type(mine).__name__ == type(theirs).__name__
    assert repr(mine) == repr(theirs) or "Options(" in repr(theirs), case.name
    assert list(mine.state_dict()) == list(theirs.state_dict()), case.name
    assert [name for name, _ in mine.named_parameters()] == [name for name, _ in theirs.named_parameters()], case.name
    for name, value in vars(theirs).items():
        if not name.startswith("_") and isinstance(value, (int, float, str, type(None))) and name not in APART:
            assert getattr(mine, name) == value, (case.name, name)


def results(module: Any, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]]:
    """Return a module's results, and the gradients of inputs and parameters for a weighted sum of them."""
    found = tensors(module(*args, **kwargs))
    tracked = [result for result in found if result.requires_grad]
    if tracked:
        sum((result * result.detach().cos()).sum() for result in tracked).backward()
    leaves = [x for x in tensors((args, kwargs)) if x.requires_grad]
    return found, [x.grad for x in (*leaves, *module.parameters())]


def compare(case: Case) -> None:
    mine, theirs = pair(case)
    my_inputs, their_inputs = case.inputs(tg), case.inputs(torch)
    also_evaluated = case.name in MODULES or any(True for _ in theirs.buffers())  # with what training has left in them
    for training in dict.fromkeys((case.training, False)) if also_evaluated else [case.training]:
        mine.train(training)
        theirs.train(training)
        (ours, grads), (expected, their_grads) = results(mine, *my_inputs), results(theirs, *their_inputs)
        check(ours, expected, 1e-9, case.name)
        check(grads, their_grads, 1e-7, f"a gradient of {case.name}")  # torch's hardsigmoid has a slope in float32
        check(list(mine.buffers()), list(theirs.buffers()), 1e-9, f"a buffer of {case.name}")


@pytest.mark.parametrize("name", NAMES)
def test_a_module_of_the_database_agrees(name: str) -> None:
    with tg.connect("local://", seed=0):
        for info, given, training in inputs_of(name):
            quietly(lambda: compare(of_database(info, given, training)))  # noqa: B023


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("row", MODULES)
def test_a_module_of_the_table_agrees(row: str) -> None:
    quietly(lambda: compare(of_table(row, row in STATEFUL)))


SLOW_IN_TORCH = {"CTCLoss", "LPPool3d", "Transformer", "TransformerEncoder", "TransformerDecoderLayer"}
"""Modules whose checks take torch itself a minute: they draw random numbers or have many parameters."""


def verdict(lib: Any, check: str, built: Any, args: Any, kwargs: Any) -> Any:
    """What a check of a module's derivatives gives, by its inputs and its own parameters."""
    inputs = [x for x in tensors((args, kwargs)) if x.requires_grad]
    leaves = [*inputs, *built.parameters()]
    if not leaves:
        return None

    def function(*_: Any) -> Any:
        return tuple([x for x in tensors(built(*args, **kwargs)) if x.requires_grad])

    try:
        return bool(function()) and getattr(lib.autograd, check)(function, leaves, fast_mode=True, nondet_tol=1e-6)
    except RuntimeError as error:
        return type(error).__name__ if "Jacobian" in str(error) else str(error).splitlines()[0]


@pytest.mark.parametrize("name", [name for name in WITHOUT_LAZY if name in NAMES and name not in SLOW_IN_TORCH])
def test_derivatives_of_the_module_are_checked_as_in_torch(name: str) -> None:
    """As torch's own tests of its modules do: the parameters are inputs, and the module holds them itself."""
    case = of_database(*next(inputs_of(name)))
    with tg.connect("local://", seed=0):
        mine, theirs = pair(case)
        for check in ("gradcheck", "gradgradcheck"):
            found = quietly(lambda: verdict(tg, check, mine, *case.inputs(tg)))  # noqa: B023
            expected = quietly(lambda: verdict(torch, check, theirs, *case.inputs(torch)))  # noqa: B023
            without = isinstance(expected, str) and expected.endswith("is not implemented")  # torch's second derivative
            assert found is True if without else found == expected, check


def test_every_module_is_compared() -> None:
    exported = {name for name, value in vars(tg.nn).items() if isinstance(value, type)}
    tried = {type(part).__name__ for make, _ in MODULES.values() for part in quietly(lambda: make(tg)).modules()}  # noqa: B023
    elsewhere = {"Module", "Parameter", "RNNBase", "ParameterList", "ParameterDict", "AlphaDropout"}
    # test_nn_parts.py tests these.
    elsewhere |= {"Buffer", "Container", "CrossMapLRN2d", "LinearCrossEntropyOptions"}
    elsewhere |= {"NLLLoss2d", "TransformerDecoder", "RNNCellBase", "UninitializedBuffer", "UninitializedParameter"}
    lazy = {name for name in exported if name.startswith("Lazy")}
    assert exported - tried - lazy - set(NAMES) <= elsewhere
    assert set(NAMES) <= exported
    assert all(hasattr(torch.nn, name) for name in exported)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("name", ["Conv2d", "BatchNorm2d", "LSTM", "MultiheadAttention"])
def test_it_is_copied_with_its_state(name: str) -> None:
    case = of_database(*next(inputs_of(name)))._replace(training=False)
    mine, theirs = pair(case)
    copied = copy.deepcopy(mine)
    with tg.no_grad():
        for parameter in mine.parameters():
            parameter.zero_()
    check(results(copied, *case.inputs(tg)), results(theirs, *case.inputs(torch)), 1e-7)


@pytest.mark.parametrize("name", [name for name in WITHOUT_LAZY if name != "TransformerEncoder"])  # it copies a layer
def test_it_starts_as_torchs_does(name: str) -> None:
    """Initial values have the same range, mean and standard deviation as torch's, over many draws."""
    case = case_of(name)
    seed()  # without one, a few draws of a short bias vary much
    with tg.connect("local://", seed=0):
        modules, theirs = ([quietly(lambda: case.make(lib)) for _ in range(8)] for lib in (tg, torch))  # noqa: B023
        for number, (parameter, _) in enumerate(theirs[0].named_parameters()):
            ours, others = (
                lib.cat([[*module.parameters()][number].detach().reshape(-1) for module in made]).numpy()
                for lib, made in ((tg, modules), (torch, theirs))
            )
            assert ours.dtype == others.dtype
            if np.ptp(others) == 0:
                np.testing.assert_array_equal(ours, others)
            else:
                assert 0.5 < np.abs(ours).max() / np.abs(others).max() < 2, parameter
                assert 0.6 < ours.std() / others.std() < 1.7, parameter
