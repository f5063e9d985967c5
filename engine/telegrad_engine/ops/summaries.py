"""The least with the largest element, and the distance of two tensors."""

from __future__ import annotations

from typing import Any

from ..schema.cases import T, case
from ..schema.op import composite
from ..schema.parameters import Array, Bool, Number, OptionalInt


@composite(
    outputs=("min", "max"),
    cases=[case(T(2, 3)), case(T(2, 3), dim=1), case(T(3, values=[1.0, 2.0, 2.0]), dim=0, keepdim=True), case(T())],
)
def aminmax(F: Any, input: Array, *, dim: OptionalInt = None, keepdim: Bool = False) -> Any:
    """The smallest and the largest elements along ``dim``, or of all; ties share the gradient evenly."""
    over = () if dim is None else (dim,)
    return aminmax.bundle((F.amin(input, over, keepdim), F.amax(input, over, keepdim)))


@composite(cases=[case(T(2, 3), T(2, 3)), case(T(3), T(2, 3), 1), case(T(2, 2), T(2, 1), 3.5), case(T(2), T(3))])
def dist(F: Any, input: Array, other: Array, p: Number = 2) -> Any:
    """The ``p``-norm of the difference."""
    return F.linalg_vector_norm(input - other, p)
