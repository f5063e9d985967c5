"""The ops as functions under torch's names, over one ``apply``.

The engine, the SDK and, under ``create_graph``, the derivative rules use it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import memory_layout
from ..errors import InvalidOperation, LinAlgError
from ..schema.op import CATALOGUE, FUNCTIONAL, NO_ATTRS, PREFIXES, Op, unknown_op
from .documentation import Documentation, Form, document, document_added, option

Apply = Callable[[Op, tuple[Any, ...], Mapping[str, Any]], Any]
Wrapper = Callable[[str, Callable[..., Any]], Callable[..., Any]]
"""Returns a function with more behavior, given its name and the function; the function itself if it adds none."""
Resolve = Callable[[Sequence[Any], Mapping[str, Any]], tuple[Op, tuple[Any, ...], Mapping[str, Any]] | None]
"""Binds arguments to an op, its inputs and its attributes; None if the call does not apply a single op."""

OPTIONS = (
    option("requires_grad", False), option("device"), option("layout"), option("pin_memory", False),
    option("memory_format"),
)  # fmt: skip
"""The options of factory functions besides the parameters of their op."""


class Functions:
    """A namespace with a function for every op: ``F.mul(a, b)``, ``F.max_dim(x, 0)``.

    ``F.max`` chooses the overload by the arguments, as torch does; ``F.max_dim`` is one overload.
    """

    xp: Any = None
    """The array namespace for rules on raw arrays, which may call fused kernels; None for tensors."""

    def __init__(self, apply: Apply) -> None:
        self._apply = apply
        self._wrappers: list[Wrapper] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = make_function(name, self._apply)
        for wrap in self._wrappers:
            function = wrap(name, function)
        setattr(self, name, function)
        return function

    def add_wrapper(self, wrap: Wrapper) -> None:
        """Wrap the functions that are used for the first time from now on, outside of the wrappers added before."""
        self._wrappers.append(wrap)

    @functools.cached_property
    def linalg(self) -> Linalg:
        """torch.linalg's functions."""
        return Linalg(self)


class Linalg:
    """The functions of torch.linalg: ``F.linalg.svd`` is ``F.linalg_svd``, not ``F.svd``."""

    LinAlgError = LinAlgError

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in public_names("torch.linalg"):
            raise AttributeError(f"module 'telegrad.linalg' has no attribute {name!r}")
        function: Callable[..., Any] = getattr(self._functions, PREFIXES["torch.linalg"] + name)
        setattr(self, name, function)
        return function


def make_function(name: str, apply: Apply) -> Callable[..., Any]:
    """Return the function that calls op ``name`` (a public name, or a key with ``_`` for ``.``) through ``apply``."""
    overloads = _overloads(name)
    if overloads is None:
        if changing := [other for other in CATALOGUE.overloads.get(name[:-1], ()) if other.inplace]:
            return _in_place(name, changing)
        raise unknown_op(name, CATALOGUE.overloads)
    function = _choosing(name, apply) if len(overloads) > 1 else _direct(overloads[0], apply)
    if overloads[0].truth:
        return _answering(function)
    return _factory(function) if overloads[0].factory else function


def resolver(name: str) -> Resolve | None:
    """Return the Resolve for function ``name``; None if the function does more than apply an op."""
    overloads = _overloads(name)
    if overloads is None or overloads[0].truth or overloads[0].factory:
        return None
    if len(overloads) > 1:
        return functools.partial(CATALOGUE.resolve, name)
    return lambda args, kwargs: (overloads[0], *overloads[0].bind(args, kwargs))


def _overloads(name: str) -> list[Op] | None:
    overloads = CATALOGUE.overloads.get(name)
    if overloads is None:
        op = CATALOGUE.identified(name)
        return None if op is None else [op]
    return overloads


def _in_place(name: str, overloads: Sequence[Op]) -> Callable[..., Any]:
    """Return the in-place method ``name`` as a function, such as ``torch.exp_(x)``."""

    def change(input: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(input, name)(*args, **kwargs)

    return named(change, name, overloads, Form.IN_PLACE_FUNCTION)


def _answering(function: Callable[..., Any]) -> Callable[..., bool]:
    """Return ``function`` with its result converted to a Python bool."""

    @functools.wraps(function)
    def answer(*args: Any, **kwargs: Any) -> bool:
        return bool(function(*args, **kwargs))

    return answer


def _factory(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a factory function with torch's options ``requires_grad``, ``device``, ``layout`` and so on."""

    @functools.wraps(function)
    def make(
        *args: Any,
        requires_grad: bool = False,
        device: Any = None,
        layout: Any = None,
        pin_memory: bool = False,
        memory_format: Any = None,
        **kwargs: Any,
    ) -> Any:
        if pin_memory:
            raise InvalidOperation("Cannot access accelerator device when none is available.")
        for given, kind in ((layout, memory_layout.layout), (memory_format, memory_layout.memory_format)):
            memory_layout.check_option(given, kind)
        result = function(*args, **kwargs)
        if device is not None:
            result = result.to(str(device))
        if memory_format in memory_layout.ORDERS:
            result = result.contiguous(memory_format=memory_format)
        return result.requires_grad_() if requires_grad else result

    return document_added(make, *OPTIONS)


def _direct(op: Op, apply: Apply) -> Callable[..., Any]:
    if len(op.params) == 1 and not op.has_lists and not op.composite:

        def unary(*args: Any, **kwargs: Any) -> Any:
            if len(args) == 1 and not kwargs and hasattr(args[0], "_data"):
                return apply(op, args, NO_ATTRS)
            inputs, attrs = op.bind(args, kwargs)
            return apply(op, inputs, attrs)

        return named(unary, op.name, [op])

    def function(*args: Any, **kwargs: Any) -> Any:
        inputs, attrs = op.bind(args, kwargs)
        return apply(op, inputs, attrs)

    return named(function, op.name, [op])


def _choosing(name: str, apply: Apply) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        op, inputs, attrs = CATALOGUE.resolve(name, args, kwargs)
        return apply(op, inputs, attrs)

    return named(function, name, CATALOGUE.overloads[name])


def named(
    function: Callable[..., Any], name: str, overloads: Sequence[Op], form: Form = Form.FUNCTION
) -> Callable[..., Any]:
    """Give a function the name and the documentation of ops."""
    function.__name__ = function.__qualname__ = name
    return document(function, Documentation(overloads, form))


def public_names(namespace: str) -> list[str]:
    """Return the names of the functions of a namespace with ops of its own, such as torch.linalg."""
    return sorted({op.public for op in CATALOGUE if op.namespace == namespace and not op.internal})


def functional_names() -> list[str]:
    """Return the names of the torch.nn.functional functions in the catalogue."""
    return sorted(
        name.removeprefix(FUNCTIONAL)
        for name, overloads in CATALOGUE.overloads.items()
        if overloads[0].functional and not overloads[0].internal
    )


def functional_key(name: str) -> str:
    """Return the catalogue's name for the function ``name`` of torch.nn.functional."""
    apart = FUNCTIONAL + name
    return apart if apart in CATALOGUE.overloads else name
