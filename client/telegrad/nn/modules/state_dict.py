"""Saving and loading a module's state by name, with torch's protocol for overrides and hooks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, NamedTuple

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidChoice, InvalidOperation
from telegrad_engine.graph.hooks import Handle
from telegrad_engine.shapes import torch_size

from ...tensor.constructors import in_session_of, is_array
from ...tensor.handle import Tensor
from ..parameter import Parameter, is_lazy
from .hooks import ModuleHooks, add

EXTRA = "_extra_state"
"""The name under which the result of ``get_extra_state`` is saved."""


class IncompatibleKeys(NamedTuple):
    """The keys that a state dict lacks, and those that the module does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys!r}, unexpected_keys={self.unexpected_keys!r})"


class Saved:
    """Saves and loads the parameters, persistent buffers and extra state of a module and its submodules."""

    _version = 1
    """The format version of the class's own part of a state dict."""
    _state_dict_pre_hooks: ModuleHooks
    _state_dict_hooks: ModuleHooks
    _load_state_dict_pre_hooks: ModuleHooks
    _load_state_dict_post_hooks: ModuleHooks
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    # Extra state -------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """Return extra state to save. A subclass that has some defines this and ``set_extra_state``."""
        raise InvalidOperation(
            "Reached a code path in Module.get_extra_state() that should never be called. Please file an issue at "
            "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml to report this bug."
        )

    def set_extra_state(self, state: Any) -> None:
        """Restore the state that ``get_extra_state`` returned."""
        raise InvalidOperation(
            "Reached a code path in Module.set_extra_state() that should never be called. Please file an issue at "
            "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml to report this bug."
        )

    # Hooks -------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(module, prefix, keep_vars)`` before the module's state is saved."""
        return add(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after the module and its submodules are saved."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return self._register_state_dict_hook(hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> Handle:
        """Like ``register_state_dict_post_hook``, but a result other than None replaces the state dict."""
        return add(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook`` before the module's own part is loaded; the hook may change the dict and the lists.

        Its arguments are module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys and errors.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> Handle:
        """Like ``register_load_state_dict_pre_hook``, without the module as an argument unless ``with_module``."""
        return add(self._load_state_dict_pre_hooks, wraps(hook)(partial(hook, self)) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(module, incompatible_keys)`` after the module is loaded; the hook may change the lists."""
        return add(self._load_state_dict_post_hooks, hook)

    # Saving ------------------------------------------------------------------------------

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Return parameters and persistent buffers by dotted name: live values, detached unless ``keep_vars``.

        They are added to ``destination``, if given, with ``prefix`` before their names.

        Examples:
            >>> list(tg.nn.Linear(2, 1).state_dict())
            ['weight', 'bias']
        """
        if args:
            given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            return self.state_dict(**{"destination": destination, "prefix": prefix, "keep_vars": keep_vars, **given})
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, metadata)
            if replaced is not None and getattr(hook, "_from_public_api", False):
                raise InvalidOperation("state_dict post-hook must return None")
            destination = destination if replaced is None else replaced
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Save the module's own part, without its submodules."""
        for name, tensor in self._saved().items():
            destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
        if type(self).get_extra_state is not Saved.get_extra_state:
            destination[prefix + EXTRA] = self.get_extra_state()

    def _saved(self) -> dict[str, Tensor]:
        """Return the module's own parameters and persistent buffers."""
        persistent = {name: b for name, b in self._buffers.items() if name not in self._non_persistent_buffers_set}
        return {name: t for name, t in {**self._parameters, **persistent}.items() if t is not None}

    # Loading -----------------------------------------------------------------------------

    @no_grad()
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy values into the module in place by dotted name: tensors, NumPy arrays or another library's tensors.

        With ``assign``, the tensors replace the module's own. Returns the missing and unexpected keys. After copying
        all values that fit, raises RuntimeError for mismatched shapes and, if ``strict``, for missing or unexpected
        keys.

        Examples:
            >>> layer = tg.nn.Linear(2, 1)
            >>> layer.load_state_dict({"weight": tg.ones(1, 2), "bias": tg.zeros(1)})
            <All keys matched successfully>
            >>> layer(tg.ones(2))
            tensor([2.], grad_fn=<ViewBackward0>)
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        keys, errors = IncompatibleKeys([], []), list[str]()
        metadata = getattr(state_dict, "_metadata", None) or {}
        self._load(OrderedDict(state_dict), "", metadata, assign, keys, errors)
        problems = []
        if strict:
            for title, names in (("Missing", keys.missing_keys), ("Unexpected", keys.unexpected_keys)):
                if names:
                    problems.append(f"{title} key(s) in state_dict: " + ", ".join(f'"{n}"' for n in names) + ". ")
        if problems or errors:
            raise InvalidOperation(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join([*problems, *errors])
            )
        return keys

    def _load(
        self, state_dict: Any, prefix: str, metadata: Any, assign: bool, keys: IncompatibleKeys, errors: list[str]
    ) -> None:
        """Load the module and its submodules."""
        own = dict(metadata.get(prefix[:-1], {}))
        if assign:
            own["assign_to_params_buffers"] = True
        self._load_from_state_dict(state_dict, prefix, own, True, keys.missing_keys, keys.unexpected_keys, errors)
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}{name}."
                part = OrderedDict((key, value) for key, value in state_dict.items() if key.startswith(below))
                module._load(part, below, metadata, assign, keys, errors)
        for hook in self._load_state_dict_post_hooks.values():
            if hook(self, keys) is not None:
                raise InvalidChoice(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                    "values, if incompatible_keys need to be modified, it should be done inplace."
                )

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load the module's own part, without its submodules, and record the keys and values that do not fit."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        members = self._saved()
        for name, tensor in members.items():
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            value = state_dict[key]
            problem = _misfit(key, tensor, value)
            if problem is not None:
                error_msgs.append(problem)
            elif not assign:
                tensor.copy_(in_session_of(tensor, value))
            else:
                own = in_session_of(tensor, value)
                if isinstance(tensor, Parameter) and not isinstance(own, Parameter):
                    own = Parameter(own, requires_grad=tensor.requires_grad)
                setattr(self, name, own.requires_grad_(tensor.requires_grad))
        extra = prefix + EXTRA
        if type(self).set_extra_state is not Saved.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            else:
                missing_keys.append(extra)
        elif extra in state_dict:
            unexpected_keys.append(extra)
        for key in state_dict:
            if key.startswith(prefix) and key != extra:
                name, dot, _ = key[len(prefix) :].partition(".")
                if name not in (self._modules if dot else members):
                    unexpected_keys.append(key)


def _misfit(name: str, tensor: Tensor, value: Any) -> str | None:
    if not is_array(value):
        return (
            f'While copying the parameter named "{name}", expected torch.Tensor or Tensor-like object from '
            f"checkpoint but received {type(value)}"
        )
    if not is_lazy(tensor) and tuple(value.shape) != tuple(tensor.shape):
        return (
            f"size mismatch for {name}: copying a param with shape {torch_size(value.shape)} from checkpoint, "
            f"the shape in current model is {torch_size(tensor.shape)}."
        )
    return None
