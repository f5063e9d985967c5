"""Saving a module's state by name, and loading it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from telegrad_engine.errors import InvalidOperation
from telegrad_engine.modes import no_grad
from telegrad_engine.specs import Size

from ..tensor import Tensor, upload

if TYPE_CHECKING:
    from .module import Module


class IncompatibleKeys(NamedTuple):
    """Which keys of a state dict and a module did not meet."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys!r}, unexpected_keys={self.unexpected_keys!r})"


def save(module: Module, prefix: str, keep_vars: bool) -> dict[str, Tensor]:
    """Parameters and persistent buffers by dotted name."""
    return {name: t if keep_vars else t.detach() for name, t in _members(module, prefix)}


def _members(module: Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """What is saved, a shared tensor under each of its names."""
    for path, part in module.named_modules(prefix=prefix.removesuffix("."), remove_duplicate=False):
        persistent = {name: b for name, b in part._buffers.items() if name not in part._transient}
        for name, tensor in {**part._parameters, **persistent}.items():
            if tensor is not None:
                yield f"{path}.{name}" if path else name, tensor


@no_grad()
def load(module: Module, state_dict: Mapping[str, Any], strict: bool) -> IncompatibleKeys:
    """Copy the values of ``state_dict`` into the module's tensors."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    members = dict(_members(module, ""))
    keys = IncompatibleKeys(
        [name for name in members if name not in state_dict],
        [name for name in state_dict if name not in members],
    )
    problems = []
    if strict:
        for title, names in (("Missing", keys.missing_keys), ("Unexpected", keys.unexpected_keys)):
            if names:
                problems.append(f"{title} key(s) in state_dict: " + ", ".join(f'"{n}"' for n in names) + ". ")
    for name, tensor in members.items():
        if name in state_dict:
            problem = _misfit(name, tensor, state_dict[name])
            if problem is None:
                tensor.copy_(in_session_of(tensor, state_dict[name]))
            else:
                problems.append(problem)
    if problems:
        raise InvalidOperation(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(problems)
        )
    return keys


def _misfit(name: str, tensor: Tensor, value: Any) -> str | None:
    if not is_array(value):
        return (
            f'While copying the parameter named "{name}", expected torch.Tensor or Tensor-like object from '
            f"checkpoint but received {type(value)}"
        )
    if tuple(value.shape) != tuple(tensor.shape):
        return (
            f"size mismatch for {name}: copying a param with shape {Size(value.shape)} from checkpoint, "
            f"the shape in current model is {tensor.shape}."
        )
    return None


def is_array(value: Any) -> bool:
    """Whether ``value`` is a tensor of ours or another library, or a NumPy array."""
    return isinstance(value, (Tensor, np.ndarray, np.generic)) or (hasattr(value, "detach") and hasattr(value, "numpy"))


def in_session_of(tensor: Tensor, value: Any) -> Tensor:
    """``value`` as a tensor in the session of ``tensor``: what is elsewhere is fetched and uploaded."""
    if isinstance(value, Tensor):
        if value._recorder is tensor._recorder:
            return value
        value = value.detach().numpy()
    return upload(tensor._recorder, value)
