"""Cases of the ops in ``ops/math/comparison.py``."""

from __future__ import annotations

from ..stand_ins import Cases, M, T, binary, case

COMPARED = [*binary(), case(T(3, values=[1.0, 2.0, 3.0]), T(3, values=[1.0, 3.0, 2.0]))]

LOGICAL = [case(M(2, 3), M(3)), case(T(2, 3), T(2, 3)), case(M(), M(0, 2))]

BITS = [case(M(2, 3), M(3)), case(T(2, 3, low=0, high=9, dtype="int64"), T(3, low=0, high=9, dtype="int64"))]

SPECIAL = [case(T(4, values=[float("nan"), float("inf"), -float("inf"), 1.0])), case(T(2, 3)), case(T(0))]


CASES: Cases = {
    "eq": COMPARED,
    "ne": COMPARED,
    "lt": COMPARED,
    "le": COMPARED,
    "gt": COMPARED,
    "ge": COMPARED,
    "logical_and": LOGICAL,
    "logical_or": LOGICAL,
    "logical_xor": LOGICAL,
    "logical_not": [case(M(2, 3)), case(T(2, 3)), case(T(0))],
    "bitwise_and": BITS,
    "bitwise_or": BITS,
    "bitwise_xor": BITS,
    "bitwise_not": [case(M(2, 3)), case(T(3, low=0, high=9, dtype="int64"))],
    "isnan": SPECIAL,
    "isinf": SPECIAL,
    "isfinite": SPECIAL,
    "where": [
        case(M(2, 3), T(2, 3), T(3)),
        case(M(3), T(2, 1), 0.5),
        case(M(2, 3), 1.0, T()),
        case(M(0, 3), T(3), T(0, 3)),
    ],
}
