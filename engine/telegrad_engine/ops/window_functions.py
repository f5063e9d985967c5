"""Windows for spectra: ``hann_window`` and its kin; ``range``, and a number as a tensor.

Formulas: the documentation of the functions of the same names in NumPy and SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import from_numpy
from ..errors import InvalidOperation
from ..schema.derivative_plan import Rule
from ..schema.op import default_float, op
from ..schema.parameters import Bool, Int, Number, OptionalDType
from ..shapes import Spec
from .create import _arange_rule, sized

SCRATCH = 8.0
"""Windows are computed in float64, in four arrays at a time."""


def _window_rule(name: str) -> Rule:
    def rule(window_length: int, *_: Any, dtype: Any = None, **__: Any) -> Spec:
        wanted = from_numpy(default_float()) if dtype is None else dtype
        if not wanted.is_floating_point:
            raise InvalidOperation(
                f"{name} expects floating point dtypes, got: TensorOptions(dtype={wanted.c_name}, device=cpu, "
                "layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), "
                "memory_format=(nullopt))"
            )
        if window_length < 0:
            raise InvalidOperation(f"{name} requires non-negative window_length, got window_length={window_length}")
        return sized(name, (window_length,), wanted)

    return rule


def _window(xp: Any, length: int, periodic: bool, dtype: Any, shape: Callable[[Any], Any]) -> Any:
    """``shape`` of the places from 0 to 1; a periodic window is a longer symmetric one without its last element."""
    wanted = default_float() if dtype is None else dtype.numpy
    if length < 2:
        return xp.ones((length,), wanted)
    return shape(xp.arange(length) / (length if periodic else length - 1)).astype(wanted)


def _cosines(xp: Any, *weights: float) -> Callable[[Any], Any]:
    return lambda at: sum(w * xp.cos(2 * math.pi * i * at) for i, w in enumerate(weights))


@op(_window_rule("bartlett_window"), factory=True, scratch=SCRATCH)
def bartlett_window(xp: Any, window_length: Int, periodic: Bool = True, *, dtype: OptionalDType = None) -> Any:
    """Bartlett's window: a triangle."""
    return _window(xp, window_length, periodic, dtype, lambda at: 1 - xp.abs(2 * at - 1))


@op(_window_rule("blackman_window"), factory=True, scratch=SCRATCH)
def blackman_window(xp: Any, window_length: Int, periodic: Bool = True, *, dtype: OptionalDType = None) -> Any:
    """Blackman's window: two cosines."""
    return _window(xp, window_length, periodic, dtype, _cosines(xp, 0.42, -0.5, 0.08))


@op(_window_rule("hann_window"), factory=True, scratch=SCRATCH)
def hann_window(xp: Any, window_length: Int, periodic: Bool = True, *, dtype: OptionalDType = None) -> Any:
    """Hann's window: a cosine that begins at 0."""
    return _window(xp, window_length, periodic, dtype, _cosines(xp, 0.5, -0.5))


@op(
    _window_rule("hamming_window"),
    factory=True,
    scratch=SCRATCH,
)
def hamming_window(
    xp: Any,
    window_length: Int,
    periodic: Bool = True,
    alpha: Number = 0.54,
    beta: Number = 0.46,
    *,
    dtype: OptionalDType = None,
) -> Any:
    """Hamming's window: ``alpha`` less ``beta`` times a cosine."""
    return _window(xp, window_length, periodic, dtype, _cosines(xp, alpha, -beta))


@op(_window_rule("kaiser_window"), factory=True, scratch=22.0)
def kaiser_window(
    xp: Any, window_length: Int, periodic: Bool = True, beta: Number = 12.0, *, dtype: OptionalDType = None
) -> Any:
    """Kaiser's window: Bessel functions, narrower the larger ``beta`` is."""
    if window_length < 2:
        return _window(xp, window_length, periodic, dtype, lambda at: at)
    length = window_length + 1 if periodic else window_length
    wanted = default_float() if dtype is None else dtype.numpy
    return xp.kaiser(length, beta)[:window_length].astype(wanted)


# Numbers -------------------------------------------------------------------------------------------------


def _range_rule(start: Any, end: Any = 0, step: Any = 1, *, dtype: Any = None) -> Spec:
    wanted = from_numpy(default_float()) if dtype is None else dtype
    _arange_rule(start, end, step, dtype=wanted)
    return sized("arange", (math.floor((end - start) / step) + 1,), wanted)


@op(_range_rule, factory=True)
def range_(xp: Any, start: Number, end: Number = 0, step: Number = 1, *, dtype: OptionalDType = None) -> Any:
    """Numbers from ``start`` to ``end``, both included, ``step`` apart; ``arange`` is like Python's own range."""
    n = math.floor((end - start) / step) + 1
    return (start + step * xp.arange(n)).astype(default_float() if dtype is None else dtype.numpy)


@op(
    lambda s, *, dtype=None: sized("scalar_tensor", (), dtype),
    factory=True,
)
def scalar_tensor(xp: Any, s: Number, *, dtype: OptionalDType = None) -> Any:
    """A number as a tensor without dimensions, of the default dtype."""
    return xp.asarray(s).astype(default_float() if dtype is None else dtype.numpy)
