"""Helpers that run one function on PyTorch and on Telegrad and compare the results or the errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import torch

import telegrad as tg

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


def same(function: Callable[[Any], Any], rtol: float = 1e-5) -> Any:
    """Return ``function(tg)`` after checking that it equals ``function(torch)``."""
    expected = function(torch)
    actual = function(tg)
    check(actual, expected, rtol)
    return actual


def check(actual: Any, expected: Any, rtol: float = 1e-5, where: str = "the result") -> None:
    """Compare values, dtypes, shapes and places in the graph, also inside containers."""
    if torch.is_tensor(expected):
        assert isinstance(actual, tg.Tensor), f"{where} is {actual!r}, not a tensor"
        assert tuple(actual.shape) == tuple(expected.shape), where
        assert f"torch.{actual.dtype.name}" == str(expected.dtype), where
        assert (actual.requires_grad, actual.is_leaf) == (expected.requires_grad, expected.is_leaf), where
        assert (actual.grad_fn is None) == (expected.grad_fn is None), where
        np.testing.assert_allclose(actual.detach().numpy(), expected.detach().numpy(), rtol, 1e-12, err_msg=where)
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
    """Return the error of ``function(tg)``, after comparing its built-in class and first sentence with torch's.

    With ``whole``, the whole text is compared.
    """
    theirs, ours = error_of(function, torch), error_of(function, tg)
    kind = next(kind for kind in BUILTINS if isinstance(theirs, kind))
    assert isinstance(ours, kind), f"{ours!r} where torch raises {theirs!r}"
    if whole:
        assert str(ours).replace("telegrad", "torch") == str(theirs)
    assert _first_sentence(str(ours)) == _first_sentence(str(theirs))
    assert containing in str(ours)
    return ours


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
