"""Check the derivative of a registered function against finite differences of its forward on random inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...autograd import gradcheck
from ...errors import GradcheckError, InvalidFunction, InvalidValue, LimitExceeded, TelegradError
from ...tensor.eager import Tensor
from .function import Applicable
from .limits import MAX_VERIFIED, Budget
from .reader import is_list

SHAPES = ((2, 3), (3,), (3, 3), ())
"""The shapes to try if none are given; all inputs have the same shape."""


def verify(
    function: Applicable, shapes: Sequence[Sequence[int]] | None = None, parameters: Mapping[str, Any] | None = None
) -> None:
    """Raise GradcheckError if a gradient is wrong, InvalidFunction if no inputs are found that it accepts.

    ``shapes`` are the shapes of the inputs, which are random float64 numbers; ``parameters`` has the values of
    parameters without defaults. Raises LimitExceeded if the inputs or outputs have too many numbers, or all calls
    together run too many instructions.
    """
    given, budget = parameters or {}, Budget(shared=True)

    def call(*tensors: Any) -> tuple[Any, ...]:
        return tuple(function.call(tensors, given, budget))

    inputs = _inputs(function, shapes, call)
    try:
        gradcheck(call, inputs)
    except GradcheckError as error:
        raise GradcheckError(f"{function.name}: {error.detail}", **error.context) from None


def _inputs(function: Applicable, shapes: Any, call: Any) -> tuple[Tensor, ...]:
    """Return random inputs that forward accepts."""
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
    """Raise LimitExceeded if there are too many numbers: each is varied separately, which takes long."""
    if count > MAX_VERIFIED:
        raise LimitExceeded(
            f"the function {verb} {count} numbers, at most {MAX_VERIFIED} are verified; give small shapes"
        )
