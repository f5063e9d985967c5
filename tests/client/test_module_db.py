"""Every module of PyTorch's module database: state, repr, outputs and gradients are the same as torch's.

The database is ``torch.testing._internal.common_modules.module_db``. The test of the whole table prints how many
modules are present and agree.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db

import telegrad as tg

NAMES = list(dict.fromkeys(info.module_cls.__name__ for info in module_db))
AT_MOST = 24
"""The most inputs to try per module, evenly spaced among all of them."""

LEFT_OUT: dict[str, str] = {}
"""Modules of the database that are omitted on purpose, with reasons: none."""


def infos(name: str) -> list[ModuleInfo]:
    return [info for info in module_db if info.module_cls.__name__ == name]


def inputs_of(name: str) -> Iterator[tuple[ModuleInfo, ModuleInput, bool]]:
    """The database's inputs of a module, in training and in evaluation mode."""
    for info in infos(name):
        for training in (True, False):
            torch.manual_seed(0)
            made = info.module_inputs_func(
                info, device="cpu", dtype=torch.float64, requires_grad=True, training=training
            )
            usable = [m for m in made if m.forward_input is not None]
            for each in usable[:: 1 + len(usable) // AT_MOST]:
                yield info, each, training


def ours(value: Any) -> Any:
    """Convert a value of the database for this library."""
    if torch.is_tensor(value):
        return tg.tensor(value.detach().numpy(), requires_grad=value.requires_grad)
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        attention = value.self_attn
        sizes = (attention.embed_dim, attention.num_heads, value.linear1.out_features, value.dropout.p)
        return tg.nn.TransformerEncoderLayer(
            *sizes,
            norm_first=value.norm_first,
            batch_first=attention.batch_first,
            bias=attention.in_proj_bias is not None,
            activation=ours(value.activation),
        )
    if isinstance(value, torch.nn.LinearCrossEntropyOptions):
        return tg.nn.LinearCrossEntropyOptions(
            value.allow_retain_graph, value.batch_chunk_size, value.chunking_method, value.acc_policy
        )
    for function in ("gelu", "relu"):
        if value is getattr(torch.nn.functional, function):
            return getattr(tg.nn.functional, function)
    if isinstance(value, torch.dtype):
        return getattr(tg, str(value).removeprefix("torch."))
    if isinstance(value, dict):
        return {key: ours(item) for key, item in value.items()}
    return type(value)(ours(item) for item in value) if type(value) in (list, tuple) else value


def of_torch(value: Any) -> Any:
    """Copy a value of the database, with its tensors as new leaves."""
    if torch.is_tensor(value):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: of_torch(item) for key, item in value.items()}
    return type(value)(of_torch(item) for item in value) if type(value) in (list, tuple) else value


def tensors(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    return [value] if isinstance(value, (torch.Tensor, tg.Tensor)) else []


def quietly(cls: Any, args: Any, kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls(*args, **kwargs)


def prints_alike(mine: Any, theirs: Any) -> bool:
    """Whether both have the same repr; a repr that contains options is not compared."""
    return repr(mine) == repr(theirs) or "Options(" in repr(theirs)


def close(actual: Any, expected: Any, rtol: float, where: str) -> None:
    assert tuple(actual.shape) == tuple(expected.shape), where
    assert str(expected.dtype) == f"torch.{actual.dtype.name}", where
    np.testing.assert_allclose(actual.detach().numpy(), expected.detach().numpy(), rtol, 1e-8, err_msg=where)


def compare(info: ModuleInfo, given: ModuleInput, training: bool) -> None:
    name = info.module_cls.__name__
    built, called = given.constructor_input, given.forward_input
    torch.manual_seed(0)
    theirs = quietly(info.module_cls, built.args, built.kwargs).double().train(training)
    mine = quietly(getattr(tg.nn, name), ours(built.args), ours(built.kwargs)).double().train(training)
    args, kwargs = of_torch(called.args), of_torch(called.kwargs)
    my_args, my_kwargs = ours(called.args), ours(called.kwargs)
    assert list(mine.state_dict()) == list(theirs.state_dict()), given.desc
    assert prints_alike(mine, theirs), given.desc
    if info.is_lazy:  # the first call creates the parameters
        theirs(*args, **kwargs)
        mine(*my_args, **my_kwargs)
        assert prints_alike(mine, theirs), given.desc
        assert type(mine).__name__ == type(theirs).__name__
    mine.load_state_dict(theirs.state_dict())
    their_results, my_results = tensors(theirs(*args, **kwargs)), tensors(mine(*my_args, **my_kwargs))
    assert len(my_results) == len(their_results)
    for result, expected in zip(my_results, their_results, strict=True):
        close(result, expected, 1e-7, given.desc)
    tracked = [(r, e) for r, e in zip(my_results, their_results, strict=True) if e.requires_grad]
    if not tracked:
        return
    for library in (0, 1):
        total = sum((pair[library] * pair[library].detach().cos()).sum() for pair in tracked)
        total.backward()
    my_leaves = [*tensors((my_args, my_kwargs)), *mine.parameters()]
    for leaf, expected in zip(my_leaves, [*tensors((args, kwargs)), *theirs.parameters()], strict=True):
        if expected.grad is not None:
            close(leaf.grad, expected.grad, 1e-6, f"a gradient of {given.desc}")


def faults(name: str) -> list[str]:
    """The differences from torch, one line per input."""
    found = []
    for info, given, training in inputs_of(name):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compare(info, given, training)
        except Exception as error:  # every exception is counted
            mode = "training" if training else "evaluation"
            found.append(f"{name} ({given.desc}, {mode}): {type(error).__name__}: {str(error)[:300]}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_module_agrees(name: str) -> None:
    if name in LEFT_OUT:
        assert not hasattr(tg.nn, name)
        return
    with tg.connect("local://", seed=0):
        found = faults(name)
    assert not found, "\n".join(found)


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


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SLOW_IN_TORCH and "Lazy" not in name])
def test_derivatives_of_the_module_are_checked_as_in_torch(name: str, check: str) -> None:
    """As torch's own tests of its modules do: the parameters are inputs, and the module holds them itself."""
    info, given, training = next(inputs_of(name))
    made, called = given.constructor_input, given.forward_input
    torch.manual_seed(0)
    theirs = quietly(info.module_cls, made.args, made.kwargs).double().train(training)
    with tg.connect("local://", seed=0):
        mine = quietly(getattr(tg.nn, name), ours(made.args), ours(made.kwargs)).double().train(training)
        mine.load_state_dict(theirs.state_dict())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = verdict(tg, check, mine, ours(called.args), ours(called.kwargs))
            expected = verdict(torch, check, theirs, of_torch(called.args), of_torch(called.kwargs))
    without = isinstance(expected, str) and expected.endswith("is not implemented")  # torch's second derivative
    assert found is True if without else found == expected


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Print the numbers of all variants and of those present. The tests above check that these agree."""
    variants = [info.module_cls.__name__ for info in module_db]
    present = [name for name in variants if hasattr(tg.nn, name)]
    with capsys.disabled():
        print(f"\nmodule_db: {len(variants)} variants, {len(present)} present and agree")
        for name, reason in LEFT_OUT.items():
            print(f"  {name}: {reason}")
    assert len(present) == len(variants) - sum(name in LEFT_OUT for name in variants)
