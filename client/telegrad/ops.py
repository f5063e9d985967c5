"""``register_function``; ``tg.ops.NAME(…)`` for registered functions; ``tg.ops.aten``.

A registered function is data. A function of this process is traced once and sent to each session that uses it;
a function registered by another client, in any language, is fetched from the session by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.errors import FunctionExists, InvalidValue, UnknownFunction
from telegrad_engine.program import registered_functions as custom
from telegrad_engine.program.registered_functions import Applicable, FunctionProgram
from telegrad_engine.program.verbs import VERBS
from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.transforms.vmap import levels

from .aten import aten as aten
from .registered_functions import library
from .registered_functions.tracer import Tracer
from .registered_functions.tracing import Variants
from .sessions import session as sessions
from .tape.dispatch import active, raise_here
from .tensor.handle import recorder_of


def register_function(
    name: str,
    function: Any = None,
    *,
    scope: str = "session",
    verify: bool = False,
    example: Sequence[Any] | None = None,
    shapes: Sequence[Sequence[int]] | None = None,
) -> Any:
    """Register an autograd Function, a plain function of tensors, or a definition as data; also usable as a decorator.

    The code is traced, not sent: forward, backward and jvp become programs for all shapes, and ``tg.ops.NAME`` runs
    them where the tensors are. An ``if`` on a tensor's value becomes a branch of the program. Non-tensor arguments,
    known by annotation or default, become parameters. ``example`` has arguments for code that needs the number of
    dimensions; without it, such code is traced at its first call.

    With the scope "server" the function is available in all sessions of the server. ``verify`` compares its gradients
    with finite differences, on random inputs of the given ``shapes`` (or of suitable ones), and raises GradcheckError
    if they are wrong. Returns ``function``. Raises InvalidOperation, naming the line, for code that cannot be traced,
    and FunctionExists if another function has the name.

    Examples:
        >>> @tg.register_function("squash")
        ... def squash(x):
        ...     return x / (1 + x.abs())
        >>> tg.ops.squash(tg.tensor([1.0, -3.0]))
        tensor([ 0.5000, -0.7500])
        >>> tg.remove_function("squash")
    """
    if function is None:
        return lambda decorated: register_function(
            name, decorated, scope=scope, verify=verify, example=example, shapes=shapes
        )
    if name in CATALOGUE.overloads:
        raise FunctionExists(f"{name!r} is an op of the catalogue")
    if scope not in ("session", "server"):
        raise InvalidValue(f"a function's scope is session or server, not {scope!r:.40}")
    variants = Variants(name, function, scope, example)
    if verify:
        _verify(variants, shapes, example)
    before = library.own.get(name)
    library.define(name, variants)
    try:
        if variants.first is not None:
            if scope == "server":
                _find(name)
                sessions.current().flush()
            elif (session := sessions.known()) is not None:
                library.find(session.recorder, name)
    except BaseException:
        library.define(name, before)
        raise
    return function


def remove_function(name: str, *, scope: str = "session") -> None:
    """Remove a registered function in this process and the current session, or from its server with the scope "server".

    Graphs and functions that use it keep it. Raises UnknownFunction if it is not registered there.

    ``name`` is the name of the function.

    Examples:
        >>> _ = tg.register_function("twice", lambda x: 2 * x)
        >>> tg.remove_function("twice")
    """
    library.remove(sessions.current().recorder, name, scope)
    sessions.current().flush()


def _verify(variants: Variants, shapes: Any, example: Sequence[Any] | None) -> None:
    """Check the gradients in this process: a definition gives the same results everywhere."""
    if variants.first is None:
        raise InvalidValue(f"{variants.name} is traced when it is called first; to verify it before, give an example")
    program = FunctionProgram(variants.first.definition, _find)
    given = dict(zip((p.name for p in program.signature.params), example or (), strict=False))
    if shapes is None and example is not None:
        shapes = [tuple(given[name].shape) for name in program.forward.inputs]
    parameters = {p.name: given[p.name] for p in program.signature.attr_params if p.name in given}
    custom.check_derivative(program, shapes, parameters)


def _find(name: str) -> Applicable:
    """Return a function of the current session."""
    return library.find(sessions.current().recorder, name)


class Registered:
    """A function by name, as ``tg.ops.NAME``; the name is looked up when it is called."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the function and return its result, or a tuple of results. Raises UnknownFunction if it is missing."""
        tracer, name = active.tracer, self.__name__
        made = _call(name, args, kwargs) if tracer is None else _write(tracer, name, args, kwargs)
        return made[0] if len(made) == 1 else tuple(made)

    def __repr__(self) -> str:
        try:
            found = _find(self.__name__)
        except UnknownFunction:
            return f"<telegrad function {self.__name__}, which is not registered>"
        return f"<telegrad function {found.signature.signature}>"

    def _repr_html_(self) -> str | None:
        """Show the programs that the function was traced to; None if it is not registered."""
        try:
            found = _find(self.__name__)
        except UnknownFunction:
            return None
        return None if found.definition is None else library.function_html(found.signature.signature, found.definition)


def __getattr__(name: str) -> Registered:
    if name.startswith("_"):
        raise AttributeError(f"module 'telegrad.ops' has no attribute {name!r}")
    return Registered(name)


def __dir__() -> list[str]:
    """List the functions that this process or the current session knows, and those that register them."""
    names = set(library.own)
    if (session := sessions.known()) is not None:
        names |= library.names(session.recorder)
    return sorted({*names, "aten", "register_function", "remove_function"})


def _call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    """Apply the function of this name in the session of its arguments."""
    for level in reversed(levels()):
        if level.owns_any((*args, *kwargs.values())):
            found: Sequence[Any] = level.loop(name, lambda *args, **kwargs: _call(name, args, kwargs), args, kwargs)
            return found
    recorder = recorder_of((*args, *kwargs.values()))
    variants = library.own.get(name)
    if variants is not None:
        name = variants.fitting(args, kwargs).definition["name"]
    function = library.find(recorder, name)
    tensors, parameters = function.signature.bind(args, kwargs)
    made = library.FunctionCall(recorder, function, tensors, parameters).record()
    raise_here(recorder, VERBS["apply"])
    return made


def _write(tracer: Tracer, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    """Write a call of the function as an instruction of the function that is being traced."""

    def find(name: str) -> Applicable:
        return library.find(tracer.outer().recorder, name)

    found = library.lookup(name)
    function = find(name) if found is None else FunctionProgram(found[0], find)
    return tracer.apply_function(function, *function.signature.bind(args, kwargs))
