"""Type promotion and autocast policies: the dtype in which an op computes.

Promotion derives it, and the result's dtype, from the dtypes of the inputs. Autocast chooses the precision by device
type, as torch lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..context import state

Choose = Callable[[tuple[Any, ...]], "np.dtype[Any]"]
"""Returns a dtype for arrays, Specs, numbers and None."""


def default_float() -> np.dtype[Any]:
    """The default dtype of new floating-point tensors."""
    return state.default_dtype


def common_dtype(values: tuple[Any, ...]) -> np.dtype[Any]:
    """The dtype to compute in, by torch's promotion rules; None values are ignored."""
    return dtypes.result_type(tuple([v for v in values if v is not None]), default_float())


def common_float(values: tuple[Any, ...]) -> np.dtype[Any]:
    """Like :func:`common_dtype`, but the default floating dtype for integers and bools."""
    dtype = common_dtype(values)
    return dtype if dtype in dtypes.FLOATING else default_float()


def common_count(values: tuple[Any, ...]) -> np.dtype[Any]:
    """Like :func:`common_dtype`, but int64 for bools."""
    dtype = common_dtype(values)
    return dtypes.int64.numpy if dtype == dtypes.bool_.numpy else dtype


class Promotion(NamedTuple):
    """How an op promotes its inputs, which are converted before the kernel runs."""

    common: Choose = common_dtype
    """The dtype of the result."""
    widens: bool = False
    """Whether float16 and bfloat16 are computed in float32."""
    unpromoted: int = 0
    """The number of leading inputs, such as a condition, that neither affect the dtype nor are converted."""
    to_bool: bool = False
    """Whether the result is a bool tensor, whatever the inputs are compared in."""
    whole: bool = False
    """Whether the op refuses floats."""

    def result(self) -> Choose:
        """The function that returns the dtype of the result."""
        common, lead = self.common, self.unpromoted
        if self.to_bool:
            return lambda inputs: dtypes.bool_.numpy
        return (lambda inputs: common(inputs[lead:])) if lead else common

    @property
    def words(self) -> str:
        """The dtype of the result, for documentation."""
        if self.to_bool:
            return "bool"
        if self.common is common_float:
            return "the promoted dtype, or the default dtype for integers and bools"
        return "the promoted dtype, or int64 for bools" if self.common is common_count else "the promoted dtype"

    def computed(self) -> Choose:
        """The function that returns the dtype to compute in."""
        common, lead = self.common, self.unpromoted
        if not self.widens:
            return (lambda inputs: common(inputs[lead:])) if lead else common

        def widened(inputs: tuple[Any, ...]) -> np.dtype[Any]:
            dtype = common(inputs[lead:])
            return dtypes.float32.numpy if dtype in dtypes.LOW else dtype

        return widened


COMMON = Promotion(widens=True)
"""The inputs' common dtype, but float32 for float16 and bfloat16."""
UNWIDENED = Promotion()
"""The inputs' common dtype."""
FLOATS = Promotion(common_float, widens=True)
"""As ``COMMON``, but integers are computed in the default floating dtype."""
COUNTS = Promotion(common_count, widens=True)
"""As ``COMMON``, but bools are computed in int64."""
WHOLE = Promotion(whole=True)
"""The common dtype of inputs that are integers or bools."""
TO_BOOL = Promotion(to_bool=True)
"""Compared in the inputs' common dtype; the result is bool."""


class Policy(Enum):
    """How autocast casts the inputs of an op. The ops that a composite op calls are then not cast by their own."""

    LOWER = "lower precision"
    """Cast to autocast's dtype."""
    FLOAT32 = "float32"
    """Cast to float32."""
    RESULT_FLOAT32 = "a float32 result"
    """Compute in float32, unless the call names a dtype."""
    PROMOTE = "the widest of the inputs' dtypes"
    """Cast to autocast's dtype, or to float32 if one of the inputs is float32."""
    AS_GIVEN = "the dtypes given"
    """Cast neither the op's inputs nor those of the ops it is composed of."""
    REFUSED = "refused"
    """Raise an error that names the safe alternative: the op is unsafe in low precision."""


class Autocast(NamedTuple):
    """The policy on each device type; with None, an op runs in the dtypes given, a composite one as its parts."""

    cpu: Policy | None = None
    cuda: Policy | None = None


UNCAST = Autocast()
LOWER = Autocast(Policy.LOWER, Policy.LOWER)
LOWER_ON_CUDA = Autocast(cuda=Policy.LOWER)
FLOAT32 = Autocast(Policy.FLOAT32, Policy.FLOAT32)
FLOAT32_ON_CPU = Autocast(cpu=Policy.FLOAT32)
FLOAT32_ON_CUDA = Autocast(cuda=Policy.FLOAT32)
RESULT_FLOAT32_ON_CUDA = Autocast(cuda=Policy.RESULT_FLOAT32)
PROMOTE = Autocast(Policy.PROMOTE, Policy.PROMOTE)
PROMOTE_ON_CUDA = Autocast(cuda=Policy.PROMOTE)
