"""The user's lines on the stack: which one recorded an instruction, and whether one catches the error.

A line is cheap to note, and formatted only when an error needs it.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise, takewhile
from types import CodeType, FrameType
from typing import Any, NamedTuple

from telegrad_engine.errors import ERRORS
from telegrad_engine.lru import LRU

OURS = ("telegrad.", "telegrad_engine.")
is_ours: dict[str, bool] = {}
"""Whether a module is ours, by name."""
CATCHING = {
    ("contextlib", "inner"),  # of a context that is a decorator
    ("unittest.case", "handle"),
    ("_pytest.raises", "raises"),
    ("_pytest.python_api", "raises"),
}
"""The functions of libraries, by module and name, that call the user's function and catch its error for the user."""
EXPRESSION = ("BINARY", "BUILD", "CALL", "COPY", "DICT", "FORMAT", "KW", "LIST", "LOAD", "PRECALL", "PUSH_NULL", "SWAP")
"""How the names of the instructions begin that an expression after ``except`` or ``with`` usually consists of."""
CATCHER = re.compile("raise|suppress|swallow|ignore|catch|except|tolerate|_recreate_cm", re.IGNORECASE)
"""How the names of methods look that make a context which catches errors, if the method is not known. The last one is
that of contexts that are used as decorators."""
_known: LRU[tuple[int, int], tuple[bool, bool, CodeType]] = LRU(4096)
"""For an instruction, by its code's id and its offset: whether a handler catches errors there, whether the code is a
library's, and the code, so that no other gets its id."""


class Method(NamedTuple):
    """A method of an object that is not known, such as a local variable's."""

    name: str


class Line(NamedTuple):
    """A position in a function; the line number is computed only when it is printed."""

    code: CodeType
    offset: int

    def __str__(self) -> str:
        lines = (line for start, end, line in self.code.co_lines() if start <= self.offset < end)
        return f"{self.code.co_filename}:{next(lines, None) or self.code.co_firstlineno}"


Position = tuple[CodeType, int]
"""The fields of a :class:`Line`, which are faster to note."""


def users_line() -> Line:
    """Return the innermost line on the stack outside this package."""
    frame = users_frame()
    return Line(frame.f_code, frame.f_lasti)


def users_frame() -> FrameType:
    """Return the innermost frame on the stack outside this package."""
    frame = sys._getframe(2)
    while True:
        name = frame.f_globals.get("__name__", "")
        ours = is_ours.get(name)
        if ours is None:
            ours = is_ours[name] = name.startswith(OURS)
        if not ours or frame.f_back is None:
            return frame
        frame = frame.f_back


# Errors that the user's code catches ---------------------------------------------------------------


def errors_are_caught(frame: FrameType | None = None) -> bool:
    """Whether a ``try`` or a ``with`` around a line of the user's on the stack catches our errors.

    Libraries that the user's code calls count, too. Those that call it do not: test runners and event loops catch all.
    ``frame`` is that of the innermost line outside this package, if the caller knows it.
    """
    frame = frame or users_frame()
    of_user = False
    while frame is not None:
        code = frame.f_code
        if not of_user or code.co_exceptiontable:
            caught, library, _ = dict.get(_known, (id(code), frame.f_lasti)) or _examine(frame)
            if caught and not (library and of_user):
                return True
            of_user = of_user or not library
        frame = frame.f_back
    return False


def _examine(frame: FrameType) -> tuple[bool, bool, CodeType]:
    code, module = frame.f_code, str(frame.f_globals.get("__name__"))
    ours = module.startswith(OURS)
    library = ours or "-packages" in code.co_filename or module.partition(".")[0] in sys.stdlib_module_names
    try:
        caught = not ours and _catches(code, frame.f_globals, frame.f_lasti)
    except Exception:  # bytecode of a Python that this module does not know: an unnecessary wait does no harm
        caught = True
    found = _known[id(code), frame.f_lasti] = caught, library and (module, code.co_name) not in CATCHING, code
    return found


def _catches(code: CodeType, space: Mapping[str, Any], offset: int) -> bool:
    """Whether a handler around an instruction may catch one of our errors. Global names are looked up in ``space``."""
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    steps = [*dis.get_instructions(code)] if any(each.start <= offset < each.end for each in entries) else []
    places = {step.offset: place for place, step in enumerate(steps)}
    while target := next((each.target for each in entries if each.start <= offset < each.end), None):
        offset, place = target, places[target] + 1  # the handlers around this one are those around its first step
        if steps[place].opname == "WITH_EXCEPT_START":
            body = places[min(each.start for each in entries if each.target == target)]
            enter = max(place for place in range(body) if steps[place].opname.startswith("BEFORE_"))
            if _may_catch(*_values(_expression(steps[enter - 1 :: -1])[::-1], space)[:1]):
                return True
        elif steps[place - 1].opname == "PUSH_EXC_INFO":
            while steps[end := place + len(kinds := _expression(steps[place:]))].opname.startswith("CHECK_E"):
                if any(isinstance(kind, Method) or _may_catch(kind) for kind in _values(kinds, space)):
                    return True
                place = places[steps[end + 1].argval]  # where the next except begins
            # An except without a class, or one whose expression is not that simple; otherwise, a finally.
            rest = takewhile(lambda step: step.opname not in ("PUSH_EXC_INFO", "RERAISE"), steps[place:])
            if steps[place].opname == "POP_TOP" or any(step.opname.startswith("CHECK_E") for step in rest):
                return True
    return False


def _expression(steps: Iterable[dis.Instruction]) -> list[dis.Instruction]:
    return [*takewhile(lambda step: step.opname.startswith(EXPRESSION), steps)]


def _values(steps: Iterable[dis.Instruction], space: Mapping[str, Any]) -> list[Any]:
    """The values of the dotted names in an expression; None for those that do not begin with a global name."""
    values: list[Any] = []
    for step in steps:
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            known = values[-1] is not None and not isinstance(values[-1], Method)
            values[-1] = inspect.getattr_static(values[-1], step.argval, None) if known else Method(step.argval)
        elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            values.append(space.get(step.argval, vars(builtins).get(step.argval)))
        elif step.opname.startswith(("LOAD_FAST", "LOAD_DEREF")):
            values.append(None)
    return values


def _may_catch(made: Any = None) -> bool:
    """Whether an ``except`` for this class, or a ``with`` of this context or of what makes it, may catch our errors."""
    if isinstance(made, Method):
        return CATCHER.search(made.name) is not None
    if isinstance(made, type) and issubclass(made, BaseException):
        return any(issubclass(error, made) for error in ERRORS.values())
    function = inspect.unwrap(made)
    if str(getattr(function, "__module__", None)).startswith(OURS) or inspect.isbuiltin(function):
        return False
    if inspect.isgeneratorfunction(function):
        code, space = function.__code__, function.__globals__
        return any(_catches(code, space, i.offset) for i in dis.get_instructions(code) if i.opname == "YIELD_VALUE")
    leave = getattr(made if isinstance(made, type) else type(made), "__exit__", None)
    if not inspect.isfunction(leave):
        return leave is None  # that of a file or a lock is not written in Python
    ends = [pair for pair in pairwise(dis.get_instructions(leave)) if pair[1].opname.startswith("RETURN_")]
    given = [before if end.opname == "RETURN_VALUE" else end for before, end in ends]
    if leave.__module__ not in sys.stdlib_module_names:  # one of the user's may raise another error instead
        given += [step for step in dis.get_instructions(leave) if step.opname == "RAISE_VARARGS"]
    return any(step.opname not in ("LOAD_CONST", "RETURN_CONST") or step.argval for step in given)
