"""NumPy's calls while a program runs once to be planned: each is computed, and noted with where its arrays come from.

What would act on values that the next run will not have raises :class:`~.symbolic.Untraceable`. So does every function
that is not known to give, for arguments of the same shapes and dtypes, results of the same shapes and dtypes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .base import Backend
from .numpy import NUMPY
from .symbolic import NEEDED, TensorScalar, TracedNumber, Untraceable, is_traced, value_of


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN = _names(
    """
    affine all angle any arange argmax argmin argsort array as_strided asarray ascontiguousarray
    broadcast_arrays broadcast_to clip column_sums concatenate copy cross cumprod cumsum diagonal digamma dot
    einsum erf erfc erfinv expand_dims flip fold full imag index_add index_combine index_set lgamma linspace
    log_softmax matmul_like max mean min moveaxis normal_cdf ones_like outer pad padded polygamma prod real
    repeat reshape reshape_view roll row_sums running searchsorted sinc softmax solve_triangular sort split squeeze
    stack std strided_windows sum swapaxes take take_along_axis tensordot tile trace transpose tril triu unpool var
    where windows zeros_like
    """
)
"""Functions whose results have shapes and dtypes that follow from those of the arguments, besides NumPy's ufuncs.

What the NumPy backend has in a few of these, to save temporaries, is none of them where a plan saves them by itself.
"""
LINEAR = _names("cholesky det eigh eigvalsh inv pinv qr slogdet solve svd")
"""Likewise of ``numpy.linalg``."""
OF_KINDS = _names("can_cast iscomplexobj may_share_memory ndim promote_types result_type shape size")
"""Functions that look at shapes and dtypes, or at who has whose memory, and not at values."""
METHODS = _names(
    """
    all any argmax argmin argsort astype clip copy cumprod cumsum diagonal dot flatten max mean min prod ravel repeat
    reshape round squeeze std sum swapaxes take trace transpose var view
    """
)
MAKERS = _names("arange eye full linspace ones ones_like zeros zeros_like")
"""Functions that make arrays of little: what they make is made anew each time, where it is not small."""
SMALL = 2**10
"""Bytes."""
SAME = frozenset(["array", "asarray", "ascontiguousarray", "copy"])
"""Functions, and a method, that come to the argument itself where nobody writes to it."""


class Call(NamedTuple):
    """One call on the tape."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    """Arrays that were computed stand here as :class:`Ref`."""
    kwargs: dict[str, Any]
    result: int


class Ref(NamedTuple):
    """The array, or the tuple of arrays, of this number."""

    number: int


class SliceOf(tuple[Any, ...]):
    """The start, stop and step of a slice, of which some are computed."""


class ArraySpec(NamedTuple):
    """What is known of an array without its values."""

    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]
    roots: frozenset[int]
    """Whose memory it may show: numbers of arrays that have some of their own; itself if it has."""


class Tape:
    """Calls in the order in which they were made."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.kept: list[ArraySpec | None] = []
        """Of each array by its number; None is a tuple of arrays, a Python number, or a generator."""
        self.draws: set[int] = set()
        """The numbers of generators that are drawn from."""
        self.checks: set[int] = set()
        """The numbers of calls that raise where something taken for granted does not hold."""
        self._guarded: set[str] = set()

    def input(self, value: Any, shown: Sequence[TapedArray] = ()) -> TapedArray:
        """An array that the program is called with; it may show the memory of others that it is."""
        number = len(self.kept)
        roots = frozenset(each.number for each in shown) or frozenset([number])
        self._number(ArraySpec(value.shape, value.dtype, value.strides, roots))
        return TapedArray(self, number, value)

    def generator(self) -> TapedGenerator:
        """A random number generator that the program is called with."""
        return TapedGenerator(self, self._number(None))

    def operand(self, value: float, bounds: tuple[float, float] | None = None) -> TracedNumber:
        """A number that the program is called with, and the least and the largest that it may be."""
        return TracedNumber(self, self._number(None), value, bounds)

    def compute(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """What a function makes of Python numbers, of which one may differ, or of one and an array."""
        if any(not isinstance(x, (int, float)) for x in args):
            return NotImplemented
        number = self._number(None)
        self.calls.append(Call(function, tuple([_referring(x) for x in args]), {}, number))
        return TracedNumber(self, number, function(*map(value_of, args)))

    def guard(self, check: Callable[..., None], args: Sequence[Any]) -> None:
        """Have a check, which raises GuardFailed, made in every run; it holds in this one."""
        call = Call(check, tuple([_referring(x) for x in args]), {}, len(self.kept))
        text = repr(call[:2])
        if text not in self._guarded:
            self._guarded.add(text)
            self.checks.add(self._number(None))
            self.calls.append(call)

    def note(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], always: bool = False
    ) -> Any:
        """What the function gives, taken down if one of the arguments was computed, or always."""
        own: list[TapedArray] = []
        values = [_each(x, own) for x in args]
        settings = {name: _each(x, own) for name, x in kwargs.items()}
        result = function(*values, **settings)
        if not own and not always:
            return result
        call_args = tuple([_referring(x) for x in args])
        call_kwargs = {name: _referring(x) for name, x in kwargs.items()}
        if isinstance(result, (np.ndarray, np.generic)):
            out = self._array(result, own)
            self.calls.append(Call(function, call_args, call_kwargs, out.number))
            return out
        if not isinstance(result, (tuple, list)):
            raise Untraceable(NEEDED)
        number = self._number(None)
        self.calls.append(Call(function, call_args, call_kwargs, number))
        outs = []
        for i, item in enumerate(result):
            if not isinstance(item, (np.ndarray, np.generic)):
                raise Untraceable(NEEDED)
            out = self._array(item, own)
            self.calls.append(Call(operator.getitem, (Ref(number), i), {}, out.number))
            outs.append(out)
        return type(result)(*outs) if hasattr(result, "_fields") else type(result)(outs)

    def draw(self, generator: TapedGenerator, draw: Callable[[Any], Any]) -> TapedArray:
        """Numbers that a generator is asked for; nobody else may have drawn these."""
        out = self._array(np.asarray(draw(generator.example)), ())
        self.draws.add(generator.number)
        self.calls.append(Call(draw, (Ref(generator.number),), {}, out.number))
        return out

    def _array(self, value: Any, sources: Sequence[TapedArray]) -> TapedArray:
        number = len(self.kept)
        roots: set[int] = set()
        if isinstance(value, np.ndarray) and (value.base is not None or any(value is s.value for s in sources)):
            for source in sources:
                if isinstance(source.value, np.ndarray) and np.may_share_memory(value, source.value):
                    kept = self.kept[source.number]
                    assert kept is not None
                    roots |= kept.roots
        self._number(ArraySpec(value.shape, value.dtype, value.strides, frozenset(roots or {number})))
        return TapedArray(self, number, value)

    def _number(self, kept: ArraySpec | None) -> int:
        self.kept.append(kept)
        return len(self.kept) - 1


def _each(x: Any, own: list[TapedArray]) -> Any:
    """An argument with values in place of what was computed, which is added to ``own``."""
    if isinstance(x, TapedArray) or is_traced(x):
        own.append(x)
        return x.value
    if isinstance(x, (tuple, list)):
        return type(x)([_each(item, own) for item in x])
    if isinstance(x, slice):
        return slice(*[_each(bound, own) for bound in (x.start, x.stop, x.step)])
    if isinstance(x, TensorScalar):
        raise Untraceable(NEEDED)
    return x


def _referring(x: Any) -> Any:
    if isinstance(x, TapedArray) or is_traced(x):
        return Ref(x.number)
    if isinstance(x, slice) and any(map(is_traced, (x.start, x.stop, x.step))):
        return SliceOf(map(_referring, (x.start, x.stop, x.step)))
    return type(x)([_referring(item) for item in x]) if isinstance(x, (tuple, list)) else x


class TapedGenerator:
    """A generator whose draws are noted. It draws from another one meanwhile: the program's own goes no further."""

    METHODS = frozenset(["integers", "permutation", "random", "standard_exponential", "standard_normal"])

    def __init__(self, tape: Tape, number: int) -> None:
        self._tape, self.number = tape, number
        self.example = np.random.default_rng(0)

    def __getattr__(self, name: str) -> Any:
        if name not in self.METHODS:
            raise Untraceable(f"draws numbers by {name}")

        def draw(*args: Any, **kwargs: Any) -> TapedArray:
            if any(isinstance(x, TapedArray) or is_traced(x) for x in (*args, *kwargs.values())):
                raise Untraceable(NEEDED)
            return self._tape.draw(self, operator.methodcaller(name, *args, **kwargs))

        return draw


class TapedArray:
    """An array whose every use is noted; it cannot be written to, and nobody may act on its values."""

    __slots__ = ("__weakref__", "number", "tape", "value")
    __hash__ = object.__hash__

    def __init__(self, tape: Tape, number: int, value: Any) -> None:
        self.tape, self.number, self.value = tape, number, value

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"TapedArray(number={self.number}, shape={self.shape}, dtype={self.dtype})"

    @property
    def roots(self) -> frozenset[int]:
        """Whose memory it may show: numbers of arrays."""
        kept = self.tape.kept[self.number]
        return frozenset() if kept is None else kept.roots

    # What is computed --------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        if any(
            isinstance(i, TapedArray) and i.dtype == bool for i in (index if isinstance(index, tuple) else (index,))
        ):
            raise Untraceable(NEEDED)
        return self.tape.note(operator.getitem, (self, index), {})

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            # As of any object that lacks it: some ask whether there is one.
            raise AttributeError(f"a planned program knows no {name} of an array")
        method = getattr(type(self.value), name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if (name == "astype" and np.dtype(args[0] if args else kwargs["dtype"]) == self.dtype) or name in SAME:
                return self
            return self.tape.note(method, (self, *args), kwargs)

        return call

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "at" or kwargs.get("out") is not None:
            raise Untraceable("writes to an array")
        return self.tape.note(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name, module = function.__name__, function.__module__
        return noted(self.tape, name, function, LINEAR if module == "numpy.linalg" else KNOWN)(*args, **kwargs)

    # What would act on values ------------------------------------------------------------

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise Untraceable(NEEDED)

    __array__ = __bool__ = __float__ = __int__ = __index__ = __complex__ = item = tolist = __setitem__ = _refuse


for _name in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags"):
    setattr(TapedArray, _name, property(attrgetter(f"value.{_name}")))
TapedArray.T = property(lambda self: self.transpose())  # type: ignore[attr-defined]
TapedArray.mT = property(lambda self: self.swapaxes(-1, -2))  # type: ignore[attr-defined]
TapedArray.real = property(lambda self: self.tape.note(np.real, (self,), {}))  # type: ignore[attr-defined]
for _name, _method in vars(NDArrayOperatorsMixin).items():
    # In-place operators are left out, so that they rebind a name.
    if callable(_method) and (_name == "__invert__" or not _name.startswith("__i")):
        setattr(TapedArray, _name, _method)


def _power(self: Any, other: Any) -> Any:
    """``**``, which for some exponents is not ``numpy.power``."""
    return NotImplemented if isinstance(other, TensorScalar) else self.tape.note(operator.pow, (self, other), {})


def _reflected_power(self: Any, other: Any) -> Any:
    return self.tape.note(operator.pow, (other, self), {})


setattr(TapedArray, "__pow__", _power)  # noqa: B010
setattr(TapedArray, "__rpow__", _reflected_power)  # noqa: B010


# Functions -----------------------------------------------------------------------------------


def noted(tape: Tape, name: str, function: Any, known: frozenset[str]) -> Any:
    """A function of NumPy's or its backend's, on the tape."""

    def call(*args: Any, **kwargs: Any) -> Any:
        own: list[TapedArray] = []
        values = [_each(x, own) for x in args]
        if name in OF_KINDS:
            return function(*values, **kwargs)
        if name in SAME and isinstance(args[0], TapedArray) and isinstance(args[0].value, np.ndarray):
            dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
            same = name != "ascontiguousarray" or args[0].flags.c_contiguous
            if same and (dtype is None or np.dtype(dtype) == args[0].dtype):
                return args[0]
        if name in ("broadcast_to", "reshape") and own and np.shape(values[0]) == values[1]:
            return args[0]
        if (own or any(isinstance(x, TapedArray) or is_traced(x) for x in kwargs.values())) and (
            name not in known or _counting(name, args)
        ):
            raise Untraceable(NEEDED)
        result = tape.note(function, args, kwargs)
        if name in MAKERS and isinstance(result, np.ndarray) and result.nbytes > SMALL:
            return tape.note(function, args, kwargs, always=True)
        return result

    return call


def _counting(name: str, args: Sequence[Any]) -> bool:
    """Whether it is values that decide how much there is in the result."""
    return (name == "where" and len(args) < 3) or (name == "repeat" and isinstance(args[1], TapedArray))


class _Linalg:
    """``numpy.linalg``, noted."""

    LinAlgError = np.linalg.LinAlgError

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        return noted(self._tape, name, getattr(NUMPY.linalg, name), LINEAR)


class TapingBackend(Backend):
    """NumPy's functions and the NumPy backend's own, on a tape."""

    name, library = "cpu", "numpy"
    aliases = False
    namespace = np

    def __init__(self) -> None:
        super().__init__()
        self.tape = Tape()
        self.guards: list[TapedArray] = []
        """Conditions that were taken to hold."""
        self.linalg = _Linalg(self.tape)
        # Those that a base class has would be found before __getattr__ is asked.
        for name in KNOWN | OF_KINDS:
            if hasattr(NUMPY, name):
                self.__dict__[name] = self._function(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self.__dict__[name] = self._function(name)
        return found

    def _function(self, name: str) -> Any:
        found = getattr(NUMPY, name)
        if isinstance(found, (np.ufunc, type)):
            return found  # which come back by __array_ufunc__, or make no arrays
        if callable(found):
            return noted(self.tape, name, found, KNOWN)
        if isinstance(found, ModuleType):
            raise Untraceable(f"uses numpy.{name}")
        return found

    def one(self, array: Any) -> Any:
        """1 as a 0-dim array."""
        return NUMPY.one(array)

    def zero(self, array: Any) -> Any:
        """0 as a 0-dim array."""
        return NUMPY.zero(array)

    def number(self, array: Any) -> Any:
        """What stands for the one element of an array."""
        return TensorScalar(array.astype(np.float64)) if isinstance(array, TapedArray) else float(array)

    def wrapped(self, number: float, dtype: Any) -> Any:
        """A 0-dim array of a number."""
        return self.tape.note(NUMPY.wrapped, (number, dtype), {})

    def holds(self, condition: Any, usually: bool) -> bool:
        """Whether the condition holds in this run, noted as a guard."""
        if not isinstance(condition, TapedArray):
            return bool(condition)
        holds = bool(condition.value)
        self.guards.append(condition if holds else np.logical_not(condition))  # type: ignore[arg-type]
        return holds

    def download(self, array: Any) -> Any:
        """An array that is known already. Raises Untraceable for one that is not."""
        if isinstance(array, TapedArray):
            raise Untraceable(NEEDED)
        return array

    def asks_for_values(self, error: Exception) -> bool:
        """Whether an error says that values were needed; what does says so itself, as Untraceable."""
        return False
