"""Libraries of functions: each session has its own, and all sessions share the server's."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from threading import Lock, local
from typing import Any

import numpy as np

from ...amp.autocast import autocast_to
from ...autograd import gradcheck
from ...autograd.custom_function import Function
from ...devices import on
from ...errors import (
    FunctionExists,
    GradcheckError,
    InvalidFunction,
    InvalidValue,
    LimitExceeded,
    MissingScope,
    TelegradError,
    UnknownFunction,
)
from ...schema.op import CATALOGUE
from ...schema.parameters import Arrays, Bool, OptionalDType, OptionalItems, Str
from ...tensor.eager import Tensor, upload
from ..verb_params import Settings
from ..verbs import verb_with
from .function import Applicable, FunctionProgram, Installed
from .limits import MAX_FUNCTIONS, MAX_LIBRARY_WEIGHT, MAX_VERIFIED, WEIGHT_BYTES, Budget
from .reader import STEPS, is_list
from .steps import APPLY

GROUP = "telegrad.functions"
"""The group of the entry points of installed functions."""
NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
_NAME = re.compile(NAME_PATTERN)


class _Permissions(local):
    refusals: Mapping[str, str] = {}
    """Why the program of this thread must not change functions, by their scope: "session" or "server"."""


permissions = _Permissions()


class Library:
    """Functions by name; thread-safe. Names that it lacks are looked up in ``outer``."""

    def __init__(self, outer: Library | None = None) -> None:
        self.own: dict[str, Applicable] = {}
        """The functions of this library itself, not those of the outer one."""
        self._lock = Lock()
        self.weight = 0
        """The values and characters of the definitions together."""
        self.outer = outer

    def read(self, definition: Any) -> FunctionProgram:
        """Return the function of a definition, to be added. Raises InvalidFunction, LimitExceeded or FunctionExists."""
        if isinstance(definition, Mapping):
            self._check_name(definition.get("name"))
        return FunctionProgram(definition, self.find)

    def add(self, function: Applicable) -> None:
        """Add a function. Raises FunctionExists if its name is taken, LimitExceeded if the library is full."""
        with self._lock:
            self._check_name(function.name)
            if len(self.own) >= MAX_FUNCTIONS:
                raise LimitExceeded(f"{MAX_FUNCTIONS} functions are registered here, as many as may be; remove some")
            if self.weight + function.weight > MAX_LIBRARY_WEIGHT:
                raise LimitExceeded("the functions that are registered here take as much room as they may; remove some")
            self.own[function.name] = function
            self.weight += function.weight

    def find(self, name: str) -> Applicable:
        """Return the function of this name, from here or from the outer library. Raises UnknownFunction."""
        found = self.own.get(name)
        if found is not None:
            return found
        if self.outer is not None and name in self.outer:
            return self.outer.find(name)
        import difflib

        near = difflib.get_close_matches(name, self.all(), n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise UnknownFunction(f"no function {name!r:.80} is registered{hint}")

    def remove(self, name: str) -> None:
        """Remove a function of this library. Functions that apply it keep it, and so do graphs."""
        with self._lock:
            removed = self.own.pop(name, None)
            if removed is None:
                raise UnknownFunction(f"no function {name!r:.80} is registered here")
            self.weight -= removed.weight

    def all(self) -> dict[str, Applicable]:
        """Return all functions that can be found here."""
        return {**(self.outer.all() if self.outer is not None else {}), **self.own}

    def latest(self) -> dict[str, Applicable]:
        """Return the same as :meth:`all`, with what other processes have changed just now if a library is shared."""
        return {**(self.outer.latest() if self.outer is not None else {}), **self.own}

    def __contains__(self, name: object) -> bool:
        return name in self.own or (self.outer is not None and name in self.outer)

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidFunction(f"not a function's name: {name!r:.60}; a name matches {NAME_PATTERN}")
        if name in CATALOGUE.overloads or name in STEPS:
            raise FunctionExists(f"{name!r} is an op of the catalogue")
        if name in self.own:
            raise FunctionExists(f"there is a function {name!r} already; remove it first")


SHARED = Library()
"""The default library of the sessions in this process."""


def installed_library() -> Library:
    """Return a library of the functions that the operator installed, by the names of their entry points.

    An entry point refers to an autograd Function (:class:`Installed`), or to a definition, the same JSON data that a
    client would send. Raises InvalidFunction for anything else.
    """
    from importlib.metadata import entry_points  # its import takes a tenth of the time that the engine's takes

    library = Library()
    for point in sorted(entry_points(group=GROUP), key=attrgetter("name")):
        name, found = point.name, point.load()
        if isinstance(found, Mapping):
            library.add(FunctionProgram({**found, "name": name}, library.find))
        elif isinstance(found, type) and issubclass(found, Function):
            library.add(Installed(name, found))
        else:
            raise InvalidFunction(f"{name}: {GROUP} points to {found!r:.100}, neither a Function nor a definition")
    return library


class SessionLibrary(Library):
    """The functions that a session registers, finds and applies; ``shared`` has those with the scope "server"."""

    def __init__(self, shared: Library) -> None:
        super().__init__(shared)
        self.shared = shared
        self.runs_python = True
        """Whether functions in Python may be applied."""

    def of_scope(self, scope: str) -> Library:
        """Return the library of a scope, "session" or "server", to change it.

        Raises MissingScope if the program of this thread must not change it.
        """
        if scope not in ("session", "server"):
            raise InvalidValue(f"a function's scope is session or server, not {scope!r:.40}")
        if scope in permissions.refusals:
            raise MissingScope(permissions.refusals[scope])
        return self if scope == "session" else self.shared


# Verbs --------------------------------------------------------------------------------------------


@verb_with(local=True)
def register_function(
    session: Any,
    out: Sequence[str],
    *,
    definition: Settings,
    scope: Str = "session",
    verify: Bool = False,
    shapes: OptionalItems = None,
) -> None:
    """Register a function that is defined as data: in this session, or with the scope "server" for all sessions.

    ``verify`` first checks its derivative on random inputs, of the given ``shapes`` or of shapes that it accepts.
    """
    library = session.functions.of_scope(scope)
    function = library.read(definition)
    session.accounts.check_room(WEIGHT_BYTES * function.weight)
    if verify:
        with on("cpu"):
            check_derivative(function, shapes)
    library.add(function)
    session.note_overhead()


@verb_with(local=True, repeatable=True, may_raise=True, deprecated=APPLY.deprecated)
def apply(
    session: Any,
    out: Sequence[str],
    tensors: Arrays,
    *,
    function: Str,
    attrs: Settings = {},  # noqa: B006
    autocast: OptionalDType = None,
    decisions: Bool = False,
) -> Sequence[Any]:
    """Apply a registered function to tensors, with its ``attrs`` (deprecated: ``params``).

    Its forward runs under autocast to the dtype ``autocast``, if given. With ``decisions`` one more output lists, in
    order, which branches were taken and whether loops continued.
    """
    budget = Budget(python=session.functions.runs_python)
    with autocast_to(session.device, autocast):
        outputs: Sequence[Any] = session.functions.find(function).call(tensors, attrs, budget)
    return [*outputs, upload(np.array(budget.decisions, bool))] if decisions else outputs


@verb_with(local=True)
def remove_function(session: Any, out: Sequence[str], *, name: Str, scope: Str = "session") -> None:
    """Remove a registered function. Graphs that contain it keep it."""
    session.functions.of_scope(scope).remove(name)
    session.note_overhead()


SHAPES = ((2, 3), (3,), (3, 3), ())
"""The shapes to try if none are given; all inputs have the same shape."""


def check_derivative(
    function: Applicable, shapes: Sequence[Sequence[int]] | None = None, parameters: Mapping[str, Any] | None = None
) -> None:
    """Raise GradcheckError if a gradient is wrong, InvalidFunction if no inputs are found that it accepts.

    ``shapes`` are the shapes of the inputs, which are random float64 numbers; ``parameters`` has the values of
    parameters without defaults. Raises LimitExceeded if the inputs or outputs have too many numbers, or all calls
    together run too many instructions.
    """
    given, budget = parameters or {}, Budget(shared=True)

    def call(*tensors: Any) -> tuple[Any, ...]:
        return tuple(function.call(tensors, given, budget))

    inputs = _inputs(function, shapes, call)
    try:
        gradcheck(call, inputs)
    except GradcheckError as error:
        raise GradcheckError(f"{function.name}: {error.detail}", **error.context) from None


def _inputs(function: Applicable, shapes: Any, call: Any) -> tuple[Tensor, ...]:
    """Return random inputs that forward accepts."""
    generator = np.random.default_rng(0)
    tried = [[shape] * function.inputs for shape in SHAPES] if shapes is None else [_checked(shapes)]
    failure: str | None = None
    for attempt in tried:
        inputs = tuple([Tensor(generator.standard_normal(tuple(shape))).requires_grad_() for shape in attempt])
        try:
            outputs = call(*inputs)
        except LimitExceeded:
            raise
        except TelegradError as error:
            failure = failure or str(error)
            continue
        _check_count("gives", sum(output.numel() for output in outputs))
        return inputs
    raise InvalidFunction(f"{function.name} cannot be verified: it does not take random inputs ({failure})")


def _checked(shapes: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    for shape in shapes:
        if not is_list(shape) or any(type(size) is not int or size < 0 for size in shape):
            raise InvalidValue(f"shapes has a list of sizes for each input, not {shape!r:.60}")
    _check_count("takes", sum(math.prod(shape) for shape in shapes))
    return shapes


def _check_count(verb: str, count: int) -> None:
    """Raise LimitExceeded if there are too many numbers: each is varied separately, which takes long."""
    if count > MAX_VERIFIED:
        raise LimitExceeded(
            f"the function {verb} {count} numbers, at most {MAX_VERIFIED} are verified; give small shapes"
        )
