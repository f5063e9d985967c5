"""Functions of ``torch`` that call the method with their name: ``numel(t)``, ``is_floating_point(t)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from telegrad_engine.errors import InvalidArgument

from .handle import Tensor

EXAMPLES = {
    "detach": ("tg.detach(tg.ones(2, requires_grad=True)).requires_grad", "False"),
    "detach_": ("tg.detach_(tg.ones(2, requires_grad=True) * 2).requires_grad", "False"),
    "get_device": ("tg.get_device(tg.ones(2)) >= -1", "True"),
    "imag": ("tg.is_complex(tg.ones(2))  # only complex tensors have an imaginary part", "False"),
    "is_complex": ("tg.is_complex(tg.ones(2))", "False"),
    "is_conj": ("tg.is_conj(tg.ones(2))", "False"),
    "is_distributed": ("tg.is_distributed(tg.ones(2))", "False"),
    "is_floating_point": ("tg.is_floating_point(tg.ones(2))", "True"),
    "is_inference": ("tg.is_inference(tg.ones(2))", "False"),
    "is_neg": ("tg.is_neg(tg.ones(2))", "False"),
    "is_nonzero": ("tg.is_nonzero(tg.tensor([2.0]))", "True"),
    "is_same_size": ("tg.is_same_size(tg.ones(2), tg.zeros(2))", "True"),
    "is_signed": ("tg.is_signed(tg.ones(2))", "True"),
    "numel": ("tg.numel(tg.ones(2, 3))", "6"),
    "real": ("tg.real(tg.ones(2))", "tensor([1., 1.])"),
}
"""The names of the functions, each with an example and the line that it prints."""


INPUT = inspect.Parameter("input", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _function(name: str) -> Callable[..., Any]:
    attribute = getattr(Tensor, name)

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, Tensor):
            raise InvalidArgument(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        found = getattr(input, name)
        return found(*args, **kwargs) if callable(attribute) else found

    call.__name__ = call.__qualname__ = name
    code, printed = EXAMPLES[name]
    call.__doc__ = f"{attribute.__doc__}\n\n``input`` is the tensor.\n\nExamples:\n    >>> {code}\n    {printed}\n"
    own = [*inspect.signature(attribute).parameters.values()][1:] if callable(attribute) else []
    call.__signature__ = inspect.Signature([INPUT, *own])  # type: ignore[attr-defined]
    return call


METHODS: dict[str, Callable[..., Any]] = {name: _function(name) for name in EXAMPLES}
"""The functions by name."""


def is_storage(obj: Any) -> bool:
    """Return False: there are no storages, since the session owns the memory of tensors.

    ``obj`` is any object.

    Examples:
        >>> tg.is_storage(tg.zeros(2))
        False
    """
    return False


def typename(obj: Any) -> str:
    """Return the name of the type of ``obj``; for a tensor, that of its dtype's constructor.

    Examples:
        >>> tg.typename(tg.zeros(2))
        'telegrad.FloatTensor'
    """
    if isinstance(obj, Tensor):
        name: str = obj.type()
        return name
    kind = obj if isinstance(obj, type) else type(obj)
    module = getattr(obj, "__module__", None) or kind.__module__
    name = getattr(obj, "__qualname__", kind.__qualname__)
    return name if module == "builtins" else f"{module}.{name}"
