"""One function run on torch and on ours: what it returns, or the error it raises, must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import telegrad_engine as tg

from ..client.parity import ENGINE
from . import oracle

OURS, THEIRS = ENGINE, torch


def plain(value: Any) -> Any:
    """A result that can be compared: tensors as lists, containers through and through."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if torch.is_tensor(value) or isinstance(value, tg.Tensor):
        return plain(value.detach().tolist())
    return float(f"{value:.5g}") if isinstance(value, float) else value


def both(function: Callable[[Any], Any]) -> Any:
    """What ``function`` gives on ours, after asserting that torch gives the same."""
    expected = plain(function(THEIRS))
    found = plain(function(OURS))
    assert found == expected
    return found


def both_or_neither(function: Callable[[Any], Any]) -> None:
    """``function`` gives the same on both; where torch raises, ours raises the same class."""
    theirs = oracle.attempt(lambda: function(THEIRS))
    if isinstance(theirs, oracle.Failure):
        with pytest.raises(theirs.kind):
            function(OURS)
    else:
        both(function)


def both_raise(function: Callable[[Any], Any], essential: str | None = None) -> None:
    """Both raise the same built-in class with the same text, or with this essential part of it."""
    with pytest.raises(oracle.ERROR_BASES) as theirs:
        function(THEIRS)
    kind = next(base for base in oracle.ERROR_BASES if isinstance(theirs.value, base))
    with pytest.raises(oracle.ERROR_BASES) as ours:
        function(OURS)
    assert isinstance(ours.value, kind), f"{ours.value!r} is not a {kind.__name__}"
    if essential is None:
        assert str(ours.value) == str(theirs.value)
    else:
        assert essential in str(theirs.value)
        assert essential in str(ours.value)


def leaf(t: Any, values: Any = (1.0, 2.0, 3.0)) -> Any:
    return t.tensor(list(values) if isinstance(values, tuple) else values, requires_grad=True)
