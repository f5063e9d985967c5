"""Wrong calls, on torch and on ours: the same built-in exception class with the same words.

A line is a call as a user writes it; ``torch`` is either library. ``f`` is float32 of shape (2, 3), ``v`` a vector
of 3, ``s`` a 0-dim tensor, ``m`` a square matrix, ``c`` of shape (2, 3, 4), ``e`` an empty tensor (0, 3), ``i`` int64
of shape (2, 3), ``b`` bool, ``d`` float64.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch

import telegrad_engine as tg

from . import oracle


def calls(*tables: str) -> list[str]:
    """The lines of tables of calls."""
    return [line for table in tables for line in table.strip().splitlines()]


class Ours:
    """Our library under the name that the calls use."""

    Tensor, tensor, linalg = tg.Tensor, staticmethod(tg.tensor), tg.linalg

    def __getattr__(self, name: str) -> Any:
        return getattr(tg.dtypes, name, None) or getattr(tg.functions, name)


def names(library: Any) -> dict[str, Any]:
    """What the calls may refer to."""
    f = library.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])
    return {
        "torch": library,
        "f": f,
        "d": f.double(),
        "i": library.tensor([[1, 2, 3], [4, 5, 6]]),
        "b": library.tensor([[True, False, True], [False, False, True]]),
        "v": library.tensor([1.0, 2.0, 3.0]),
        "s": library.tensor(1.5),
        "e": library.tensor([]).reshape(0, 3),
        "c": library.tensor([[[float(n + 4 * k) for n in range(4)] for k in range(3)]] * 2),
        "m": library.tensor([[2.0, 1.0], [1.0, 3.0]]),
        "singular": library.tensor([[1.0, 2.0], [2.0, 4.0]]),
    }


OURS, THEIRS = names(Ours()), names(torch)


def failure(call: str, known: dict[str, Any]) -> oracle.Failure | None:
    """How the call fails; None where it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(call, {**known})
    except (*oracle.ERROR_BASES, AttributeError) as error:
        kind = next(base for base in (*oracle.ERROR_BASES, AttributeError) if isinstance(error, base))
        return oracle.Failure(kind, str(error))
    return None


UNBOUND = re.compile(
    r"(?:TensorBase\.)?(\w+)\(\)(?:: argument '| takes | missing | got | received an invalid combination)"
)


def essence(text: str) -> str:
    """The words; of a call whose arguments fit no signature only the function's name.

    There torch names positions, and overloads where we have one signature with defaults; its C++ frames are cut.
    """
    binding = UNBOUND.match(text)
    return binding[1] if binding else text.partition("\nException raised")[0]


def texts(call: str) -> tuple[str, str]:
    """Our words and torch's, of exceptions of the same class."""
    theirs, ours = failure(call, THEIRS), failure(call, OURS)
    assert theirs is not None, "torch does not raise"
    assert ours is not None, f"torch raises {theirs}"
    assert ours.kind is theirs.kind, f"{ours} is not {theirs}"
    return ours.text, theirs.text


def assert_same_error(call: str) -> None:
    """Both raise the same class with the same words."""
    ours, theirs = texts(call)
    assert essence(ours) == essence(theirs)
