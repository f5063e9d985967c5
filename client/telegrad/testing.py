"""``telegrad.testing``: ``assert_close`` and ``make_tensor``, as in torch.

The compared values are fetched; the error texts are torch's.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from telegrad_engine.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    from_numpy,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    uint8,
)
from telegrad_engine.errors import InvalidArgument, InvalidValue

from .exclusions import attribute_of
from .sessions.session import current
from .tensor.handle import Tensor, functions, upload

TOLERANCES = {
    float16: (1e-3, 1e-5),
    bfloat16: (1.6e-2, 1e-5),
    float32: (1.3e-6, 1e-5),
    float64: (1e-7, 1e-7),
}
"""The relative and the absolute tolerance by dtype; other dtypes are compared exactly."""
Message = str | Callable[[str], str] | None


class _Options(NamedTuple):
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_stride: bool
    allow_subclasses: bool

    def tolerances(self, *dtypes: DType) -> tuple[float, float]:
        """Return the relative and the absolute tolerance for values of these dtypes."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        found = [TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
        return max(r for r, _ in found), max(a for _, a in found)


class _Difference(Exception):
    """The text of a difference, and the keys of the items that contain it."""

    def __init__(self, text: str, path: tuple[Any, ...] = ()) -> None:
        super().__init__(text)
        self.text, self.path = text, path


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise AssertionError unless ``actual`` and ``expected`` are close: ``|a - e| <= atol + rtol * |e|``.

    They are tensors, arrays, numbers, None, or sequences and mappings of them. Tensors must also have the same shape
    and dtype; the tolerances depend on the dtype unless both are given. ``msg`` replaces the text, or is called with it
    and returns another. Raises TypeError for values that cannot be compared, ValueError if only one tolerance is given.

    ``equal_nan`` says whether two NaN are close, and ``check_dtype`` whether dtypes must be equal;
    ``allow_subclasses``, ``check_device``, ``check_layout`` and ``check_stride`` are as in torch.

    Examples:
        >>> tg.testing.assert_close(tg.ones(2), tg.ones(2) + 1e-7)
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise InvalidValue(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    options = _Options(rtol, atol, equal_nan, check_device, check_dtype, check_stride, allow_subclasses)
    try:
        _compare(actual, expected, options, ())
    except _Difference as difference:
        text = difference.text
        if difference.path:
            text += f"\n\nThe failure occurred for item {''.join(f'[{key!r}]' for key in difference.path)}"
        raise AssertionError(msg(text) if callable(msg) else msg or text) from None


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """Deprecated name of :func:`assert_close`; it ignores dtypes and also accepts values that are not tensors.

    ``rtol`` and ``atol`` are the tolerances, ``equal_nan`` says whether two NaN are close, and ``msg`` is the text of
    the error.

    Examples:
        >>> tg.testing.assert_close(tg.ones(2), tg.ones(2) + 1e-7)
    """
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. Please "
        "use `torch.testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    actual, expected = [x if isinstance(x, Tensor) else upload(current().recorder, x) for x in (actual, expected)]
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


# Kinds of values -------------------------------------------------------------------------------------------


def _compare(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    kinds = isinstance(actual, Mapping), isinstance(expected, Mapping)
    if all(kinds):
        _compare_mappings(actual, expected, options, path)
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            raise _Difference(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", path)
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            _compare(a, e, options, (*path, i))
    elif actual is None or expected is None:
        if actual is not expected:
            raise _Difference(f"None mismatch: {actual} is not {expected}", path)
    elif isinstance(actual, bool) and isinstance(expected, bool):
        if actual is not expected:
            raise _Difference(f"Booleans mismatch: {actual} is not {expected}", path)
    elif isinstance(actual, (int, float)) and isinstance(expected, (int, float)):
        _compare_numbers(actual, expected, options, path)
    elif _are_tensors(actual, expected, options):
        _compare_tensors(actual, expected, options, path)
    else:
        raise InvalidArgument(
            f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
        )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _are_tensors(actual: Any, expected: Any, options: _Options) -> bool:
    for kind in (Tensor, np.ndarray):
        if isinstance(actual, kind) and isinstance(expected, kind):
            return options.allow_subclasses or type(actual) is type(expected)
    return False


def _compare_mappings(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    missing, additional = [k for k in expected if k not in actual], [k for k in actual if k not in expected]
    if missing or additional:
        raise _Difference(
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
            f"Additional keys in the actual mapping: {sorted(additional, key=str)}",
            path,
        )
    for key in sorted(actual, key=str):
        _compare(actual[key], expected[key], options, (*path, key))


def _compare_numbers(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    if options.check_dtype and type(actual) is not type(expected):
        raise _Difference(f"The (d)types do not match: {type(actual)} != {type(expected)}.", path)
    kinds = [float64 if isinstance(x, float) else int64 for x in (actual, expected)]
    tolerances = options.tolerances(*kinds)
    if not _close(np.asarray(actual), np.asarray(expected), *tolerances, options.equal_nan):
        raise _Difference(_scalars(actual, expected, *tolerances), path)


def _compare_tensors(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    shapes = [f"torch.Size({list(x.shape)})" for x in (actual, expected)]
    if shapes[0] != shapes[1]:
        raise _Difference(f"The values for attribute 'shape' do not match: {shapes[0]} != {shapes[1]}.", path)
    if options.check_device and isinstance(actual, Tensor) and str(actual.device) != str(expected.device):
        raise _Difference(
            f"The values for attribute 'device' do not match: {actual.device} != {expected.device}.", path
        )
    dtypes = [x.dtype if isinstance(x, Tensor) else from_numpy(x.dtype) for x in (actual, expected)]
    if options.check_dtype and dtypes[0] is not dtypes[1]:
        names = [f"torch.{dtype.name}" for dtype in dtypes]
        raise _Difference(f"The values for attribute 'dtype' do not match: {names[0]} != {names[1]}.", path)
    rtol, atol = options.tolerances(*dtypes)
    common = from_numpy(promote_types(dtypes[0].numpy, dtypes[1].numpy))
    kind = common.numpy if common.is_floating_point else np.dtype(np.int64)
    a, e = [np.asarray(x.detach().numpy() if isinstance(x, Tensor) else x).astype(kind) for x in (actual, expected)]
    close = _close(a, e, rtol, atol, options.equal_nan)
    if not close.all():
        text = _scalars(a.item(), e.item(), rtol, atol) if not a.shape else _tensors(a, e, close, rtol, atol)
        raise _Difference(text, path)


def _close(actual: Any, expected: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    if actual.dtype.kind in "biu" and expected.dtype.kind in "biu" and not (rtol or atol):
        return actual == expected
    with np.errstate(all="ignore"):
        return np.isclose(actual.astype(np.float64), expected.astype(np.float64), rtol, atol, equal_nan)


# Error texts -------------------------------------------------------------------------------------------------


def _scalars(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    difference = abs(actual - expected)
    relative = math.inf if expected == 0 else abs(difference / expected)
    return (
        f"Scalars are not {'close' if rtol or atol else 'equal'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{_allowed(atol, rtol or atol)}\n"
        f"Relative difference: {relative}{_allowed(rtol, rtol or atol)}"
    )


def _tensors(actual: Any, expected: Any, close: Any, rtol: float, atol: float) -> str:
    mismatches, count = int((~close).sum()), close.size
    with np.errstate(all="ignore"):
        difference = np.abs(actual - expected)
        relative = difference / np.abs(expected)
        if actual.dtype.kind in "iu":
            relative = difference.astype(np.float32) / np.abs(expected).astype(np.float32)
    lines = [
        f"Tensor-likes are not {'close' if rtol or atol else 'equal'}!\n",
        f"Mismatched elements: {mismatches} / {count} ({mismatches / count:.1%})",
        f"Greatest absolute difference: {_greatest(difference, close)}{_allowed(atol, rtol or atol)}",
        f"Greatest relative difference: {_greatest(relative, close)}{_allowed(rtol, rtol or atol)}",
    ]
    return "\n".join(lines)


def _greatest(differences: Any, close: Any) -> str:
    wrong = np.where(close, np.zeros((), differences.dtype), differences).astype(differences.dtype)
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    value = wrong[index]
    number = value.item() if wrong.dtype.kind in "iu" else float(value)
    return f"{number} at index {tuple(int(i) for i in index)}"


def _allowed(tolerance: float, any_tolerance: float) -> str:
    return f" (up to {tolerance} allowed)" if any_tolerance else ""


# Making tensors --------------------------------------------------------------------------------------------

_LIMITS = {bool_: (0, 2), int64: (-(2**63), 2**63 - 1)} | {
    dtype: (int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max) + 1) for dtype in (uint8, int8, int16, int32)
}
_FLOATS: dict[DType, Any] = {
    dtype: ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    for dtype in (float16, bfloat16, float32, float64)
}


def make_tensor(
    *shape: Any,
    dtype: DType,
    device: Any = None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Return a tensor of random numbers from ``low`` to ``high`` (excluded), drawn in the session.

    The default range is -9 to 9; for uint8 it starts at 0, and bools have both values. ``exclude_zero`` replaces zeros
    by the smallest positive number. ``noncontiguous`` returns a view of every other element. Raises ValueError for
    bounds that do not fit the dtype, gradients of integers and exclusive options, TypeError for an unknown dtype.

    ``shape`` are the sizes; ``dtype`` and ``requires_grad`` are those of the result; ``device`` and ``memory_format``
    are as in ``zeros``.

    Examples:
        >>> tg.testing.make_tensor(2, 3, dtype=tg.float32, low=0, high=1).shape
        telegrad.Size([2, 3])
    """
    size = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else tuple(shape)
    if noncontiguous and memory_format is not None:
        raise InvalidValue(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got noncontiguous="
            f"{noncontiguous!r} and memory_format={memory_format!r}"
        )
    if dtype not in _LIMITS and dtype not in _FLOATS:
        raise InvalidArgument(
            f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor(). To request support, file "
            "an issue at: https://github.com/pytorch/pytorch/issues"
        )
    if requires_grad and dtype in _LIMITS:
        raise InvalidValue(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype=torch.{dtype.name}"
        )
    first, last = _interval(dtype, low, high)
    if dtype in _LIMITS:
        result = functions.randint(int(first), int(last), size, dtype=dtype if dtype is not bool_ else int64)
        result = result.to(dtype=dtype)
    else:
        unit = functions.rand(size, dtype=float64 if dtype is float64 else float32)
        # This form does not overflow for bounds near the largest number.
        result = (unit * last + (1 - unit) * first).to(dtype=dtype)
    if noncontiguous and result.numel() > 1:
        result = functions.repeat_interleave(result, 2, dim=-1)[..., ::2]
    if exclude_zero:
        smallest = float(_FLOATS[dtype].tiny) if dtype in _FLOATS else 1
        result = functions.where(result == 0, functions.full_like(result, smallest), result)
    made: Tensor = result if device is None else result.to(str(device))
    return made.requires_grad_() if requires_grad else made


def _interval(dtype: DType, low: float | None, high: float | None) -> tuple[float, float]:
    """The bounds of the numbers, with the second one excluded."""
    lowest, highest = _LIMITS.get(dtype) or (float(_FLOATS[dtype].min), float(_FLOATS[dtype].max))
    default = (0, 2) if dtype is bool_ else (0, 10) if dtype is uint8 else (-9, 10) if dtype in _LIMITS else (-9, 9)
    low, high = default[0] if low is None else low, default[1] if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise InvalidValue(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and dtype not in _LIMITS:
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated since 2.1 "
            "and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise InvalidValue(f"`low` must be less than `high`, but got {low} >= {high}")
    if high < lowest or low > highest:
        raise InvalidValue(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but torch.{dtype.name} only "
            f"supports [{lowest}, {highest})"
        )
    low, high = max(low, lowest), min(high, highest)
    return (math.ceil(low), math.ceil(high)) if dtype in _LIMITS else (low, high)


__getattr__ = attribute_of("testing")


__all__ = ["assert_allclose", "assert_close", "make_tensor"]
