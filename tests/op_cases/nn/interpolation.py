"""Cases of the ops in ``ops/nn/interpolation.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case

PLACES = T(2, 3, 2, 2, low=-1.4, high=1.4)

GRIDS = [
    *[
        case(T(2, 3, 4, 5), PLACES, mode, padding_mode, align_corners)
        for mode in ("bilinear", "nearest", "bicubic")
        for padding_mode in ("zeros", "border", "reflection")
        for align_corners in (False, True)
    ],
    case(T(2, 3, 4, 5), T(2, 3, 2, 2, low=-5.0, high=5.0), padding_mode="reflection"),
    case(T(2, 1, 3, 4, 5), T(2, 2, 1, 2, 3, low=-1.4, high=1.4)),
    case(T(2, 1, 3, 4, 5), T(2, 2, 1, 2, 3, low=-1.4, high=1.4), "nearest", "border"),
    case(T(0, 1, 3, 3, dtype="float32"), T(0, 2, 2, 2, dtype="float32")),
    case(T(1, 1, 3, 3), T(1, 2, 2, 3)),
    case(T(1, 1, 3, 3), T(2, 2, 2, 2)),
    case(T(1, 1, 3, 3), T(1, 2, 2, 2), "foo"),
    case(T(1, 1, 3, 3, 3), T(1, 2, 2, 2, 3), "bicubic"),
]


CASES: Cases = {
    "affine_grid": [
        case(T(2, 2, 3), (2, 3, 4, 5)),
        case(T(2, 2, 3), (2, 3, 4, 5), True),
        case(T(1, 3, 4), (1, 1, 2, 3, 4)),
        case(T(1, 3, 4), (1, 1, 2, 3, 4), align_corners=True),
        case(T(2, 2, 3), (2, 3, 1, 1), align_corners=True),
        case(T(2, 3, 4), (2, 3, 4, 5)),
        case(T(2, 2, 3), (3, 3, 4, 5)),
        case(T(2, 2, 3), (2, 3, 4)),
        case(T(2, 2, 3), (2, 3, 0, 4)),
    ],
    "grid_sample": GRIDS,
    "grid_sampler": [case(T(1, 2, 3, 4), T(1, 2, 2, 2, low=-1, high=1), 0, 0, False)],
    "grid_sampler_3d": [case(T(1, 2, 2, 3, 4), T(1, 2, 2, 2, 3, low=-1, high=1), 0, 1, True)],
    "interpolate": [
        case(T(2, 3, 4, 5), (7, 3)),
        case(T(2, 3, 4, 5), scale_factor=2),
        case(T(2, 3, 5), scale_factor=1.7),
        case(T(1, 2, 2, 3, 3), 4),
        case(T(2, 3, 4, 5), (7, 3), mode="bilinear"),
        case(T(2, 3, 4, 5), (7, 3), mode="bilinear", align_corners=True),
        case(T(2, 3, 4, 5), scale_factor=1.7, mode="bilinear", align_corners=False),
        case(T(2, 3, 4, 5), (1, 4), mode="bilinear", align_corners=True),
        case(T(2, 3, 5), 8, mode="linear"),
        case(T(1, 1, 2, 3, 3), 4, mode="trilinear"),
        case(T(2, 3, 4, 5), (7, 3), mode="bicubic"),
        case(T(2, 3, 4, 5), (2, 7), mode="bicubic", align_corners=True),
        case(T(2, 3, 4, 5), scale_factor=1.7, mode="bicubic", recompute_scale_factor=True),
        case(T(2, 3, 4, 5), (7, 3), mode="nearest-exact"),
        case(T(2, 3, 5), scale_factor=1.7, mode="nearest-exact"),
        case(T(2, 3, 4, 5), (3, 2), mode="area"),
        case(T(2, 3, 5), 3, mode="area"),
        case(T(1, 2, 6, 4, 5), (2, 3, 2), mode="area"),
        case(T(2, 3, 4), 3, mode="bicubic"),
        case(T(2, 3, 4), 3, mode="foo"),
        case(T(2, 3, 4), 3, recompute_scale_factor=True),
        case(T(0, 3, 4, 5), 2),
        case(T(1, 1, 3, 3)),
        case(T(1, 1, 3, 3), 2, 2.0),
        case(T(1, 1, 3, 3), (2,)),
        case(T(1, 1, 3), 2, mode="bilinear"),
        case(T(1, 1, 3, 3), 2, align_corners=False),
        case(T(1, 1, 3, 3), 0),
        case(T(1, 3), 2),
    ],
    "interpolate.factors": [
        case(T(2, 3, 4, 5), scale_factor=(2.0, 1.5)),
        case(T(2, 3, 4, 5), None, (0.5, 1.7), "bilinear", True),
        case(T(2, 3, 4, 5), scale_factor=(1.3, 1.7), mode="bicubic", recompute_scale_factor=True),
        case(T(2, 3, 4, 5), scale_factor=[2.0, 1.0, 3.0]),
    ],
}
