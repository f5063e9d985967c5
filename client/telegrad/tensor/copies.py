"""Handles for tensors that exist in a session: copies for a fork, and the named tensors of an imported session."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.execution import InferenceVersion, is_inference_tensor

from ..sessions.session import COPIES, Copies
from ..tape.recorder import Recorder
from ..transport.base import TensorInfo
from .handle import Tensor, result_of


def in_fork(tensor: Tensor, memo: dict[Any, Any]) -> Tensor:
    """Return the handle of a fork's tensor for a tensor of the session that was forked. See ``Session.copy_of``."""
    copies: Copies = memo[COPIES]
    if tensor._recorder is not copies.source:
        raise InvalidOperation("a tensor of another session than the one that was forked has no copy in the fork")
    grad = tensor._grad if tensor._grad is not None else tensor._grad_history
    if not tensor.is_leaf or (tensor._has_grad and grad is not None and grad._requires_grad):
        raise InvalidOperation(
            "a tensor with a history cannot be taken into a fork: fork between training steps, or detach() it first"
        )
    if tensor._hooks is not None:
        raise InvalidOperation("a tensor with hooks cannot be taken into a fork: remove its hooks before the fork")
    copied = memo[id(tensor)] = result_of(copies.target, "alias", [tensor._id], tensor._data, cls=type(tensor))
    copied._version_counter = _counter(tensor, copies)
    copied._requires_grad, copied._has_grad = tensor._requires_grad, tensor._has_grad
    copied._output_nr, copied._plain = tensor._output_nr, tensor._plain
    if tensor._layout is not None:
        copied._layout = tensor._layout
    if tensor._base is not None:
        copied._become_view(deepcopy(tensor._base, memo))
        copied._view_chain, copied._seen_version = tensor._view_chain, tensor._seen_version
        copied._sealed = tensor._sealed
    if tensor._inverse_chain:
        copied._inverse_chain = tensor._inverse_chain
    if tensor._memory_owner is not None:
        copied._memory_owner = _copied_counter(tensor._memory_owner, copies)
    copies.target.sharing.add(copied, copied)
    return copied


def _counter(tensor: Any, copies: Copies) -> list[int]:
    if is_inference_tensor(tensor):
        return copies.counters.setdefault(id(tensor._version_counter), InferenceVersion([0]))
    return _copied_counter(tensor._version_counter, copies)


def _copied_counter(counter: list[int], copies: Copies) -> list[int]:
    return copies.counters.setdefault(id(counter), [*counter])


def take(recorder: Recorder, tensor: TensorInfo) -> Tensor:
    """Return a handle of a session's tensor that is a leaf. The tensor keeps its name when the handle is dropped."""
    description: Mapping[str, Any] = tensor.description
    spec = Spec(tuple(description["shape"]), dtypes.parse(description["dtype"]).numpy)
    taken = result_of(recorder, "alias", [description["id"]], spec)
    taken._version_counter = [description["version"]]
    taken._requires_grad, taken._has_grad = description["requires_grad"], tensor.has_grad
    return taken
