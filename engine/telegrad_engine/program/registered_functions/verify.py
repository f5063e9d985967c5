"""Checks the derivative of a registered function against differences of its forward, on random inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...autograd import gradcheck
from ...errors import GradcheckError, InvalidFunction, InvalidValue, LimitExceeded, TelegradError
from ...tensor.eager import Tensor
from .budget import SharedBudget
from .function import Applicable
from .limits import MAX_VERIFIED
from .reader import is_list

SHAPES = ((2, 3), (3,), (3, 3), ())
"""What is tried for inputs whose shapes nobody says, the same for all."""


def verify(
    function: Applicable, shapes: Sequence[Sequence[int]] | None = None, parameters: Mapping[str, Any] | None = None
) -> None:
    """Raise GradcheckError if a gradient is wrong, InvalidFunction if no inputs are found that it takes.

    ``shapes`` are those of the inputs, random numbers in float64; ``parameters`` stand for those without default.
    Raises LimitExceeded if it takes too many numbers, gives too many, or does too much in all calls together.
    """
    given, budget = parameters or {}, SharedBudget()

    def call(*tensors: Any) -> tuple[Any, ...]:
        outputs = function.call(tensors, given, budget)
        budget.close()  # the memory of one call, not of all
        return tuple(outputs)

    inputs = _inputs(function, shapes, call)
    try:
        gradcheck(call, inputs)
    except GradcheckError as error:
        raise GradcheckError(f"{function.name}: {error.detail}", **error.context) from None


def _inputs(function: Applicable, shapes: Any, call: Any) -> tuple[Tensor, ...]:
    """Random inputs that forward takes."""
    generator = np.random.default_rng(0)
    tried = [[shape] * function.inputs for shape in SHAPES] if shapes is None else [_checked(shapes)]
    failure: str | None = None
    for attempt in tried:
        inputs = tuple([Tensor(generator.standard_normal(tuple(shape))).requires_grad_() for shape in attempt])
        try:
            outputs = call(*inputs)
        except LimitExceeded:
            raise
        except TelegradError as error:
            failure = failure or str(error)
            continue
        _check_count("gives", sum(output.numel() for output in outputs))
        return inputs
    raise InvalidFunction(f"{function.name} cannot be verified: it does not take random inputs ({failure})")


def _checked(shapes: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    for shape in shapes:
        if not is_list(shape) or any(type(size) is not int or size < 0 for size in shape):
            raise InvalidValue(f"shapes has a list of sizes for each input, not {shape!r:.60}")
    _check_count("takes", sum(math.prod(shape) for shape in shapes))
    return shapes


def _check_count(verb: str, count: int) -> None:
    """Refuse inputs or outputs whose differences would take too long: each number is varied by itself."""
    if count > MAX_VERIFIED:
        raise LimitExceeded(
            f"the function {verb} {count} numbers, at most {MAX_VERIFIED} are verified; give small shapes"
        )
