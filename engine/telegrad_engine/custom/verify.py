"""Checks the derivative of a registered function against differences of its forward, on random inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..autograd import gradcheck
from ..errors import GradcheckError, InvalidFunction, TelegradError
from ..tensor import Tensor
from .function import Applicable

SHAPES = ((2, 3), (3,), (3, 3), ())
"""What is tried for inputs whose shapes nobody says, the same for all."""


def verify(
    function: Applicable, shapes: Sequence[Sequence[int]] | None = None, parameters: Mapping[str, Any] | None = None
) -> None:
    """Raise GradcheckError if a gradient is wrong, InvalidFunction if no inputs are found that it takes.

    ``shapes`` are those of the inputs, random numbers in float64; ``parameters`` stand for those without default.
    """
    given = parameters or {}
    inputs = _inputs(function, shapes, given)
    try:
        gradcheck(lambda *tensors: tuple(function.call(tensors, given)), inputs)
    except GradcheckError as error:
        raise GradcheckError(f"{function.name}: {error.detail}", **error.context) from None


def _inputs(function: Applicable, shapes: Any, parameters: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Random inputs that forward takes."""
    generator = np.random.default_rng(0)
    tried = [shapes] if shapes is not None else [[shape] * function.inputs for shape in SHAPES]
    failure: TelegradError | None = None
    for attempt in tried:
        inputs = tuple([Tensor(generator.standard_normal(tuple(shape))).requires_grad_() for shape in attempt])
        try:
            function.call(inputs, parameters)
        except TelegradError as error:
            failure = failure or error
            continue
        return inputs
    raise InvalidFunction(f"{function.name} cannot be verified: it does not take random inputs ({failure})")
