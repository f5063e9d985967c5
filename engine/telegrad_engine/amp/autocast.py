"""``autocast``: run each op in the precision that torch lists for it.

While autocast is on, ``context.state.autocast`` is an :class:`Autocast`, and the dispatcher asks it to cast each op's
inputs. Elementwise ops on tensors of one native dtype skip it, because autocast would not change them.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import dtypes
from ..context import state
from ..dtypes import FLOATING, DType
from ..errors import InvalidOperation, InvalidValue
from ..schema.op import Op
from ..schema.promotion import Policy

_F = TypeVar("_F", bound=Callable[..., Any])
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_LOWER = (dtypes.bfloat16, dtypes.float16)
DEFAULTS: dict[str, DType] = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}
"""The default autocast dtype of each device type."""
DEVICE_TYPES = (
    "cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, vulkan, mps, meta, hpu, mtia, "
    "privateuseone"
)
"""The device types that torch knows."""
_UNSAFE = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)


class Setting(NamedTuple):
    """The autocast setting of one device type."""

    enabled: bool
    dtype: DType


class Autocast:
    """The autocast settings in force on this thread, and the cached casts of parameters."""

    def __init__(self, settings: Mapping[str, Setting], caching: bool, casts: dict[Any, Any]) -> None:
        self.settings = settings
        self.caching = caching
        self.casts = casts
        """The cached casts by parameter and dtype, kept until the outermost block ends."""

    def cast(
        self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]
    ) -> tuple[Op, tuple[Any, ...], Mapping[str, Any]]:
        """Return the op, the inputs and the attributes to run instead of the given ones."""
        device = self._device(inputs)
        setting = self.settings.get(device or "")
        policy = getattr(op.autocast, device) if device is not None and setting is not None else None
        if policy is None or setting is None or not setting.enabled:
            return op, inputs, attrs
        if policy is Policy.REFUSED:
            raise InvalidOperation(_UNSAFE)
        if op.composite:
            op = _sealed(op)
        if policy is Policy.AS_GIVEN:
            return op, inputs, attrs
        if policy is Policy.RESULT_FLOAT32 and "dtype" in op.positions:
            given = attrs.get("dtype") is not None or not _eligible(inputs[0])
            return op, inputs, attrs if given else {**attrs, "dtype": dtypes.float32}
        if policy is Policy.LOWER:
            dtype = setting.dtype
        elif policy is Policy.PROMOTE:
            dtype = _widest(inputs, setting.dtype)
        else:
            dtype = dtypes.float32
        return op, tuple([self._cast(x, dtype) for x in inputs]), attrs

    def _device(self, inputs: tuple[Any, ...]) -> str | None:
        return next((kind for x in inputs if (kind := _device_type(x)) is not None), None)

    def _cast(self, x: Any, dtype: DType) -> Any:
        if isinstance(x, tuple):
            return tuple([self._cast(v, dtype) for v in x])
        if not _eligible(x) or x._data.dtype == dtype.numpy:
            return x
        keep = (
            self.caching
            and state.grad_enabled
            and x._data.dtype == _FLOAT32
            and x._requires_grad
            and x._node is None
            and x._base is None
        )
        if not keep:
            return _to(x, dtype)
        if (x, dtype) not in self.casts:
            self.casts[x, dtype] = _to(x, dtype)
        return self.casts[x, dtype]


def _to(x: Any, dtype: DType) -> Any:
    """Cast a tensor with autocast off; the result is the same, and the call is faster."""
    before, state.autocast = state.autocast, None
    try:
        return x._cast(dtype)
    finally:
        state.autocast = before


class autocast_to:
    """Run all ops in the block under autocast to ``dtype``, as on this device type, or without autocast if it is None.

    The inputs' own devices are ignored, so this also works on placeholder tensors that have no device.
    """

    def __init__(self, device: str, dtype: DType | None) -> None:
        self._wanted = (
            None if dtype is None else _Everywhere({device.partition(":")[0]: Setting(True, dtype)}, False, {})
        )

    def __enter__(self) -> None:
        self._outer, state.autocast = state.autocast, self._wanted

    def __exit__(self, *exc: object) -> None:
        state.autocast = self._outer


class _Everywhere(Autocast):
    def _device(self, inputs: tuple[Any, ...]) -> str | None:
        return next(iter(self.settings))


@functools.cache
def _sealed(op: Op) -> Op:
    """Return a composite op that has a policy of its own, with autocast off for the ops that it is composed of."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        before, state.autocast = state.autocast, None
        try:
            return op.kernel(*args, **kwargs)
        finally:
            state.autocast = before

    sealed = copy.copy(op)
    sealed.kernel = kernel
    return sealed


def _device_type(x: Any) -> str | None:
    """The device type of a tensor, or of the first tensor in a tuple; None for anything else."""
    if isinstance(x, tuple):
        return next((kind for v in x if (kind := _device_type(v)) is not None), None)
    device = getattr(x, "device", None) if hasattr(x, "_version_counter") else None
    kind = device.partition(":")[0] if isinstance(device, str) else getattr(device, "type", None)
    return kind if kind in DEFAULTS else None


def _eligible(x: Any) -> bool:
    return hasattr(x, "_version_counter") and x._data.dtype in FLOATING and x._data.dtype != _FLOAT64


def _widest(inputs: tuple[Any, ...], lower: DType) -> DType:
    """float32 if an input is float32, else the autocast dtype. float64 is ignored; other floating dtypes raise."""
    found = lower
    for x in inputs:
        for tensor in x if isinstance(x, tuple) else (x,):
            if not _eligible(tensor) or found == dtypes.float32 or tensor.dtype == found:
                continue
            if tensor.dtype != dtypes.float32:
                raise InvalidOperation("Unexpected floating ScalarType in at::autocast::prioritize")
            found = dtypes.float32
    return found


class autocast:
    """Run the ops in a ``with`` block or decorated function in the precision that torch lists for each.

    ``dtype`` defaults to bfloat16 on "cpu" and float16 on "cuda". ``enabled=False`` switches autocast off inside
    another block; ``cache_enabled`` reuses the cast of a parameter. A dtype that torch does not support gives a
    warning and disables autocast. Backward needs no autocast: gradients have the dtypes of the forward pass.

    ``device_type`` is "cpu" or "cuda".

    Examples:
        >>> with tg.autocast("cpu"):
        ...     print((tg.ones(2, 2) @ tg.ones(2, 2)).dtype)
        telegrad.bfloat16
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        self.device = check_device(device_type)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtypes.parse(dtype)
        self._enabled = enabled
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._outer: list[Autocast | None] = []
        if enabled and self.fast_dtype not in _LOWER:
            name = self.device.upper()
            warnings.warn(
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
                stacklevel=2,
            )
            self._enabled = False

    def __enter__(self) -> autocast:
        outer = state.autocast
        self._outer.append(outer)
        settings = {**(outer.settings if outer else {}), self.device: Setting(self._enabled, self.fast_dtype)}
        state.autocast = Autocast(settings, self._cache_enabled, outer.casts if outer else {})
        return self

    def __exit__(self, *exc: object) -> None:
        state.autocast = self._outer.pop()

    def __call__(self, function: _F) -> _F:
        """Decorate ``function`` to run under autocast."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def check_device(device_type: Any) -> str:
    """Return the device type, or raise torch's error if autocast does not support it."""
    if not isinstance(device_type, str):
        raise InvalidValue(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    kind = device_type.partition(":")[0]
    if kind not in DEVICE_TYPES.split(", "):
        raise InvalidOperation(f"Expected one of {DEVICE_TYPES} device type at start of device string: {device_type}")
    if kind not in DEFAULTS:
        raise InvalidOperation(f"User specified an unsupported autocast device_type '{kind}'")
    return kind


def _setting(device_type: str) -> Setting:
    kind = check_device(device_type)
    found = None if state.autocast is None else state.autocast.settings.get(kind)
    return found or Setting(False, DEFAULTS[kind])


def autocast_dtype_on(device: str) -> DType | None:
    """The autocast dtype on this device, or None if autocast is off there."""
    setting = None if state.autocast is None else state.autocast.settings.get(device.partition(":")[0])
    return setting.dtype if setting is not None and setting.enabled else None


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is enabled on this device type.

    ``device_type`` is "cpu" or "cuda". Raises RuntimeError for another one.

    Examples:
        >>> tg.is_autocast_enabled("cpu")
        False
    """
    return _setting(device_type).enabled


def get_autocast_dtype(device_type: str) -> DType:
    """The autocast dtype of this device type, whether or not autocast is enabled.

    ``device_type`` is "cpu" or "cuda". Raises RuntimeError for another one.

    Examples:
        >>> tg.get_autocast_dtype("cpu")
        telegrad.bfloat16
    """
    return _setting(device_type).dtype


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are cached.

    Examples:
        >>> tg.is_autocast_cache_enabled()
        True
    """
    return state.autocast is None or state.autocast.caching


def clear_autocast_cache() -> None:
    """Clear the cached casts of parameters, for example after modifying one inside a block.

    Examples:
        >>> tg.clear_autocast_cache()
    """
    if state.autocast is not None:
        state.autocast.casts.clear()


Method = Callable[..., Any]


def custom_fwd(fwd: Method | None = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Decorate a Function's forward so that its ``custom_bwd`` backward runs under the same autocast.

    If ``cast_inputs`` is given and autocast is on, the floating inputs are cast to that dtype, and forward runs
    without autocast.

    ``fwd`` is the method, and ``device_type`` "cpu" or "cuda".

    Examples:
        >>> class Twice(tg.autograd.Function):
        ...     @staticmethod
        ...     @tg.amp.custom_fwd(device_type="cpu", cast_inputs=tg.float32)
        ...     def forward(ctx, x):
        ...         return 2 * x
        >>> with tg.autocast("cpu"):
        ...     print(Twice.apply(tg.ones(2, dtype=tg.bfloat16)))
        tensor([2., 2.])
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
    """Decorate a Function's backward to run under the autocast state of its forward.

    ``bwd`` is the method, and ``device_type`` "cpu" or "cuda".

    Examples:
        >>> class Twice(tg.autograd.Function):
        ...     @staticmethod
        ...     @tg.amp.custom_fwd(device_type="cpu")
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...     @staticmethod
        ...     @tg.amp.custom_bwd(device_type="cpu")
        ...     def backward(ctx, grad):
        ...         return 2 * grad
        >>> Twice.apply(tg.ones(2))
        tensor([2., 2.])
    """
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
