"""Calls of a module with other parameters and buffers, and the deprecated name of ``functional_call``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from telegrad_engine.errors import InvalidOperation, InvalidValue

from ...tensor.handle import Tensor
from ..modules.module import Module

__all__ = ["functional_call"]
Slot = tuple[dict[str, Any], str]
"""A module's dict of parameters or buffers, and a key in it."""
_MISSING: Any = object()


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Deprecated name of ``telegrad.func.functional_call``.

    ``parameters_and_buffers`` are its ``parameter_and_buffer_dicts``; ``module``, ``args``, ``kwargs``, ``tie_weights``
    and ``strict`` are the same.

    Examples:
        >>> layer = tg.nn.Linear(2, 1, bias=False)
        >>> tg.func.functional_call(layer, {"weight": tg.ones(1, 2)}, (tg.ones(3, 2),)).flatten()
        tensor([2., 2., 2.])
    """
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return call_with(module, parameters_and_buffers, args, kwargs, tie_weights, strict)


def call_with(module: Module, given: dict[str, Tensor], args: Any, kwargs: Any, tie_weights: bool, strict: bool) -> Any:
    """Return ``module(*args, **kwargs)`` computed with these tensors as its parameters and buffers."""
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, given, tie_weights, strict):
        return module(*positional, **(kwargs or {}))


def _places(module: Module) -> Iterator[tuple[str, Slot, Any]]:
    """Yield the parameters and buffers with their dotted names; a shared one appears under each of its names."""
    for path, owner in module.named_modules(remove_duplicate=False):
        for table in (owner._parameters, owner._buffers):
            for name, value in table.items():
                yield f"{path}.{name}" if path else name, (table, name), value


@contextmanager
def _replaced(module: Module, given: dict[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    """Replace the module's tensors with the given ones inside the context."""
    every = list(_places(module))
    known = {name for name, _, _ in every}
    if strict:
        _check_names(module, given, known)
    for value in given.values():
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"{value} is not an instance of torch.Tensor")
    wanted = _tied(every, given) if tie_weights else given
    others = [(name, *_attribute(module, name)) for name in given if name not in known]
    swapped = [(name, table, key) for name, (table, key), _ in every if name in wanted]
    swapped += [(name, vars(owner), key) for name, owner, key in others]
    undo = [(table, key, table.get(key, _MISSING)) for _, table, key in swapped]
    try:
        for name, table, key in swapped:
            table[key] = wanted[name]
        yield
    finally:
        for name, table, key in swapped:
            if name in given and table.get(key) is not None:
                given[name] = table[key]
        for table, key, value in undo:
            if value is _MISSING:
                table.pop(key, None)
            else:
                table[key] = value


def _attribute(module: Module, name: str) -> tuple[Any, str]:
    """Return the submodule and attribute that ``name``, neither a parameter nor a buffer, refers to.

    Raises AttributeError if there is no such submodule, TypeError for an attribute that is not a tensor.
    """
    owner: Any = module
    *path, last = name.split(".")
    for part in path:
        if not hasattr(owner, part):
            raise AttributeError(f"{type(owner).__name__} has no attribute `{part}`")
        owner = getattr(owner, part)
        if not isinstance(owner, Module):
            raise TypeError(f"submodule `{name.rpartition('.')[0]}`: {owner} is not an instance of torch.nn.Module")
    found = getattr(owner, last, None)
    if found is not None and not isinstance(found, Tensor):
        raise TypeError(f"attribute `{last}`: {found} is not an instance of torch.Tensor")
    return owner, last


def _check_names(module: Module, given: Mapping[str, Any], known: set[str]) -> None:
    own = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    own |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    texts = []
    for what, names in (("Unexpected", set(given) - known), ("Missing", own - set(given))):
        if names:
            texts.append(f"\n\t{what} key(s): {', '.join(map(repr, sorted(names)))}.")
    if texts:
        raise InvalidOperation(f"Error(s) in reparametrizing for {type(module).__name__}:{''.join(texts)}")


def _tied(every: Sequence[tuple[str, Slot, Any]], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Extend ``given`` to all names of tied tensors. Raises ValueError if tied names have different values."""
    names: dict[int, list[str]] = {}
    for name, _, value in every:
        if value is not None:
            names.setdefault(id(value), []).append(name)
    found = dict(given)
    for group in names.values():
        among = [name for name in group if name in given]
        if len({id(given[name]) for name in among}) > 1:
            raise InvalidValue(
                f"functional_call got multiple values for keys {sorted(among)}, which are tied. Consider using "
                "tie_weights=False"
            )
        if among:
            found.update(dict.fromkeys(group, given[among[0]]))
    return found
