"""``torch.nn.functional``: the catalogue's ops that torch has there, under the same names.

``import telegrad.nn.functional as F``. Activations and dropout also take torch's ``inplace``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from telegrad_engine.functions import functional_key, functional_names
from telegrad_engine.registry import CATALOGUE

from ..tensor import functions

if TYPE_CHECKING:
    from ._functional import *  # noqa: F403


def _with_inplace(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with torch's last parameter, ``inplace``: the result is written into the input."""
    position = len(CATALOGUE.overloads[name][0].params)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == position + 1:
            *rest, inplace = args
            args = tuple(rest)
        else:
            inplace = kwargs.pop("inplace", False)
        if not inplace:
            return function(*args, **kwargs)
        target = args[0] if args else kwargs["input"]
        method = getattr(target, f"{name}_", None)
        if method is not None and args:
            return method(*args[1:], **kwargs)
        # Of a copy: the derivative may need the value that is about to be overwritten.
        if args:
            return target.copy_(function(target.clone(), *args[1:], **kwargs))
        return target.copy_(function(**kwargs | {"input": target.clone()}))

    return call


def __getattr__(name: str) -> Any:
    plain = name.removesuffix("_")
    key = functional_key(plain)
    if plain not in functional_names() or (plain != name and not CATALOGUE.overloads[key][0].takes_inplace):
        raise AttributeError(f"module 'telegrad.nn.functional' has no attribute {name!r}")
    if plain != name:  # relu_(x) is relu(x, inplace=True)
        return functools.partial(__getattr__(plain), inplace=True)
    function = getattr(functions, key)
    if CATALOGUE.overloads[key][0].takes_inplace:
        function = _with_inplace(name, function)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return functional_names()
