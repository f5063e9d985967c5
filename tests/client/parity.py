"""Helpers that run one function on PyTorch and on Telegrad and compare the results or the errors.

Telegrad is the SDK, or the engine within the fixture ``everywhere``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import torch

import telegrad as tg
import telegrad_engine

BUILTINS = (
    NotImplementedError,
    RuntimeError,
    IndexError,
    OverflowError,
    KeyError,
    AttributeError,
    TypeError,
    ValueError,
    AssertionError,
)


class Engine:
    """The engine under PyTorch's names, as far as it has them."""

    __name__ = "telegrad_engine"
    bool = telegrad_engine.dtypes.parse("bool")
    nn = SimpleNamespace(functional=telegrad_engine.functions)
    graph = SimpleNamespace(
        saved_tensors_hooks=telegrad_engine.saved.saved_tensors_hooks,
        disable_saved_tensors_hooks=telegrad_engine.saved.disable_saved_tensors_hooks,
    )
    autograd = SimpleNamespace(**vars(telegrad_engine.autograd), graph=graph)

    def __getattr__(self, name: str) -> Any:
        for place in (telegrad_engine, telegrad_engine.dtypes, telegrad_engine.amp):
            if hasattr(place, name):
                return getattr(place, name)
        return getattr(telegrad_engine.functions, name)


ENGINE = Engine()
_libraries: list[Any] = [tg]


@contextmanager
def library(lib: Any) -> Iterator[None]:
    """Have the helpers compare PyTorch with ``lib``."""
    _libraries.append(lib)
    try:
        yield
    finally:
        _libraries.pop()


def ours() -> Any:
    """Return the library that is compared with PyTorch."""
    return _libraries[-1]


def same(function: Callable[[Any], Any], rtol: float = 1e-5, lib: Any = None) -> Any:
    """Return what ``function`` returns on ``lib``, by default Telegrad, after checking that torch returns the same."""
    expected = function(torch)
    actual = function(ours() if lib is None else lib)
    check(actual, expected, rtol)
    return actual


def check(actual: Any, expected: Any, rtol: float = 1e-5, where: str = "the result") -> None:
    """Compare values, dtypes, shapes and places in the graph, also inside containers."""
    if torch.is_tensor(expected):
        assert isinstance(actual, (tg.Tensor, telegrad_engine.Tensor)), f"{where} is {actual!r}, not a tensor"
        assert tuple(actual.shape) == tuple(expected.shape), where
        assert f"torch.{actual.dtype.name}" == str(expected.dtype), where
        assert (actual.requires_grad, actual.is_leaf) == (expected.requires_grad, expected.is_leaf), where
        assert (actual.grad_fn is None) == (expected.grad_fn is None), where
        values = actual.detach().numpy()
        if expected.dtype is torch.bfloat16:  # NumPy has no such dtype
            values, expected = values.astype(np.float32), expected.float()
        np.testing.assert_allclose(values, expected.detach().numpy(), rtol, 1e-12, err_msg=where)
    elif isinstance(expected, torch.dtype):
        assert f"torch.{actual.name}" == str(expected), where
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), where
        for key, value in expected.items():
            check(actual[key], value, rtol, f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), where
        for i, value in enumerate(expected):
            check(actual[i], value, rtol, f"{where}[{i}]")
    elif isinstance(expected, str):
        assert actual.replace("telegrad.", "torch.") == expected, where  # dtypes and shapes contain the library's name
    elif isinstance(expected, float):
        np.testing.assert_allclose(actual, expected, rtol, err_msg=where)
    else:
        assert actual == expected, where


def same_error(function: Callable[[Any], Any], containing: str = "", whole: bool = False) -> Exception:
    """Return the error of ``function`` on Telegrad, after comparing its class and first sentence with torch's.

    With ``whole``, the whole text is compared.
    """
    theirs, mine = error_of(function, torch), error_of(function, ours())
    kind = next(kind for kind in BUILTINS if isinstance(theirs, kind))
    assert isinstance(mine, kind), f"{mine!r} where torch raises {theirs!r}"
    if whole:
        assert str(mine).replace("telegrad", "torch") == str(theirs)
    assert _first_sentence(str(mine)) == _first_sentence(str(theirs))
    assert containing in str(mine)
    return mine


def error_of(function: Callable[[Any], Any], library: Any) -> Exception:
    """The exception that ``function(library)`` raises."""
    try:
        result = function(library)
    except Exception as error:  # every exception is compared
        return error
    raise AssertionError(f"{library.__name__} raised nothing and gave {result!r}")


def _first_sentence(text: str) -> str:
    return re.split(r"\. |\n", text)[0].replace("telegrad", "torch").strip(" .")


def held(session: tg.Session) -> dict[str, list[int]]:
    """Send the recorded instructions and return the session's tensors, with their shapes."""
    session.flush()
    transport: Any = session.recorder.transport
    if session.url == "local://":
        return {name: list(t.shape) for name, t in transport.session.tensors.items()}
    page = httpx.get(f"{session.url}/v1/sessions/{transport.session_id}/tensors", params={"limit": 1000})
    return {item["id"]: item["shape"] for item in page.raise_for_status().json()["items"]}


def bodies(cls: type[Any]) -> list[Any]:
    """The public functions of a class, each of which takes a library."""
    return [body for name, body in vars(cls).items() if not name.startswith("_")]
