"""Cases of the ops in ``ops/shape/creation.py``."""

from __future__ import annotations

from ..stand_ins import Cases, T, case

SIZES = [case((2, 3)), case(()), case((0, 2)), case((2,), dtype="int64")]

LIKES = [case(T(2, 3)), case(T()), case(T(0, 2)), case(T(2), dtype="int64")]

LENGTHS = [case(4), case(5, False), case(1), case(0), case(4, dtype="float64"), case(-1), case(4, dtype="int64")]


CASES: Cases = {
    "zeros": SIZES,
    "ones": SIZES,
    "empty": [],
    "full": [case((2, 3), 1.5), case((2,), 3), case((), True), case((2,), 1, dtype="float32")],
    "zeros_like": LIKES,
    "ones_like": LIKES,
    "empty_like": [],
    "full_like": [case(T(2, 3), 1.5), case(T(0), 1.0), case(T(), 2.0)],
    "new_zeros": [case(T(2), (3, 2)), case(T(2), ())],
    "new_ones": [case(T(2), (3, 2))],
    "new_full": [case(T(2), (3, 2), 1.5)],
    "arange": [
        case(5),
        case(2, 7),
        case(0, 1, 0.25),
        case(5, 0, -2),
        case(3, dtype="float32"),
        case(0),
        case(0.5, 3),
    ],
    "arange.end": [case(end=5), case(end=2.5), case(end=0), case(end=3, dtype="float32")],
    "linspace": [case(0, 1, 5), case(-2.0, 3.0, 4), case(0.0, 1.0, 1), case(0.0, 1.0, 0)],
    "logspace": [
        case(0, 2, 3),
        case(-1.0, 1.0, 4, 2.0),
        case(0, 10, 4, base=2, dtype="int64"),
        case(0.5, 2.0, 1),
        case(0.0, 1.0, 0),
        case(0, 2, 4, -2.0),
        case(0, 2, 4, 0.0),
        case(0, 2, -3),
    ],
    "eye": [case(3), case(2, 4), case(0), case(3, dtype="int64")],
    "clone": [case(T(2, 3)), case(T()), case(T(0))],
    "clone.memory_format": [
        case(T(2, 3, 2, 4), memory_format="channels_last"),
        case(T(1, 2, 3, 2, 2), memory_format="channels_last_3d"),
        case(T(2, 3), memory_format="contiguous_format"),
        case(T(2, 3), memory_format="preserve_format"),
        case(T(2, 3), memory_format="channels_last"),
    ],
    "cast": [case(T(2, 3), "float64"), case(T(2, 3), "int64"), case(T(2, 3), "bool"), case(T(0), "float32")],
    "to": [case(T(2, 3), dtype="float64"), case(T(2, 3), dtype="float32"), case(T(2), dtype="int64")],
    "to.dtype": [case(T(2, 3), "float64"), case(T(2, 3), "float32", copy=True)],
    "to.other": [case(T(2, 3), T(3, dtype="float64")), case(T(2, 3), T(3, dtype="int64"))],
    "contiguous": [case(T(2, 3)), case(T(2, 3, 2, 4), memory_format="channels_last")],
    "copy": [case(T(2, 3), T(2, 3)), case(T(2, 3), T(3)), case(T(2, 3), T()), case(T(0, 3), T(3))],
    "fill": [case(T(2, 3), 1.5), case(T(2, 3), T()), case(T(0), 2)],
    "zero": [case(T(2, 3)), case(T())],
    "bartlett_window": LENGTHS,
    "blackman_window": LENGTHS,
    "hann_window": LENGTHS,
    "hamming_window": [*LENGTHS, case(4, True, 0.5), case(4, True, 0.5, 0.4)],
    "kaiser_window": [*LENGTHS, case(4, False, 8.0)],
    "range": [case(1, 3), case(0, 3, 0.5), case(5, 0, -2), case(3, 0), case(0, 3, 0)],
    "scalar_tensor": [case(3), case(2.5), case(True), case(3.5, dtype="int64")],
}
