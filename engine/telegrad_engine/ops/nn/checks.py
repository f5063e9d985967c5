"""Checks of dtypes that ops of torch.nn.functional share, with torch's error texts."""

from __future__ import annotations

from typing import Any

from ...dtypes import is_floating, parse
from ...errors import DTypeMismatch, NotImplementedForDType


def kernel_name(x: Any) -> str:
    """What torch's error texts call the dtype of a tensor, array or Spec: ``Float``, ``Long``."""
    return parse(x.dtype).kernel_name


def no_kernel(kernel: str, x: Any) -> NotImplementedForDType:
    """The error for an input of a dtype that torch's ``kernel`` does not take."""
    return NotImplementedForDType(f"\"{kernel}\" not implemented for '{kernel_name(x)}'")


def check_floats(kernel: str, x: Any) -> None:
    """Raise for an array or Spec of integers or bools, which torch's ``kernel`` does not take."""
    if not is_floating(x.dtype):
        raise no_kernel(kernel, x)


def check_dtype(x: Any, expected: Any) -> None:
    """Raise unless ``x`` is None or has the ``expected`` dtype."""
    if x is not None and x.dtype != expected:
        raise DTypeMismatch(f"expected scalar type {parse(expected).kernel_name} but found {kernel_name(x)}")
