"""Autocast policies: the precision in which autocast runs an op, by device type, as torch lists it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


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
