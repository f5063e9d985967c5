"""Cases of the ops in ``ops/nn/ctc_loss.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case


def lengths(*values: int) -> T:
    return T(values=list(values), dtype="int64")


LOGS = T(5, 2, 4, low=-3.0, high=-0.5)

LABELS = T(values=[[1, 2], [3, 3]], dtype="int64")

CASES = [
    case(LOGS, LABELS, lengths(5, 5), lengths(2, 2)),
    case(LOGS, LABELS, lengths(5, 4), lengths(2, 1), reduction="none"),
    case(LOGS, LABELS, lengths(5, 3), lengths(0, 2), reduction="sum"),
    case(LOGS, T(values=[1, 2, 0], dtype="int64"), lengths(5, 4), lengths(2, 1), 3),
    case(LOGS, LABELS, lengths(5, 2), lengths(2, 2), zero_infinity=True),
    case(LOGS, LABELS, lengths(5, 2), lengths(2, 2), reduction="none"),
    case(T(5, 4, low=-3.0, high=-0.5), T(values=[1, 1], dtype="int64"), lengths(5), lengths(2)),
    case(LOGS, LABELS, lengths(5, 5), lengths(2, 2), 4),
    case(LOGS, LABELS, lengths(5), lengths(2, 2)),
]


CASES: Cases = {  # type: ignore[no-redef]
    "ctc_loss": CASES,
    "ctc_loss.lengths": [case(LOGS, LABELS, (5, 4), (2, 1)), case(LOGS, LABELS, [5, 4], [2, 1], 0, "sum")],
}
