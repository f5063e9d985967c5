"""Docstrings and signatures of the functions and methods that are made from ops.

Both are written when they are first read: an import makes a thousand of these functions, and few programs read any.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, TypeVar

from ..schema import descriptions
from ..schema.op import Op
from ..schema.parameters import OperandKind
from ..schema.signature import REQUIRED, Param

WIDTH = 100
"""The width of a docstring's lines, within the indentation that ``help`` adds."""
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
MODULE_OF_OPTIONS = Op.__module__
"""A module of the package whose table describes the parameters that functions have besides those of their ops."""

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


class Form(Enum):
    """What is made from an op, and what its docstring adds to the description of the op."""

    FUNCTION = ""
    METHOD = "``input`` is this tensor."
    IN_PLACE_METHOD = "``input`` is this tensor. The result is written to it, and it is returned."
    IN_PLACE_FUNCTION = "The result is written to ``input``, which is returned."

    @property
    def takes_self(self) -> bool:
        """Whether it is a method, whose first tensor is its own."""
        return self in (Form.METHOD, Form.IN_PLACE_METHOD)


class Documentation:
    """What is known of a function or method that is made from the overloads of an op.

    It has the parameters ``added`` besides those of the op, and not those named in ``removed``.
    """

    def __init__(
        self,
        overloads: Sequence[Op],
        form: Form = Form.FUNCTION,
        added: tuple[inspect.Parameter, ...] = (),
        removed: tuple[str, ...] = (),
    ) -> None:
        self.overloads, self.form, self.added, self.removed = overloads, form, added, removed

    def _params_of(self, op: Op) -> list[Param]:
        """The parameters of an overload that the function has."""
        own = op.tensor_params[0].name if self.form.takes_self else ""
        return [param for param in op.params if param.name != own and param.name not in self.removed]

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters of the first overload, those that others add, which may be left out, and the added ones."""
        found: dict[str, inspect.Parameter] = {}
        for op in self.overloads:
            params = self._params_of(op)
            extends = [param.name for param in params[: len(found)]] == [*found]
            first = op is self.overloads[0]
            for param in params:
                if param.name not in found:
                    kind = POSITIONAL if extends and not param.keyword_only else KEYWORD_ONLY
                    default = param.default if first or param.default is not REQUIRED else None
                    found[param.name] = inspect.Parameter(param.name, kind, default=default)
        own = [inspect.Parameter("self", POSITIONAL)] if self.form.takes_self else []
        added = [parameter for parameter in self.added if parameter.name not in found]
        return sorted([*own, *found.values(), *added], key=lambda parameter: parameter.kind)

    def text(self) -> str:
        """The docstring."""
        ops = [op for op in self.overloads if not op.private]
        parts, described = [], {""}
        for op in ops:
            parts.append(op.doc if op is ops[0] else f"``{op.signature}``\n\n{op.doc}")
            lines = [line for param in self._params_of(op) for line in _lines_of(op, param, described)]
            if op is ops[-1]:
                lines += [line for parameter in self.added for line in _lines_of_added(parameter, described)]
            if lines:
                parts.append("\n".join(["Args:", *lines]))
        parts.insert(1, self.form.value)
        parts.append("\n".join(["Returns:", *_indented(self._returns(), "    ")]))
        if torch_name := self._torch_name():
            parts.append(f"In PyTorch: ``{torch_name}``.")
        if shown := descriptions.example(self.overloads[0].module, self.overloads[0].keys):
            parts.append("\n".join(["Examples:", *(f"    {line}" for line in shown)]))
        return "\n\n".join(part for part in parts if part) + "\n"

    def _returns(self) -> str:
        if self.overloads[0].truth:
            return "A bool."
        if self.form is Form.IN_PLACE_METHOD:
            return "The tensor itself."
        return " ".join(dict.fromkeys(op.returns for op in self.overloads))

    def _torch_name(self) -> str:
        op = self.overloads[0]
        if self.form is Form.FUNCTION or (self.form is Form.METHOD and op.method_of_torch):
            return op.torch_name
        if self.form is Form.IN_PLACE_FUNCTION:
            return f"{op.torch_name}_"
        return f"torch.Tensor.{op.name}{'_' * (self.form is Form.IN_PLACE_METHOD)}"


def _indented(text: str, rest: str = "        ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent=rest, break_on_hyphens=False)


def _lines_of(op: Op, param: Param, described: set[str]) -> Iterator[str]:
    """The lines about a parameter; none if an earlier overload has one of the same meaning."""
    text = op.describe(param)
    word = param.kind.word.removeprefix("torch.")
    word = f"{word} or Number" if isinstance(param.kind, OperandKind) else word
    default = "" if param.default is REQUIRED else f", default {param.default!r}"
    line = f"{param.name} ({word}{default}): {text}"
    if line not in described:
        described.add(line)
        yield from _indented(line)


def _lines_of_added(parameter: inspect.Parameter, described: set[str]) -> Iterator[str]:
    text = descriptions.describe(MODULE_OF_OPTIONS, (), parameter.name)
    if not any(line.startswith(f"{parameter.name} (") for line in described):
        yield from _indented(f"{parameter.name} (default {parameter.default!r}): {text}")


class LazySignature(inspect.Signature):
    """A signature whose parameters are made when they are first read."""

    __slots__ = ("documentation",)

    documentation: Documentation

    def __getattr__(self, name: str) -> Any:
        if name not in inspect.Signature.__slots__:
            raise AttributeError(name)
        inspect.Signature.__init__(self, self.documentation.parameters())  # fills the slots
        return getattr(self, name)


class LazyText(str):
    """A docstring whose text is made when it is first read; all methods of str are those of the text."""

    documentation: Documentation

    def __str__(self) -> str:
        text: str = vars(self).get("text", "")
        if not text:
            text = self.text = self.documentation.text()
        return text


def _of_text(name: str) -> Any:
    method = getattr(str, name)

    def call(self: LazyText, *args: Any, **kwargs: Any) -> Any:
        return method(str(self), *args, **kwargs)

    return call


for _name in {*dir(str)} - {*dir(object)} | {"__eq__", "__ne__", "__hash__", "__repr__", "__format__"}:
    setattr(LazyText, _name, _of_text(_name))


def document(function: AnyFunction, documentation: Documentation) -> AnyFunction:
    """Give a function a docstring and a signature."""
    text, signature = LazyText(), LazySignature.__new__(LazySignature)
    text.documentation = signature.documentation = documentation
    made: Any = function
    made.__doc__, made.__signature__ = text, signature
    return function


def documentation_of(function: Any) -> Documentation | None:
    """What :func:`document` was told about a function, or about the one that it wraps; None for other functions."""
    text = getattr(function, "__doc__", None)
    return text.documentation if isinstance(text, LazyText) else None


def document_added(function: AnyFunction, *added: inspect.Parameter, removed: tuple[str, ...] = ()) -> AnyFunction:
    """Document that a function which wraps one that is made from an op has more parameters, and lacks some."""
    known = documentation_of(function)
    if known is None:
        return function
    parts = Documentation(known.overloads, known.form, (*known.added, *added), (*known.removed, *removed))
    return document(function, parts)


def option(name: str, default: Any = None) -> inspect.Parameter:
    """A keyword-only parameter that functions have besides those of their op."""
    return inspect.Parameter(name, KEYWORD_ONLY, default=default)
