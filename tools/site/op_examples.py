"""Example requests of ops, made from the cases that the ops are tested with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.op_cases import cases_of
from tests.op_cases.stand_ins import Case, T, case

from telegrad_engine.errors import TelegradError
from telegrad_engine.schema.op import Op
from telegrad_engine.schema.signature import REQUIRED
from telegrad_engine.tensor.eager import Tensor, apply

from .markdown import compact

MAX_ELEMENTS = 24
NAMES = "abcdefghijklmnopqrstuvw"
FLOAT = np.dtype("float32")
OTHER_CASES = {
    "bernoulli": [case(T(3, low=0.0, high=1.0))],
    "empty": [case((2, 3))],
    "empty_permuted": [case((2, 3), (0, 1))],
    "empty_strided": [case((2, 3), (3, 1))],
    "empty_like": [case(T(2, 3))],
    "multinomial": [case(T(4, low=0.1, high=1.0), 2)],
    "normal": [case(T(3), T(3, low=0.1, high=1.0))],
    "normal.size": [case(0.0, 1.0, (3,))],
    "poisson": [case(T(3, low=0.5, high=4.0))],
    "rand": [case((2, 3))],
    "rand_like": [case(T(2, 3))],
    "randint": [case(1, 7, (4,))],
    "randint.high": [case(7, (4,))],
    "randint_like": [case(T(2, 3), 7)],
    "randint_like.low": [case(T(2, 3), 1, 7)],
    "randn": [case((2, 3))],
    "randn_like": [case(T(2, 3))],
    "randperm": [case(5)],
}
"""Cases of ops whose values are random or arbitrary, so that they are not compared with PyTorch case by case."""
SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""How JSON writes what it has no numbers for."""


def example_request(op: Op) -> str:
    """A command that makes the inputs of an op, applies it and fetches its results; "" if no case is short enough."""
    for arguments in sorted([*cases_of(op), *OTHER_CASES.get(op.key, ())], key=is_large):
        try:
            instructions = Example(op).instructions(arguments)
        except (TelegradError, TypeError, ValueError):
            continue  # not every case can be written as JSON, or is small
        lines = ",\n  ".join(compact(each) for each in instructions)
        return f"curl $programs --json '{{\"instructions\": [\n  {lines}\n]}}'"
    return ""


def is_large(arguments: Case) -> bool:
    """Whether a case has inputs too large to read; such cases come last."""
    return any(isinstance(each, T) and math.prod(each.shape) > MAX_ELEMENTS for each in arguments.args)


class Example:
    """A program with one call of an op."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._made: list[dict[str, Any]] = []
        self._unused = [name for name in NAMES if name not in op.outputs]
        self._names: dict[int, str] = {}
        self._tensors: list[Tensor] = []
        self._rng = np.random.default_rng(0)

    def instructions(self, arguments: Case) -> list[dict[str, Any]]:
        """The instructions of a case. Raises ValueError for a case that is large or empty."""
        op = self._op
        args = [self._replaced(value) for value in arguments.args]
        kwargs = {name: self._replaced(value) for name, value in arguments.kwargs.items()}
        inputs, attrs = op.bind(args, kwargs)
        call: dict[str, Any] = {"op": op.key}
        if inputs:
            call["inputs"] = [self._named(value) for value in inputs]
        kinds = {p.name: p.kind for p in op.attr_params if p.default is REQUIRED or p.name in attrs}
        if attrs:
            call["attrs"] = {name: kinds[name].encode(value) for name, value in attrs.items()}
        with np.errstate(all="ignore"):
            outputs = apply(op, inputs, attrs)  # refuses the cases of errors
        results = list(op.outputs) if len(op.outputs) > 1 else ["y"]
        if op.lists_outputs:
            results = [f"y{number}" for number in range(len(outputs))]
        return [
            *self._made,
            {**call, "outputs": results},
            {"op": "fetch", "inputs": [results]},
            {"op": "free", "inputs": [[*self._names.values(), *results]]},
        ]

    def _replaced(self, value: Any) -> Any:
        """A tensor for a stand-in, and what has tensors in their place."""
        if isinstance(value, (list, tuple)) and any(isinstance(each, T) for each in value):
            return type(value)(self._replaced(each) for each in value)
        if not isinstance(value, T):
            return value
        array = value.make(self._rng, FLOAT)
        name = self._unused.pop(0)
        made, attrs = instruction(array, value)
        self._made.append({"op": made, "outputs": [name], "attrs": attrs})
        tensor = Tensor(array)
        self._tensors.append(tensor)
        self._names[id(tensor)] = name
        return tensor

    def _named(self, value: Any) -> Any:
        """The names of an input's tensors."""
        if isinstance(value, (list, tuple)):
            return [self._named(each) for each in value]
        if isinstance(value, Tensor):
            return self._names[id(value)]
        if value is None or isinstance(value, (bool, int, float)):
            return value
        raise ValueError("not an input in JSON")


def instruction(array: np.ndarray[Any, Any], stand_in: T) -> tuple[str, dict[str, Any]]:
    """The instruction that makes an input, with its attributes: its values, or random ones if they are many."""
    if array.size == 0:
        raise ValueError("not an example to read")
    if array.size > MAX_ELEMENTS:
        if array.dtype != FLOAT or stand_in.values is not None:
            raise ValueError("not an example to read")
        return "rand" if stand_in.low >= 0 else "randn", {"size": list(array.shape)}
    values = np.round(array, 2) if array.dtype.kind == "f" else array
    attrs = {"data": written(values.tolist())}
    if array.dtype.kind != "b" and (array.dtype != FLOAT or np.all(values == np.trunc(values))):
        attrs["dtype"] = str(array.dtype)
    return "tensor", attrs


def written(value: Any) -> Any:
    """Nested lists of numbers as JSON has them."""
    if isinstance(value, list):
        return [written(each) for each in value]
    if isinstance(value, float):
        return SPECIAL.get(str(value), float(f"{value:.4g}"))
    return value
