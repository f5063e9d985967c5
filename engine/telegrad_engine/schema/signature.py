"""Signatures of ops and verbs: the parameters of the declaring function, and the checks of a call's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

from ..dtypes import COMPLEX_TEXT
from ..errors import DTypeMismatch, InvalidArgument, TelegradError
from .descriptions import describe
from .parameters import ArgumentMismatch, Kind, Take, TensorKind, TensorListKind

REQUIRED: Any = inspect.Parameter.empty

OTHER_KEYWORDS = {
    "a": "input", "axis": "dim", "keepdims": "keepdim", "split_size_or_sections": "split_size", "tensor": "input",
    "train": "training", "x": "input", "x1": "input", "x2": "other",
}  # fmt: skip
"""Alternative keywords that torch accepts: NumPy's, and those that differ between a function and its method."""


class Param(NamedTuple):
    """One parameter, as declared."""

    name: str
    kind: Kind
    default: Any
    keyword_only: bool

    @property
    def is_list(self) -> bool:
        """Whether it takes a list of tensors."""
        return isinstance(self.kind, TensorListKind)


class Signature:
    """A name and its parameters; it sorts and checks the arguments of a call."""

    module = ""
    """The module that declares it; "" for a function that a client has registered, which has no descriptions."""

    def __init__(self, name: str, params: tuple[Param, ...]) -> None:
        self.name = name
        self.params = params
        self.tensor_params = tuple([p for p in params if p.kind.is_tensor])
        self.attr_params = tuple([p for p in params if not p.kind.is_tensor])
        self.defaults = {p.name: p.default for p in self.attr_params if p.default is not REQUIRED}
        self.positions = {p.name: i for i, p in enumerate(params)}
        self.positional = tuple([p for p in params if not p.keyword_only])
        self.tensors_first = self.positional[: len(self.tensor_params)] == self.tensor_params
        self.splat_at = _splat_at(self.positional)
        self._kinds = {p.name: p.kind for p in self.attr_params}
        self._lifting = [(p.name, p.kind) for p in self.attr_params if type(p.kind).lift is not Kind.lift]
        self._rests = _rests(params)
        self._takes_tensors = all(isinstance(p.kind, TensorKind) for p in self.tensor_params)

    @property
    def signature(self) -> str:
        """The signature as PyTorch's error texts show it."""
        parts: list[str] = []
        for p in self.params:
            if p.keyword_only and "*" not in parts:
                parts.append("*")
            default = "" if p.default is REQUIRED else f" = {p.default!r}"
            parts.append(f"{p.kind.word} {p.name}{default}")
        return f"{self.name}({', '.join(parts)})"

    @property
    def keys(self) -> tuple[str, ...]:
        """The names that its descriptions are found by, the most specific first."""
        return (self.name,)

    def describe(self, param: Param) -> str:
        """What a parameter means; "" if that is unknown."""
        return describe(self.module, self.keys, param.name, param.kind.label) if self.module else ""

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], exact: bool = False
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Sort the arguments of a torch-style call into tensor inputs and checked attributes.

        With ``exact``, a 0-dim tensor is not accepted as a number.
        """
        if not kwargs and (others := self._rests.get(len(args))) is not None:
            # If all arguments are tensors, one per leading parameter, there is nothing to sort or to check.
            for value in args:
                if not hasattr(value, "_data"):
                    break
            else:
                return (*args, *others), {}
        values: dict[str, Any] = {}
        params = self.params
        for i, value in enumerate(args):
            if i >= len(params) or params[i].keyword_only:
                raise self._no_match(args, kwargs)
            param = params[i]
            if i == self.splat_at and not isinstance(value, (list, tuple)):
                rest = args[i:]
                if param.kind.takes_splat(rest):
                    values[param.name] = tuple(rest)
                    break
            values[param.name] = value
        for name, value in kwargs.items():
            known = name if name in self.positions else OTHER_KEYWORDS.get(name)
            if known not in self.positions or known in values:
                raise self._no_match(args, kwargs)
            values[known] = value
        inputs = []
        attrs = {}
        for param in params:
            if param.name in values:
                value = values[param.name]
                if exact and not param.kind.is_tensor and getattr(value, "_data", None) is not None:
                    raise self._misfit(param, value)
                value = self._check(param, value)
                if not param.kind.is_tensor:
                    attrs[param.name] = value
            elif param.default is REQUIRED:
                raise self._no_match(args, kwargs)
            else:
                value = param.default
            if param.kind.is_tensor:
                inputs.append(value)
        return tuple(inputs), attrs

    def check_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Check attributes given by name, as in a program."""
        for name in attrs:
            if name not in self._kinds:
                hint = "it is one of the inputs" if name in self.positions else f"it takes {self.signature}"
                raise InvalidArgument(f"{self.name}() got an unexpected attribute {name!r}; {hint}")
        checked = {}
        for param in self.attr_params:
            if param.name in attrs:
                checked[param.name] = self._check(param, attrs[param.name])
            elif param.default is REQUIRED:
                raise InvalidArgument(f"{self.name}() missing required attribute {param.name!r}")
        return checked

    def check_inputs(self, inputs: Sequence[Any], writes: bool = False) -> tuple[Any, ...]:
        """Check inputs given by position, as in a program, and fill in missing ones.

        ``writes`` means that an in-place op writes to the first input, which then cannot be a number.
        """
        params = self.tensor_params
        if len(inputs) == len(params) and self._takes_tensors and not writes:
            for value in inputs:
                if not hasattr(value, "_data"):
                    break
            else:
                return tuple(inputs)
        if len(inputs) > len(params):
            raise InvalidArgument(f"{self.name}() takes at most {len(params)} inputs, but {len(inputs)} were given")
        checked = [self._check(param, value) for param, value in zip(params, inputs, strict=False)]
        for param in params[len(inputs) :]:
            if param.default is REQUIRED:
                raise InvalidArgument(f"{self.name}() missing required input {param.name!r}")
            checked.append(param.default)
        if writes and not hasattr(checked[0], "_inplace"):
            raise InvalidArgument(
                f"{self.name}_(): argument '{params[0].name}' must be Tensor, not {type(checked[0]).__name__}"
            )
        return tuple(checked)

    def encode_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes as JSON data."""
        kinds = self._kinds
        return {name: None if value is None else kinds[name].encode(value) for name, value in attrs.items()}

    def lift_attrs(self, encoded: Mapping[str, Any], take: Take) -> Mapping[str, Any]:
        """Replace numbers that do not affect shapes by operands in attributes that are JSON data."""
        lifting = [(name, kind) for name, kind in self._lifting if name in encoded]
        return {**encoded, **{name: kind.lift(encoded[name], take) for name, kind in lifting}} if lifting else encoded

    def _check(self, param: Param, value: Any) -> Any:
        if value is None and param.default is None:
            return None
        try:
            return param.kind.parse(value)
        except (TypeError, OverflowError) as error:
            if param.kind.deferrable and _is_symbolic(value):
                return value  # it is checked when its value is known
            if isinstance(error, TelegradError):
                raise
            if isinstance(value, complex):
                raise DTypeMismatch(COMPLEX_TEXT) from None
            if isinstance(error, ArgumentMismatch):
                place = {"function": self.name, "argument": param.name, "position": self.positions[param.name]}
                raise InvalidArgument(str(error).format(**place)) from None
            raise self._misfit(param, value) from None

    def _misfit(self, param: Param, value: Any) -> InvalidArgument:
        """The error for an argument of the wrong kind."""
        return InvalidArgument(
            f"{self.name}(): argument '{param.name}' must be {param.kind.word}, not {type(value).__name__}"
        )

    def _no_match(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> InvalidArgument:
        """The error for arguments that are too many, too few or unknown."""
        most = len(self.positional)
        if len(args) > most:
            least = sum(p.default is REQUIRED for p in self.positional)
            count = f"{most}" if least == most else f"from {least} to {most}"
            verb = "was" if len(args) == 1 else "were"
            return InvalidArgument(
                f"{self.name}() takes {count} positional argument{'s' * (count != '1')} but {len(args)} {verb} given"
            )
        unknown = next((name for name in kwargs if name not in self.positions), None)
        if unknown is not None:
            return InvalidArgument(f"{self.name}() got an unexpected keyword argument {unknown!r}")
        twice = next((p.name for p in self.params[: len(args)] if p.name in kwargs), None)
        if twice is not None:
            return InvalidArgument(f"{self.name}() got multiple values for argument {twice!r}")
        missing = [p.name for p in self.params[len(args) :] if p.default is REQUIRED and p.name not in kwargs]
        return InvalidArgument(
            f"{self.name}() missing {len(missing)} required positional argument{'s' * (len(missing) == 1)}: "
            + ", ".join(f'"{name}"' for name in missing)
        )


def _is_symbolic(value: Any) -> bool:
    """Whether a value is symbolic, such as a parameter of a traced function, or contains a symbolic value."""
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbolic, value))
    return hasattr(type(value), "is_symbolic")


def _rests(params: Sequence[Param]) -> dict[int, tuple[Any, ...]]:
    """For each number of arguments that can all be single tensors, the defaults of the remaining tensor parameters."""
    lead = 0
    while lead < len(params) and isinstance(params[lead].kind, TensorKind) and not params[lead].keyword_only:
        lead += 1
    rests = {}
    for count in range(1, lead + 1):
        left = params[count:]
        if all(p.default is not REQUIRED for p in left):
            rests[count] = tuple(p.default for p in left if p.kind.is_tensor)
    return rests


def _splat_at(positional: Sequence[Param]) -> int:
    """The position from which arguments may be given separately for one tuple, as in ``view(2, 3)``; -1 if none."""
    if not positional or not positional[-1].kind.splats:
        return -1
    tensors = isinstance(positional[-1].kind, TensorListKind)
    return len(positional) - 1 if tensors or all(p.kind.is_tensor for p in positional[:-1]) else -1


def given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The types of a call's arguments, as PyTorch's error texts list them."""
    return ", ".join([type(a).__name__ for a in args] + [f"{k}={type(v).__name__}" for k, v in kwargs.items()])


def read_params(kernel: Callable[..., Any], skip: int) -> tuple[Param, ...]:
    """Return the parameters that a kernel or a verb's handler declares, without the first ``skip``."""
    function: Any = inspect.unwrap(kernel)
    names, positional = parameter_names(function), function.__code__.co_argcount
    defaults = dict(zip(reversed(names[:positional]), reversed(function.__defaults__ or ()), strict=False))
    defaults |= function.__kwdefaults__ or {}
    params = []
    for index, name in enumerate(names[skip:], skip):
        annotation = function.__annotations__.get(name)
        if isinstance(annotation, str):
            annotation = function.__globals__.get(annotation) or eval(annotation, function.__globals__)
        kind, *_ = getattr(annotation, "__metadata__", (None,))
        if not isinstance(kind, Kind):
            raise TypeError(f"{kernel.__name__}: parameter {name!r} has no kind")
        params.append(Param(name, kind, defaults.get(name, REQUIRED), index >= positional))
    return tuple(params)


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters; the name of a ``**kwargs`` parameter starts with ``**``.

    For a plain function this is ten times as fast as ``inspect.signature``.
    """
    if isinstance(function, partial):
        return parameter_names(function.func)[len(function.args) :]
    plain: Any = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function
    if type(plain) is not FunctionType:
        parameters = inspect.signature(function).parameters.values()
        return tuple(["**" * (p.kind is inspect.Parameter.VAR_KEYWORD) + p.name for p in parameters])
    code = plain.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return (*names, "**") if code.co_flags & inspect.CO_VARKEYWORDS else names


def flattened(inputs: Iterable[Any]) -> list[Any]:
    """Return the inputs with the elements of tuples in place of the tuples."""
    flat: list[Any] = []
    for x in inputs:
        if isinstance(x, tuple):
            flat.extend(x)
        else:
            flat.append(x)
    return flat


def nested(values: Iterator[Any], inputs: Iterable[Any]) -> tuple[Any, ...]:
    """Return the next ones of a flat list of values in the structure of the inputs."""
    return tuple([tuple([next(values) for _ in x]) if isinstance(x, tuple) else next(values) for x in inputs])


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return ``function(value)``; for a tuple or list, a tuple of the function's results for the elements."""
    return tuple([mapped(function, v) for v in value]) if isinstance(value, (tuple, list)) else function(value)
