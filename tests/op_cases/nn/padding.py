"""Cases of the ops in ``ops/nn/padding.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case

CASES: Cases = {
    "functional_unfold": [
        case(T(2, 3, 4, 5), 2),
        case(T(3, 4, 5), (2, 3)),
        case(T(1, 2, 6, 5), (3, 2), (2, 1), (1, 0), (1, 2)),
        case(T(2, 1, 3, 3), 3, padding=2, stride=2),
        case(T(0, 3, 4, 5), 2),
        case(T(1, 2, 3, 3, dtype="bool"), 2),
        case(T(4, 5), 2),
        case(T(1, 2, 0, 3), 2),
        case(T(2, 3, 4, 5), 7),
        case(T(2, 3, 4, 5), 0),
        case(T(2, 3, 4, 5), (2, 2, 2)),
        *[case(T(2, 3, 4, 5), 2, **{name: bad}) for name, bad in (("stride", 0), ("dilation", 0), ("padding", -1))],
    ],
    "fold": [
        case(T(2, 12, 12), (4, 5), 2),
        case(T(6, 9), (4, 5), (2, 3)),
        case(T(1, 12, 6), (6, 5), (3, 2), (2, 1), (1, 0), (2, 2)),
        case(T(2, 9, 9), 3, 3, padding=2, stride=2),
        case(T(0, 12, 12), (4, 5), 2),
        case(T(2, 6, 4), (4, 5), (2, 3)),
        case(T(2, 13, 12), (4, 5), 2),
        case(T(2, 12, 11), (4, 5), 2),
        case(T(2, 2, 12, 12), (4, 5), 2),
        case(T(2, 0, 12), (4, 5), 2),
        case(T(2, 12, 12), (4, 5, 3), 2),
        case(T(2, 12, 12), (4, 5), (2, 2, 2)),
        case(T(2, 12, 12), (-4, 5), 2),
        *[
            case(T(2, 12, 12), (4, 5), 2, **{name: bad})
            for name, bad in (("stride", 0), ("dilation", 0), ("padding", -1))
        ],
    ],
    "constant_pad_nd": [
        case(T(2, 3), (1, 2)),
        case(T(2, 3), (1, -1, 0, 2), 1.5),
        case(T(2, 3), (-1, -2)),
        case(T(), ()),
        case(T(0, 2), (1, 1, 1, 0), 2),
        case(T(2, 3), (-2, -2)),
        case(T(2, 3), (1,)),
        case(T(2), (1, 1, 1, 1)),
    ],
    "pad": [
        case(T(2, 3), (1, 2)),
        case(T(2, 3), (1, -1, 2, 0), "constant", 1.5),
        case(T(2, 3), (1,)),
        case(T(2), (1, 1, 1, 1)),
        *[case(T(2, 4), (2, 1), mode=mode) for mode in ("reflect", "replicate", "circular")],
        *[case(T(2, 3, 4), (1, 2, 2, 0), mode=mode) for mode in ("reflect", "replicate", "circular")],
        *[case(T(1, 2, 2, 3), (1, 1, 1, 0, 0, 1), mode=mode) for mode in ("reflect", "replicate", "circular")],
        *[case(T(2, 3), (-1, 2), mode=mode) for mode in ("reflect", "replicate", "circular")],
        *[case(T(2, 3), (3, 0), mode=mode) for mode in ("reflect", "replicate", "circular")],
        *[case(T(2, 3), (4, 0), mode=mode) for mode in ("replicate", "circular")],
        *[case(T(0, 2, 3), (1, 1), mode=mode) for mode in ("reflect", "replicate", "circular")],
        *[case(T(0, 3), (1, 1), mode=mode) for mode in ("reflect", "replicate", "circular")],
        *[case(T(3), (1, 1), mode=mode) for mode in ("reflect", "replicate", "circular")],
        case(T(2, 3), (-2, -1), mode="replicate"),
        case(T(2, 3), (1, 1), "reflect", 1.0),
        case(T(2, 3), (1, 1), "mirror"),
    ],
    "unfold": [
        case(T(7), 0, 3, 2),
        case(T(2, 5, 3), 1, 2, 1),
        case(T(2, 5), -1, 2, 3),
        case(T(5), 0, 0, 1),
        case(T(), 0, 1, 1),
        case(T(0, 3), 1, 2, 1),
        case(T(5), 0, 6, 1),
        case(T(5), 0, -1, 1),
        case(T(5), 0, 2, 0),
    ],
}
