"""Tensor creation: by size, like other tensors, ranges, copies and conversions, and window functions.

Formulas: the documentation of the functions of the same names in NumPy and SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ...arrays import ON_A_GPU, is_on
from ...dtypes import bool_, element, from_numpy, int64
from ...errors import InvalidOperation, NotImplementedForDType, ShapeMismatch
from ...memory_layout import ORDERS, preserve_format
from ...schema.declaration import (
    FUNCTION,
    INPLACE,
    INTERNAL,
    MAY_ALIAS,
    METHOD_OF_TORCH,
    NEW,
    NO_SCRATCH,
    UNCHECKED,
    scratch,
)
from ...schema.derivative_plan import Rule
from ...schema.op import composite, op
from ...schema.parameters import (
    Array,
    Bool,
    DTypeArg,
    Int,
    Ints,
    Number,
    Operand,
    OptionalDevice,
    OptionalDType,
    OptionalInt,
    OptionalMemoryFormat,
    OptionalNumber,
)
from ...schema.promotion import default_float
from ...shapes import Spec, check_keeps_shape, check_nonnegative
from ..batching import shape_rules
from ..batching.rules import LEADING
from ..math.declarations import by_operand


def _numpy(dtype: Any, like: Any = None) -> Any:
    """The NumPy dtype of ``dtype``, or else that of the tensor ``like``, or the default floating dtype."""
    if dtype is not None:
        return dtype.numpy
    return default_float() if like is None else like.dtype


def sized(name: str, size: Any, dtype: Any) -> Spec:
    """The spec of a new tensor; checks the sizes before anything is allocated."""
    if name == "zeros" and any(n < 0 for n in size):
        raise ShapeMismatch("zeros: Dimension size must be non-negative.")
    shape = check_nonnegative(size, name)
    wanted = _numpy(dtype)
    if wanted == bool_.numpy and name in ("arange", "linspace", "logspace"):
        raise NotImplementedForDType(f"\"{name}_cpu\" not implemented for 'Bool'")
    return Spec(shape, wanted)


@op(lambda size, dtype: sized("zeros", size, dtype), results=NEW, memory=NO_SCRATCH)
def zeros(xp: Any, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """A tensor of zeros."""
    return xp.zeros(size, _numpy(dtype))


@op(lambda size, dtype: sized("ones", size, dtype), results=NEW, memory=NO_SCRATCH)
def ones(xp: Any, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """A tensor of ones."""
    return xp.ones(size, _numpy(dtype))


@op(lambda size, dtype: sized("empty", size, dtype), results=NEW, memory=NO_SCRATCH)
def empty(xp: Any, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """A tensor whose values mean nothing; on a shared server they are zeros."""
    # Uninitialized memory could contain another session's values.
    return xp.zeros(size, _numpy(dtype))


def _filled(xp: Any, size: Any, fill_value: Any, dtype: Any) -> Any:
    return xp.full(size, element(fill_value, dtype), dtype)


def _full_dtype(fill_value: Any, dtype: Any) -> Any:
    if dtype is None and isinstance(fill_value, int):
        return bool_ if isinstance(fill_value, bool) else int64
    return dtype


@op(lambda size, fill_value, dtype: sized("full", size, _full_dtype(fill_value, dtype)), results=NEW, memory=NO_SCRATCH)
def full(xp: Any, size: Ints, fill_value: Number, *, dtype: OptionalDType = None) -> Any:
    """A tensor filled with one number."""
    return _filled(xp, size, fill_value, _numpy(_full_dtype(fill_value, dtype)))


# Like another tensor ------------------------------------------------------------------------------------


def _like(input: Any, dtype: Any) -> Spec:
    return Spec(input.shape, _numpy(dtype, input))


@op(_like, variants=FUNCTION, results=NEW, memory=NO_SCRATCH)
def zeros_like(xp: Any, input: Array, *, dtype: OptionalDType = None) -> Any:
    """Zeros of the same shape and dtype."""
    return xp.zeros(input.shape, _numpy(dtype, input))


@op(_like, variants=FUNCTION, results=NEW, memory=NO_SCRATCH)
def ones_like(xp: Any, input: Array, *, dtype: OptionalDType = None) -> Any:
    """Ones of the same shape and dtype."""
    return xp.ones(input.shape, _numpy(dtype, input))


@op(_like, variants=FUNCTION, results=NEW)
def empty_like(xp: Any, input: Array, *, dtype: OptionalDType = None) -> Any:
    """A tensor of the same shape and dtype whose values mean nothing; here, zeros."""
    return xp.zeros(input.shape, _numpy(dtype, input))


@op(_like, variants=FUNCTION, results=NEW, memory=NO_SCRATCH)
def full_like(xp: Any, input: Array, fill_value: Number, *, dtype: OptionalDType = None) -> Any:
    """The same shape and dtype, filled with one number."""
    return _filled(xp, input.shape, fill_value, _numpy(dtype, input))


def _new_rule(input: Any, size: Any, dtype: Any) -> Spec:
    return sized("new", size, from_numpy(_numpy(dtype, input)))


@op(_new_rule, variants=METHOD_OF_TORCH, results=NEW, memory=NO_SCRATCH)
def new_zeros(xp: Any, input: Array, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Zeros of another shape in the same dtype."""
    return xp.zeros(size, _numpy(dtype, input))


@op(_new_rule, variants=METHOD_OF_TORCH, results=NEW, memory=NO_SCRATCH)
def new_ones(xp: Any, input: Array, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Ones of another shape in the same dtype."""
    return xp.ones(size, _numpy(dtype, input))


@op(_new_rule, variants=METHOD_OF_TORCH, results=NEW, memory=NO_SCRATCH)
def new_full(xp: Any, input: Array, size: Ints, fill_value: Number, *, dtype: OptionalDType = None) -> Any:
    """Another shape in the same dtype, filled with one number."""
    return _filled(xp, size, fill_value, _numpy(dtype, input))


# Ranges ---------------------------------------------------------------------------------------------------


def _arange_plan(start: Any, end: Any, step: Any, dtype: Any) -> tuple[Any, Any, Any, Any]:
    """Return the bounds, step and dtype of ``arange``: a single bound is the end, and all integers give int64."""
    bounds = (0, start, step) if end is None else (start, end, step)
    whole = dtype is None and all(isinstance(n, int) for n in bounds)
    return (*bounds, int64.numpy if whole else _numpy(dtype))


def _arange_rule(start: Any, end: Any, step: Any, dtype: Any) -> Spec:
    begin, stop, by, wanted = _arange_plan(start, end, step, dtype)
    if not (by > 0 or by < 0):
        raise InvalidOperation("step must be nonzero")
    if not (math.isfinite(begin) and math.isfinite(stop)):
        raise InvalidOperation(f"unsupported range: {begin:g} -> {stop:g}")
    if (stop - begin) * by < 0:
        raise InvalidOperation("upper bound and lower bound inconsistent with step sign")
    return sized("arange", (math.ceil((stop - begin) / by),), from_numpy(wanted))


@op(_arange_rule, results=NEW)
def arange(xp: Any, start: Number, end: OptionalNumber = None, step: Number = 1, *, dtype: OptionalDType = None) -> Any:
    """Numbers from ``start`` (0 if alone) up to but without ``end``, ``step`` apart."""
    begin, stop, by, wanted = _arange_plan(start, end, step, dtype)
    return (begin + by * xp.arange(math.ceil((stop - begin) / by))).astype(wanted)


@op(lambda end, dtype: _arange_rule(end, None, 1, dtype), key="arange.end", results=NEW)
def arange_end(xp: Any, end: Number, *, dtype: OptionalDType = None) -> Any:
    """Numbers from 0 up to but without ``end``, 1 apart."""
    return arange.raw(xp, end, dtype=dtype)


def _steps_rule(name: str, steps: int, dtype: Any) -> Spec:
    if steps < 0:
        raise InvalidOperation("number of steps must be non-negative")
    return sized(name, (steps,), dtype)


@op(partial(_steps_rule, "linspace"), results=NEW, memory=scratch(3.0))
def linspace(xp: Any, start: Number, end: Number, steps: Int, *, dtype: OptionalDType = None) -> Any:
    """``steps`` numbers from ``start`` to ``end``, both included, evenly apart."""
    return xp.linspace(start, end, steps).astype(_numpy(dtype))


@op(partial(_steps_rule, "logspace"), results=NEW, memory=scratch(4.0))
def logspace(
    xp: Any, start: Number, end: Number, steps: Int, base: Number = 10.0, *, dtype: OptionalDType = None
) -> Any:
    """``base`` to the power of ``steps`` numbers from ``start`` to ``end``, both included, evenly apart."""
    return xp.power(float(base), xp.linspace(start, end, steps)).astype(_numpy(dtype))


def _eye_rule(n: int, m: int | None, dtype: Any) -> Spec:
    columns = n if m is None else m
    for value, name in ((n, "n"), (columns, "m")):
        if value < 0:
            raise InvalidOperation(f"{name} must be greater or equal to 0, got {value}")
    return sized("eye", (n, columns), dtype)


@op(_eye_rule, results=NEW)
def eye(xp: Any, n: Int, m: OptionalInt = None, *, dtype: OptionalDType = None) -> Any:
    """The identity matrix."""
    return xp.eye(n, m, dtype=_numpy(dtype))


# Copies and conversions -----------------------------------------------------------------------------------


def _same(input: Any) -> Spec:
    return Spec(input.shape, input.dtype)


@op(_same, memory=NO_SCRATCH, batching=LEADING)
def clone(xp: Any, input: Array) -> Any:
    """A copy that gradients flow through."""
    return xp.array(input)


clone.derivative(input=lambda F, grad: grad)


@composite(key="clone.memory_format")
def clone_formatted(F: Any, input: Array, *, memory_format: OptionalMemoryFormat = None) -> Any:
    """A copy that gradients flow through, with the dimensions in the order of a memory format."""
    if memory_format not in ORDERS:
        return F.clone(input)
    order = ORDERS[memory_format]
    if len(input.shape) != len(order):
        raise InvalidOperation(f"required rank {len(order)} tensor to use {memory_format.name} format")
    return F.permute(F.clone(F.permute(input, order)), tuple(sorted(range(len(order)), key=order.__getitem__)))


@op(_like, variants=INTERNAL, node="ToCopyBackward0", memory=NO_SCRATCH, batching=LEADING)
def cast(xp: Any, input: Array, dtype: DTypeArg) -> Any:
    """The values in another dtype."""
    return input.astype(dtype.numpy)


cast.derivative(input=lambda F, grad, input_dtype: F.cast(grad, input_dtype))


@composite(variants=METHOD_OF_TORCH, memory=MAY_ALIAS)
def to(
    F: Any,
    input: Array,
    device: OptionalDevice = None,
    dtype: OptionalDType = None,
    non_blocking: Bool = False,
    copy: Bool = False,
    *,
    memory_format: OptionalMemoryFormat = None,
) -> Any:
    """The tensor in another dtype, on another device or in another memory format; itself if nothing changes."""
    if device is not None:
        _check_device(device, str(getattr(input, "device", "cpu")))
    data: Any = getattr(input, "_data", input)
    result = input
    if dtype is not None and data.dtype != dtype.numpy:
        result = F.cast(input, dtype)
    elif copy:
        result = F.clone(input)
    return F.contiguous(result, memory_format=memory_format) if memory_format in ORDERS else result


def _check_device(wanted: str, present: str) -> None:
    """Raise unless ``wanted`` is the session's device or "cpu", which changes nothing until values are read."""
    if wanted.partition(":")[0] != "cpu" and not is_on(wanted, present):
        raise InvalidOperation(f"device {wanted!r} is not available; available: {present}. {ON_A_GPU}")


@composite(variants=METHOD_OF_TORCH, key="to.dtype", memory=MAY_ALIAS)
def to_dtype(
    F: Any,
    input: Array,
    dtype: DTypeArg,
    non_blocking: Bool = False,
    copy: Bool = False,
    *,
    memory_format: OptionalMemoryFormat = None,
) -> Any:
    """The tensor in another dtype."""
    return F.to(input, None, dtype, non_blocking, copy, memory_format=memory_format)


@composite(variants=METHOD_OF_TORCH, key="to.other", memory=MAY_ALIAS)
def to_other(
    F: Any,
    input: Array,
    other: Array,
    non_blocking: Bool = False,
    copy: Bool = False,
    *,
    memory_format: OptionalMemoryFormat = None,
) -> Any:
    """The tensor in the dtype of another."""
    data: Any = getattr(other, "_data", other)
    return F.to(input, None, from_numpy(data.dtype), non_blocking, copy, memory_format=memory_format)


@composite(variants=METHOD_OF_TORCH, memory=MAY_ALIAS)
def contiguous(F: Any, input: Array, *, memory_format: OptionalMemoryFormat = None) -> Any:
    """The tensor in row-major order or that of a memory format: itself if it is so already, else a copy."""
    if memory_format in ORDERS:
        in_format = F.xp is None and input.is_contiguous(memory_format=memory_format)
        return input if in_format else F.clone(input, memory_format=memory_format)
    if input._is_contiguous if F.xp is None else F.xp.is_contiguous(input):
        return input
    if memory_format is preserve_format:
        raise InvalidOperation("preserve memory format is unsupported by the contiguous operator")
    return F.clone(input)


def _copy_rule(input: Any, src: Any) -> Spec:
    if hasattr(src, "shape"):
        check_keeps_shape(input.shape, src.shape)
    return Spec(input.shape, input.dtype)


@op(
    _copy_rule,
    variants=INPLACE,
    node="torch::autograd::CopyBackwards",
    memory=NO_SCRATCH,
    batching=shape_rules.copy._replace(in_place="inplace arithmetic"),
)
def copy(xp: Any, input: Array, src: Operand) -> Any:
    """The values of ``src``, broadcast, in the shape and dtype of ``input``; ``copy_`` writes them."""
    return xp.broadcast_to(xp.asarray(src), input.shape).astype(input.dtype)


copy.derivative(input=lambda F, grad: F.zeros_like(grad), src=lambda F, grad: grad)


def _fill_rule(input: Any, value: Any) -> Spec:
    if hasattr(value, "shape") and value.shape:
        raise InvalidOperation(
            f"fill_ only supports 0-dimension value tensor but got tensor with {len(value.shape)} dimensions."
        )
    return Spec(input.shape, input.dtype)


@op(
    _fill_rule,
    variants=INPLACE,
    node=by_operand("Fill", tensor=1, number=0),
    memory=NO_SCRATCH,
    overlap=UNCHECKED,
    batching=shape_rules.copy._replace(in_place="fill_"),
)
def fill(xp: Any, input: Array, value: Operand) -> Any:
    """One number everywhere; ``fill_`` writes it."""
    return xp.broadcast_to(xp.asarray(value), input.shape).astype(input.dtype)


fill.derivative(input=lambda F, grad: F.zeros_like(grad), value=lambda F, grad: F.sum(grad))


@op(_same, variants=INPLACE, memory=NO_SCRATCH, overlap=UNCHECKED, batching=LEADING)
def zero(xp: Any, input: Array) -> Any:
    """Zeros; ``zero_`` writes them."""
    return xp.zeros(input.shape, input.dtype)


zero.derivative(input=lambda F, grad: F.zeros_like(grad))


# Window functions ---------------------------------------------------------------------------------------

SCRATCH = 8.0
"""The scratch factor: windows are computed in float64, with four arrays at a time."""


def _window_rule(name: str) -> Rule:
    def rule(window_length: int, dtype: Any) -> Spec:
        wanted = from_numpy(_numpy(dtype))
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
    """``shape`` at evenly spaced positions from 0 to 1; a periodic window omits the last one."""
    if length < 2:
        return xp.ones((length,), _numpy(dtype))
    return shape(xp.arange(length) / (length if periodic else length - 1)).astype(_numpy(dtype))


def _cosines(xp: Any, *weights: float) -> Callable[[Any], Any]:
    return lambda at: sum(w * xp.cos(2 * math.pi * i * at) for i, w in enumerate(weights))


@op(_window_rule("bartlett_window"), results=NEW, memory=scratch(SCRATCH))
def bartlett_window(xp: Any, window_length: Int, periodic: Bool = True, *, dtype: OptionalDType = None) -> Any:
    """Bartlett's window: a triangle."""
    return _window(xp, window_length, periodic, dtype, lambda at: 1 - xp.abs(2 * at - 1))


@op(_window_rule("blackman_window"), results=NEW, memory=scratch(SCRATCH))
def blackman_window(xp: Any, window_length: Int, periodic: Bool = True, *, dtype: OptionalDType = None) -> Any:
    """Blackman's window: two cosines."""
    return _window(xp, window_length, periodic, dtype, _cosines(xp, 0.42, -0.5, 0.08))


@op(_window_rule("hann_window"), results=NEW, memory=scratch(SCRATCH))
def hann_window(xp: Any, window_length: Int, periodic: Bool = True, *, dtype: OptionalDType = None) -> Any:
    """Hann's window: a cosine that begins at 0."""
    return _window(xp, window_length, periodic, dtype, _cosines(xp, 0.5, -0.5))


@op(_window_rule("hamming_window"), results=NEW, memory=scratch(SCRATCH))
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


@op(_window_rule("kaiser_window"), results=NEW, memory=scratch(22.0))
def kaiser_window(
    xp: Any, window_length: Int, periodic: Bool = True, beta: Number = 12.0, *, dtype: OptionalDType = None
) -> Any:
    """Kaiser's window: Bessel functions, narrower the larger ``beta`` is."""
    if window_length < 2:
        return _window(xp, window_length, periodic, dtype, lambda at: at)
    length = window_length + 1 if periodic else window_length
    return xp.kaiser(length, beta)[:window_length].astype(_numpy(dtype))


# Inclusive ranges and scalars ----------------------------------------------------------------------------


def _range_rule(start: Any, end: Any, step: Any, dtype: Any) -> Spec:
    _arange_rule(start, end, step, from_numpy(_numpy(dtype)))
    return sized("arange", (math.floor((end - start) / step) + 1,), dtype)


@op(_range_rule, results=NEW)
def range_(xp: Any, start: Number, end: Number = 0, step: Number = 1, *, dtype: OptionalDType = None) -> Any:
    """Numbers from ``start`` to ``end``, both included, ``step`` apart; ``arange`` is like Python's own range."""
    n = math.floor((end - start) / step) + 1
    return (start + step * xp.arange(n)).astype(_numpy(dtype))


@op(lambda dtype: sized("scalar_tensor", (), dtype), results=NEW)
def scalar_tensor(xp: Any, s: Number, *, dtype: OptionalDType = None) -> Any:
    """A number as a tensor without dimensions, of the default dtype."""
    return xp.asarray(s).astype(_numpy(dtype))
