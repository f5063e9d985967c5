"""Every op with one argument made wrong, on torch and on ours: what torch refuses is refused, by the same class.

The calls are those of the ops' cases that torch takes, with one argument at a time replaced: a dimension out of range,
a negative or a huge size, a number that is none, a tensor of another dtype or shape, a thing of another kind.
Whatever comes, ours raise an error of their own or none: never NumPy's, and no warning.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine.errors import TelegradError
from telegrad_engine.schema.op import CATALOGUE, Op

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case
from . import oracle

HUGE = 2**60
"""A size that no machine has room for: torch refuses it before it asks for memory."""

BASES = (AssertionError, OverflowError, AttributeError, ZeroDivisionError, *oracle.ERROR_BASES)

CASES_PER_OP = 2
"""The first that torch takes: more show the same again."""


class Fault(NamedTuple):
    """What is wrong with a call, of which parameter, and the call."""

    what: str
    where: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def wrong_tensors(array: np.ndarray) -> Iterator[tuple[str, Any]]:
    """What may stand wrongly for a tensor of these values."""
    for dtype in ("float32", "int64", "bool"):
        if array.dtype.name != dtype:
            yield "dtype", array.astype(dtype)
    yield "shape", array[None]
    yield "shape", np.zeros((0,), array.dtype)
    if array.ndim:
        yield "shape", array.reshape(-1)[:1].reshape(()) if array.size else np.zeros((), array.dtype)
        yield "shape", np.concatenate([array, array[..., :1]], -1)
    yield from (("kind", wrong) for wrong in (None, "a", [1.5]))


def wrong_values(value: Any) -> Iterator[tuple[str, Any]]:
    """What may stand wrongly for ``value``, and what is wrong with it."""
    if isinstance(value, np.ndarray):
        yield from wrong_tensors(value)
    elif isinstance(value, bool):
        yield from (("kind", wrong) for wrong in (None, "a", 1.5))
    elif isinstance(value, int):
        yield from (("range", wrong) for wrong in (99, -99))
        yield "huge", HUGE
        yield from (("wide", wrong) for wrong in (2**70, -(2**70)))
        yield from (("kind", wrong) for wrong in (1.5, "a", None, math.nan))
    elif isinstance(value, float):
        yield from (("non-finite", wrong) for wrong in (math.nan, math.inf, -math.inf))
        yield from (("range", wrong) for wrong in (99.5, -99.5))
        yield from (("kind", wrong) for wrong in ("a", [value]))
    elif isinstance(value, str):
        yield from (("word", wrong) for wrong in ("nothing", "", 3))
    elif isinstance(value, (list, tuple)):
        yield from (("kind", wrong) for wrong in ("a", 1.5, [None]))
        yield "length", type(value)([*value, *value[-1:]])
        for i, element in enumerate(value):
            for what, wrong in wrong_values(element):
                yield what, type(value)([*value[:i], wrong, *value[i + 1 :]])


def faults(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Fault]:
    """The call with each argument in turn made wrong in each way."""
    for i, value in enumerate(args):
        where = op.params[i].name if i < len(op.params) else "more"
        for what, wrong in wrong_values(value):
            yield Fault(what, where, (*args[:i], wrong, *args[i + 1 :]), kwargs)
    for name, value in kwargs.items():
        for what, wrong in wrong_values(value):
            yield Fault(what, name, args, {**kwargs, name: wrong})


def filled(case: Case) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a case with arrays in the tensors' places."""
    arrays = oracle.arrays_of(case, np.dtype("float32"))

    def fill(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(fill, value))
        return arrays.get(id(value), value) if isinstance(value, oracle.T) else value  # type: ignore[attr-defined]

    return tuple(map(fill, case.args)), {name: fill(value) for name, value in case.kwargs.items()}


def left_out(op: Op, theirs: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The numbers that the call leaves at their defaults, as far as torch takes them by these names."""
    rest = {p.name: p.default for i, p in enumerate(op.params) if i >= len(args) and p.name not in kwargs}
    numbers = {name: value for name, value in rest.items() if type(value) in (int, float)}
    return {k: v for k, v in numbers.items() if attempt(theirs, args, {**kwargs, k: v}, torch) is None}


def attempt(function: Any, args: Any, kwargs: Any, library: Any) -> Exception | None:
    """How the call fails with the tensors and dtypes of ``library``; None where it does not."""

    def make(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return library.tensor(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(make, value))
        if isinstance(value, str) and value in oracle.DTYPE_NAMES:
            return oracle.dtype_of(torch if library is torch else tg.dtypes, value)
        return value

    try:
        function(*map(make, args), **{name: make(value) for name, value in kwargs.items()})
    except Exception as error:
        return error
    return None


def base_of(error: Exception) -> type[BaseException]:
    """The built-in class that an error is caught by."""
    return next((base for base in BASES if isinstance(error, base)), type(error))


def tried(op: Op) -> Iterator[tuple[Fault, Exception | None, Exception | None]]:
    """The wrong calls of an op, with how ours and torch's fail."""
    ours, theirs = oracle.our_function(op), oracle.torch_function(op)
    taken = 0
    for case in cases_of(op):
        try:
            args, kwargs = filled(case)
        except (ValueError, OverflowError):
            continue
        if attempt(theirs, args, kwargs, torch) is not None:
            continue  # wrong already
        for fault in faults(op, args, {**kwargs, **left_out(op, theirs, args, kwargs)}):
            mine = attempt(ours, fault.args, fault.kwargs, tg)
            dies = (op.key, fault.what, fault.where) in TORCH_DIES
            yield fault, mine, None if dies else attempt(theirs, fault.args, fault.kwargs, torch)
        taken += 1
        if taken == CASES_PER_OP:
            return


TORCH_DIES = {
    *(("lstm", "shape", name) for name in ("input", "params")),
    *(("linalg_lstsq", "shape", name) for name in ("input", "b")),
    *(("embedding_bag", "shape", name) for name in ("input", "weight", "offsets")),
    ("conv2d", "huge", "padding"),
    ("fold", "huge", "padding"),
    ("max_pool1d", "huge", "kernel_size"),
}
"""Calls that torch does not survive, or does not come back from; of these ours are held to fail by their own errors."""

BINDING = re.compile(r"(?:TensorBase\.)?(\w+)\(\)(?:: argument '| received an invalid combination)")
"""What torch says where arguments fit no signature. It names positions and overloads, ours have one signature."""

OTHER_CLASS = {
    ("alpha_dropout", "non-finite"): "torch has two, and the one in torch.nn.functional raises ValueError, as here",
    ("alpha_dropout", "range"): "as for what is not finite",
    ("index_fill", "shape"): "torch fails on strides, before it looks at the indices",
}
"""Where ours refuse by another class, and why."""

OTHER_WORDS = {
    "broadcast_to": "torch overflows",
    "conv_transpose1d": "torch fails in the library that computes it",
    "convolution": "as conv_transpose1d",
    "expand": "torch overflows",
    "expand_copy": "torch overflows",
    "lstm": "torch fails on a slice of the parameters",
}
"""Where ours, on a number out of range, say something else, and why."""

TAKEN = {
    "arange": "None for an end left out",
    "combinations": "there is none of so many elements, and torch overflows",
    "eye": "None for a number of columns left out",
    "max_unpool2d": "a window for one dimension more",
    "max_unpool3d": "a window for one dimension more",
    "squeeze": "None for all dimensions",
    "squeeze_copy": "None for all dimensions",
}
"""What ours take and torch does not, and why it does no harm."""

OPS = [op for op in CATALOGUE if cases_of(op) and not op.internal and op.name not in oracle.SPELLED_OTHERWISE]


def essence(error: Exception) -> str:
    """The words, without torch's C++ frames; of a call that fits no signature, the function's name."""
    text = str(error)
    binding = BINDING.match(text)
    return binding[1] if binding else text.partition("\nException raised")[0]


def is_comparable(what: str, other: Exception) -> bool:
    """Whether torch's class says something: what is no argument at all, its functions in Python stumble over later."""
    return what not in ("kind", "word", "wide", "length") or (what == "kind" and BINDING.match(str(other)) is not None)


class Amiss(NamedTuple):
    """How ours took a wrong call otherwise than torch: ``taken``, another ``class`` or ``words``, or ``raw``."""

    how: str
    what: str
    text: str

    def is_known(self, op: Op) -> bool:
        """Whether one of the lists says why."""
        return (
            (self.how == "taken" and op.key in TAKEN)
            or (self.how == "class" and (op.key, self.what) in OTHER_CLASS)
            or (self.how == "words" and op.key in OTHER_WORDS)
        )


def difference(what: str, mine: Exception | None, other: Exception | None) -> Amiss | None:
    """What is amiss in how ours took a wrong call; None if nothing is."""
    if mine is not None and not isinstance(mine, TelegradError):
        return Amiss("raw", what, f"{mine!r} is no error of ours")
    if other is None:
        return None
    if mine is None:
        return Amiss("taken", what, f"torch raises {other!r}")
    if not is_comparable(what, other):
        return None
    if base_of(mine) is not base_of(other):
        return Amiss("class", what, f"{mine!r} is not {other!r}")
    if what in ("range", "non-finite") and essence(mine) != essence(other):
        return Amiss("words", what, f"{mine!r} does not read {other!r}")
    return None


def brief(value: Any) -> Any:
    """An argument as it is to be read: of tensors the dtype and the shape."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return [*map(brief, value)]
    return {name: brief(v) for name, v in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_wrong_argument_is_refused_as_by_torch(op: Op, device: str) -> None:
    if device != "cpu":
        pytest.skip("the rules are the same everywhere")
    found, known = {}, set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's
        for fault, mine, other in tried(op):
            amiss = difference(fault.what, mine, other)
            if amiss is not None and amiss.is_known(op):
                known.add((amiss.how, amiss.what if amiss.how == "class" else ""))
            elif amiss is not None:
                found[f"{fault.what}: {op.name}{brief(fault.args)}{brief(fault.kwargs)}"] = amiss.text
    assert not found
    listed = {("class", what) for key, what in OTHER_CLASS if key == op.key}
    listed |= {(how, "") for how, reasons in (("taken", TAKEN), ("words", OTHER_WORDS)) if op.key in reasons}
    assert known == listed, "no difference: take it off the list"


def test_exceptions_are_of_ops_in_the_catalogue() -> None:
    keys = {op.key for op in OPS}
    assert {*OTHER_WORDS, *TAKEN, *(key for key, _ in OTHER_CLASS), *(key for key, _, _ in TORCH_DIES)} <= keys


def test_no_memory_is_an_error_of_ours_too() -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        tg.functions.zeros(2**45)  # of bytes as many as there are addresses; what is larger is refused by the rule


def test_numpy_is_quiet_about_our_arithmetic_and_not_about_yours() -> None:
    program = """
import numpy as np
import telegrad_engine as tg

x = tg.tensor([-1.0, 0.0, 1000.0], requires_grad=True)
for y in (x.sqrt(), x.log(), x.exp() * 1e30, x / 0, x ** 0.5, x.softmax(0), tg.linalg.det(x * x.unsqueeze(1) / 0)):
    y.sum().backward()
np.sqrt(-1.0)
"""
    ran = subprocess.run([sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, check=True)
    warned = [line for line in ran.stderr.splitlines() if "Warning" in line]
    assert len(warned) == 1
    assert warned[0].startswith("<string>:")
