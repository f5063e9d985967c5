"""Compiled functions, which are traced once for each kind of call and then recorded as a whole."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any

from telegrad_engine.context import state
from telegrad_engine.errors import InvalidOperation

from ..nn.modules.module import Module
from ..sessions.session import current
from ..tape.lazy_graph import Unrepeatable
from ..tape.recorder import Recorder
from ..tensor.handle import Tensor
from .cache_entry import CacheEntry
from .guards import Guards, Unwatchable, settings_in, watching
from .trace_recorder import Inputs, TraceRecorder, modes

MAX_ENTRIES, ATTEMPTS = 8, 3
"""The most traces that a function keeps, and the most that are tried for one kind of call before it runs uncompiled."""
MAX_NUMBERS = 3
"""How many different numbers a function is traced with. After that, its calls run the function itself."""
NUMBERS = "its arguments are other numbers each time"

EXACT = frozenset({int, bool, str, bytes, type(None)})
"""The types of constants whose values are equal only if they are the same."""


class Arguments:
    """The arguments of one call. ``key`` has everything but the tensors' values, and ``objects`` by their identity."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.objects: list[Any] = []
        """The arguments that are neither tensors nor constants; they must be the same objects in every call."""
        parts: list[Any] = []
        for value in args:
            self._add(value, parts)
        for name, value in kwargs.items():
            parts.append(name)
            self._add(value, parts)
        self.key = tuple(parts)

    @property
    def outline(self) -> tuple[Any, ...]:
        """The key with None for each number, which comes after its type."""
        before = (None, *self.key)
        parts = zip(before, self.key, strict=False)
        return tuple([None if kind is int or kind is float else part for kind, part in parts])

    def _add(self, value: Any, parts: list[Any]) -> None:
        kind = type(value)
        if isinstance(value, Tensor):
            data = value._data
            parts += (kind, data.shape, data.dtype, value._requires_grad)
            self.tensors.append(value)
        elif kind in EXACT:
            parts += (kind, value)
        elif kind is float or kind is complex:
            parts += (kind, repr(value))  # 0.0 and -0.0 are equal, and NaN is not
        elif isinstance(value, (list, tuple)):
            parts += (kind, len(value))
            for item in value:
                self._add(item, parts)
        elif kind is dict:
            parts += (kind, *value)
            for item in value.values():
                self._add(item, parts)
        else:
            parts += ("object", id(value))
            self.objects.append(value)


class CompiledFunction:
    """A function of tensors that is traced once per kind of arguments. See docs/how-to/compile.md for its limits.

    Raises what the function raises; with ``fullgraph`` also InvalidOperation if it cannot be compiled.
    """

    def __init__(self, function: Callable[..., Any], fullgraph: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        self.function = function
        self.fullgraph = fullgraph
        self._entries: dict[Any, list[CacheEntry]] = {}
        self._failures: dict[Any, list[str]] = {}
        """Why traces failed, by the kind of call."""
        self._numbers: dict[Any, set[Any]] = {}
        """The keys of the traced calls that differ only in tensors and numbers, by what they have in common."""
        self._warned = False

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        watched = state.anomaly is not None or state.saved_hooks is not None
        if watched or state.ops_observed or Recorder.debugging:
            return self.function(*args, **kwargs)
        arguments = Arguments(args, kwargs)
        recorder: Any = arguments.tensors[0]._recorder if arguments.tensors else current().recorder
        if type(recorder) is not Recorder or recorder.open_checkpoints or recorder.observer is not None:
            return self.function(*args, **kwargs)
        if current().recorder is not recorder or any(t._recorder is not recorder for t in arguments.tensors):
            return self.function(*args, **kwargs)
        key = (arguments.key, id(recorder), recorder.default_dtype, *modes())
        for entry in self._entries.get(key, ()):
            inputs = Inputs(arguments.tensors, entry.guards.tensors)
            numbers = entry.numbers(inputs)
            if numbers is not None:
                return entry.run(inputs, numbers)
        outline = (arguments.outline, *key[1:])
        if self._is_given_up(key) or (key != outline and self._differs_in_numbers(key, outline)):
            return self.function(*args, **kwargs)
        return self._trace(key, recorder, arguments, args, kwargs)

    def _differs_in_numbers(self, key: Any, outline: Any) -> bool:
        """Whether calls like this one come with too many different numbers for a trace of each."""
        if outline in self._failures:
            return True
        traced = self._numbers.setdefault(outline, set())
        traced.add(key)
        if len(traced) <= MAX_NUMBERS:
            return False
        self._fail(outline, NUMBERS)
        for each in self._numbers.pop(outline):
            self._entries.pop(each, None)
        return True

    def _is_given_up(self, key: Any) -> bool:
        if len(self._failures.get(key, ())) >= ATTEMPTS:
            return True
        if sum(map(len, self._entries.values())) < MAX_ENTRIES:
            return False
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.__name__} was compiled for {MAX_ENTRIES} kinds of calls, as many as are kept; others run "
                "uncompiled. explain() says what they are",
                stacklevel=3,
            )
        return True

    def _trace(self, key: Any, recorder: Recorder, arguments: Arguments, args: Any, kwargs: Any) -> Any:
        """Run the function itself, and keep a trace of it if that can be repeated."""
        try:
            guards = Guards([self.function, *arguments.objects])
        except Unwatchable as reason:
            self._fail(key, str(reason))
            return self.function(*args, **kwargs)
        guards.tensors = [t for t in guards.tensors if t._recorder is recorder]
        trace = TraceRecorder(recorder, Inputs(arguments.tensors, guards.tensors))
        with watching(guards.optimizers) as looked_at, trace:
            result = self.function(*args, **kwargs)
        try:
            if trace.broken is not None:
                raise Unrepeatable(f"it {trace.broken}")
            changed = guards.changed()
            if changed is not None:
                raise Unrepeatable(f"it changes {changed}")
            entry = CacheEntry(trace, guards, settings_in(trace.segment.program(), guards, looked_at), result)
        except Unrepeatable as reason:
            self._fail(key, str(reason))
            return result
        self._entries.setdefault(key, []).append(entry)
        return result

    def _fail(self, key: Any, reason: str) -> None:
        self._failures.setdefault(key, []).append(reason)
        if self.fullgraph:
            raise InvalidOperation(f"{self.__name__} cannot be compiled as a whole: {reason}")

    def explain(self) -> str:
        """Describe what is compiled and what is not, and why, in one line each."""
        lines = [
            f"compiled: {entry.length} instructions, called {entry.calls} times"
            for entries in self._entries.values()
            for entry in entries
        ]
        for reasons in self._failures.values():
            often = "" if len(reasons) < ATTEMPTS else f" ({ATTEMPTS} times: it runs as it is)"
            lines.append(f"not compiled{often}: {reasons[-1]}")
        return "\n".join([f"{self.__name__}:", *(lines or ["not called yet"])])

    def __repr__(self) -> str:
        return f"<compiled {self.explain()}>"


class OptimizedModule(Module):
    """A Module that calls another one, ``_orig_mod``, compiled. It has the attributes of that one, as in torch."""

    def __init__(self, module: Module, fullgraph: bool = False) -> None:
        super().__init__()
        self._orig_mod = module
        self.training = module.training
        self._call = CompiledFunction(module.__call__, fullgraph)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, including its hooks."""
        return self._call(*args, **kwargs)

    def explain(self) -> str:
        """Describe what is compiled and what is not, and why, in one line each."""
        return self._call.explain()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_mod":
                raise
            return getattr(self._orig_mod, name)
