"""``torch.nn.functional``: the catalogue's ops that torch publishes there, and functions composed of ops.

``import telegrad.nn.functional as F``. Activations and dropout also take torch's ``inplace``.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.tensor.documentation import Form, document_added
from telegrad_engine.tensor.namespace import functional_key, functional_names, named

from ..exclusions import missing_attribute, publish
from ..tensor.handle import OPS, Tensor
from .composed_functions import fractional_max_pool2d, fractional_max_pool3d
from .composed_functions import linear_cross_entropy as linear_cross_entropy
from .composed_functions import multi_head_attention_forward as multi_head_attention_forward
from .composed_functions import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss

if TYPE_CHECKING:
    from ._functional import *  # noqa: F403


P = ParamSpec("P")
INPLACE = inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False)
WITH_INDICES = "_with_indices"
MAX_POOLS = frozenset(f"{kind}max_pool{dims}d" for kind in ("", "adaptive_") for dims in (1, 2, 3))
"""The catalogue's pooling ops with a ``_with_indices`` variant, which always returns the indices."""


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """Deprecated name of ``interpolate``.

    The arguments are those of ``interpolate``. It warns.

    Examples:
        >>> tg.nn.functional.interpolate(tg.tensor([[[1.0, 2.0]]]), scale_factor=2.0)
        tensor([[[1., 1., 2., 2.]]])
    """
    return _upsample("upsample", input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Deprecated name of ``interpolate`` with ``mode="nearest"``.

    The arguments are those of ``interpolate``. It warns.

    Examples:
        >>> tg.nn.functional.interpolate(tg.ones(1, 1, 2, 2), 4).shape
        telegrad.Size([1, 1, 4, 4])
    """
    return _upsample("upsample_nearest", input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Deprecated name of ``interpolate`` with ``mode="bilinear"`` and ``align_corners=True``.

    The arguments are those of ``interpolate``. It warns.

    Examples:
        >>> tg.nn.functional.interpolate(tg.ones(1, 1, 2, 2), 4, mode="bilinear", align_corners=True).shape
        telegrad.Size([1, 1, 4, 4])
    """
    return _upsample("upsample_bilinear", input, size, scale_factor, "bilinear", True)


def _upsample(name: str, *args: Any) -> Tensor:
    text = f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead."
    warnings.warn(text, UserWarning, stacklevel=3)
    result: Tensor = OPS.interpolate(*args)
    return result


def _with_indices(pool: Callable[P, Any], position: int) -> Callable[P, tuple[Tensor, Tensor]]:
    """Return a variant of ``pool`` that always returns indices; ``return_indices`` is its parameter at ``position``."""

    function: Any = pool

    @functools.wraps(pool)
    def call(*args: P.args, **kwargs: P.kwargs) -> tuple[Tensor, Tensor]:
        rest = {name: value for name, value in kwargs.items() if name != "return_indices"}
        if len(args) > position:
            both: tuple[Tensor, Tensor] = function(*args[:position], True, *args[position + 1 :], **rest)
        else:
            both = function(*args, return_indices=True, **rest)
        return both

    call.__name__ = call.__qualname__ = pool.__name__ + WITH_INDICES
    return document_added(call, removed=("return_indices",))


fractional_max_pool2d_with_indices = _with_indices(fractional_max_pool2d, 4)
fractional_max_pool3d_with_indices = _with_indices(fractional_max_pool3d, 4)
for _pool in (fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices):
    _whole = inspect.signature(_pool)
    _rest = [each for each in _whole.parameters.values() if each.name != "return_indices"]
    _pool.__signature__ = _whole.replace(parameters=_rest)  # type: ignore[attr-defined]


def _with_inplace(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` with torch's last parameter, ``inplace``, which writes the result into the input."""
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
        # Apply it to a copy: the derivative may need the value that is about to be overwritten.
        if args:
            return target.copy_(function(target.clone(), *args[1:], **kwargs))
        return target.copy_(function(**kwargs | {"input": target.clone()}))

    return document_added(call, INPLACE)


def _with_warning(function: Callable[..., Any], warning: Callable[..., str | None]) -> Callable[..., Any]:
    """Return ``function`` with torch's warning about arguments that are seldom meant."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if (text := warning(*args, **kwargs)) is not None:
            warnings.warn(text, stacklevel=2)
        return result

    return call


def _always_in_place(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``relu_`` for ``relu``: the function with ``inplace=True``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs, inplace=True)

    return named(call, name, CATALOGUE.overloads[functional_key(function.__name__)], Form.IN_PLACE_FUNCTION)


def __getattr__(name: str) -> Any:
    return publish(globals(), name, _find(name))


def _find(name: str) -> Any:
    """Return the function of this name, made from a catalogue op. Raises AttributeError if there is none."""
    base = name.removesuffix(WITH_INDICES)
    if base != name and base in MAX_POOLS:
        return _with_indices(__getattr__(base), CATALOGUE.overloads[base][0].positions["return_indices"])
    plain = name.removesuffix("_")
    key = functional_key(plain)
    if plain not in functional_names() or (plain != name and not CATALOGUE.overloads[key][0].takes_inplace):
        raise missing_attribute("telegrad.nn.functional", "nn.functional", name)
    if plain != name:  # relu_(x) is relu(x, inplace=True)
        return _always_in_place(name, __getattr__(plain))
    function, op = getattr(OPS, key), CATALOGUE.overloads[key][0]
    if op.warning is not None:
        function = _with_warning(function, op.warning)
    return _with_inplace(name, function) if op.takes_inplace else function


def __dir__() -> list[str]:
    own = {name: value for name, value in globals().items() if callable(value) and not name.startswith("_")}
    composed = [name for name, value in own.items() if value.__module__.startswith(__package__)]
    return sorted({*functional_names(), *(pool + WITH_INDICES for pool in MAX_POOLS), *composed})
