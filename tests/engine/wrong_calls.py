"""How calls fail, on torch and on the engine.

A line is a call as a user writes it; ``torch`` is either library, ``t`` its ``tensor``, and ``F`` its
``nn.functional``. ``f`` is float32 of shape (2, 3), ``v`` a vector of 3, ``s`` a 0-dim tensor, ``m`` a square matrix,
``c`` of shape (2, 3, 4), ``e`` an empty tensor (0, 3), ``i`` int64 of shape (2, 3), ``b`` bool, ``d`` float64.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ..client.parity import ENGINE
from . import oracle


def names(library: Any) -> dict[str, Any]:
    """What the calls may refer to."""

    def ones(*shape: int) -> Any:
        return library.ones(shape)

    def assign(x: Any, index: Any, value: Any) -> None:
        x[index] = value

    def ctc(inputs: list[int], targets: list[int], labels: Any = None, **options: Any) -> Any:
        """The loss of a batch of two sequences of five steps over four classes."""
        labels = library.tensor([[1, 2], [3, 3]]) if labels is None else labels
        lengths = library.tensor(inputs), library.tensor(targets)
        return library.nn.functional.ctc_loss(ones(5, 2, 4), labels, *lengths, **options)

    f = library.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])
    return {
        "torch": library,
        "t": library.tensor,
        "F": library.nn.functional,
        "ones": ones,
        "assign": assign,
        "ctc": ctc,
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


OURS, THEIRS = names(ENGINE), names(torch)
BASES = (*oracle.ERROR_BASES, AttributeError, OverflowError, KeyError)


def failure(call: str, known: dict[str, Any]) -> oracle.Failure | None:
    """How the call fails, without torch's C++ frames; None where it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(call, {**known})
    except BASES as error:
        kind = next(base for base in BASES if isinstance(error, base))
        return oracle.Failure(kind, str(error).partition("\nException raised")[0])
    return None


def texts(call: str) -> tuple[str, str]:
    """Our words and torch's, of exceptions of the same class."""
    theirs, ours = failure(call, THEIRS), failure(call, OURS)
    assert theirs is not None, "torch does not raise"
    assert ours is not None, f"torch raises {theirs}"
    assert ours.kind is theirs.kind, f"{ours} is not {theirs}"
    return ours.text, theirs.text


def calls(*tables: str) -> list[str]:
    """The lines of tables of calls."""
    return [line for table in tables for line in table.strip().splitlines()]
