"""Inference tensors: tensors made under ``inference_mode``, which have no version and cannot be recorded.

An inference tensor has an :class:`InferenceVersion` as its version counter. Its views share the counter, so they are
inference tensors too. Saving a tensor for backward reads its version, which raises the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..context import state
from ..errors import InvalidOperation

SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
    "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in "
    "autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
)
UNVERSIONED = "Inference tensors do not track version counter."
MODIFIED = (
    "Inplace update to inference tensor outside InferenceMode is not allowed."
    "You can make a clone to get a normal tensor before doing inplace update."
    "See https://github.com/pytorch/rfcs/pull/17 for more details."
)
REQUIRING = "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."


class InferenceVersion(list[int]):
    """A version counter that stays 0 and raises if it is read while gradients are enabled."""

    def __getitem__(self, index: Any) -> Any:
        if state.grad_enabled:
            raise InvalidOperation(SAVED)
        return 0

    def __setitem__(self, index: Any, value: Any) -> None:
        pass


def mark(tensors: Iterable[Any]) -> None:
    """Turn new tensors into inference tensors."""
    for tensor in tensors:
        tensor._version_counter = InferenceVersion([0])


def is_marked(tensor: Any) -> bool:
    """Whether ``tensor`` is an inference tensor."""
    return type(tensor._version_counter) is InferenceVersion
