"""``telegrad.backends.cuda``: settings of CUDA's libraries, which are stored and have no effect."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from ..exclusions import attribute_of

matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
    allow_fp16_accumulation=False,
)


def is_built() -> bool:
    """False: this package has no kernels of its own; whether a session is on a GPU is ``cuda.is_available()``."""
    return False


def is_flash_attention_available() -> bool:
    """False: this package has no kernels of its own."""
    return False


def _switch(setter: str, getter: str, initial: bool = True) -> tuple[Callable[[bool], None], Callable[[], bool]]:
    """The setter and the getter of a setting about kernels of attention."""
    state = initial

    def enable(enabled: bool) -> None:
        nonlocal state
        state = enabled

    def is_enabled() -> bool:
        return state

    enable.__name__ = enable.__qualname__ = setter
    enable.__doc__ = "Store the setting; attention has one kernel."
    is_enabled.__name__ = is_enabled.__qualname__ = getter
    is_enabled.__doc__ = f"The value that ``{setter}`` stored; {initial} at first."
    return enable, is_enabled


enable_flash_sdp, flash_sdp_enabled = _switch("enable_flash_sdp", "flash_sdp_enabled")
enable_mem_efficient_sdp, mem_efficient_sdp_enabled = _switch("enable_mem_efficient_sdp", "mem_efficient_sdp_enabled")
enable_math_sdp, math_sdp_enabled = _switch("enable_math_sdp", "math_sdp_enabled")
enable_cudnn_sdp, cudnn_sdp_enabled = _switch("enable_cudnn_sdp", "cudnn_sdp_enabled")
allow_fp16_bf16_reduction_math_sdp, fp16_bf16_reduction_math_sdp_allowed = _switch(
    "allow_fp16_bf16_reduction_math_sdp", "fp16_bf16_reduction_math_sdp_allowed", initial=False
)


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """Deprecated form of ``telegrad.nn.attention.sdpa_kernel``; accepted, without effect."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. Please "
        "see `torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
        stacklevel=3,
    )
    yield


__getattr__ = attribute_of("backends.cuda")
