"""``custom_fwd`` and ``custom_bwd``: autocast for user-written Functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..dtypes import FLOATING, DType
from .autocast import autocast, check_device, get_autocast_dtype, is_autocast_enabled

Method = Callable[..., Any]


def custom_fwd(fwd: Method | None = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Decorate a Function's forward so that its ``custom_bwd`` backward runs under the same autocast.

    If ``cast_inputs`` is given and autocast is on, the floating inputs are cast to that dtype, and forward runs
    without autocast.
    """
    device = check_device(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    dtype = None if cast_inputs is None else dtypes.parse(cast_inputs)
    function = fwd

    @functools.wraps(function)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype = get_autocast_dtype(device)
        ctx._fwd_used_autocast = is_autocast_enabled(device) and dtype is None
        if dtype is None or not is_autocast_enabled(device):
            return function(ctx, *args, **kwargs)
        with autocast(device, enabled=False):
            return function(ctx, *_cast(args, dtype), **_cast(kwargs, dtype))

    return forward


def custom_bwd(bwd: Method | None = None, *, device_type: str) -> Any:
    """Decorate a Function's backward to run under the autocast state of its forward."""
    device = check_device(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    function = bwd

    @functools.wraps(function)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return function(ctx, *args, **kwargs)

    return backward


def _cast(value: Any, dtype: DType) -> Any:
    """``value`` with all floating tensors in it cast to ``dtype``, except float64 ones."""
    if hasattr(value, "_version_counter"):
        takes = value._data.dtype in FLOATING and value.dtype != dtypes.float64
        return value.to(dtype=dtype) if takes else value
    if isinstance(value, dict):
        return {_cast(k, dtype): _cast(v, dtype) for k, v in value.items()}
    return type(value)(_cast(v, dtype) for v in value) if isinstance(value, (list, tuple)) else value
